"""``python -m gptlab`` is the command ``gptlab``."""

from gptlab.cli import app

app(prog_name="gptlab")
