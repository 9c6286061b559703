"""Maths without a network: MathJax comes from the PyPI package `sphinx-mathjax-offline`.

That package's own extension copies 24 MB into the site. The pages need one script and its fonts, 1.7 MB.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SCRIPT = "tex-chtml-full.js"
FONTS = "output/chtml/fonts/woff-v2"
LICENCE = Path(__file__).with_name("mathjax-LICENSE.txt")


def source() -> Path:
    """The folder of the installed package that holds MathJax."""
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    if found is None or found.origin is None:
        raise ExtensionError("MathJax is not installed. Run: pip install sphinx-mathjax-offline==0.0.2")
    folder = Path(found.origin).parent / "static" / "mathjax"
    if not (folder / SCRIPT).is_file():
        raise ExtensionError(f"sphinx-mathjax-offline has no {SCRIPT}. Install version 0.0.2 of it.")
    return folder


def copy(app: Sphinx, exception: Exception | None) -> None:
    """Put the script, its fonts and its licence where `mathjax_path` points."""
    if exception is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / "mathjax"
    shutil.copytree(source() / FONTS, target / FONTS, dirs_exist_ok=True)
    shutil.copy(source() / SCRIPT, target / SCRIPT)
    shutil.copy(LICENCE, target / "LICENSE.txt")


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    source()  # fail at the start of the build, not at its end
    app.config.mathjax_path = f"mathjax/{SCRIPT}"
    app.connect("build-finished", copy)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
