"""Measuring leaves the process as it was."""

import os
import subprocess
import sys

import pytest

from gptlab.memory import measure
from gptlab.memory.measure import allocator_peaks
from tests.memory.steps import tiny_step

LEVEL = "KINETO_LOG_LEVEL"


def run(code):
    environment = {name: value for name, value in os.environ.items() if name != LEVEL}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_importing_it_sets_no_variable_of_the_process():
    done = run(
        "import os; before = dict(os.environ); import gptlab.memory.measure; print(os.environ == before)"
    )
    assert done.stdout.strip() == "True", done.stderr


def test_measuring_writes_nothing_on_the_terminal_and_sets_no_variable():
    done = run(
        "import os; from gptlab.memory.measure import allocator_peaks; from tests.memory.steps import tiny_step\n"
        f"allocator_peaks(tiny_step()); allocator_peaks(tiny_step()); print(os.environ.get({LEVEL!r}))"
    )
    assert (done.stdout.strip(), done.stderr) == ("None", "")


def test_a_level_that_is_set_stays(monkeypatch):
    monkeypatch.setenv(LEVEL, "4")
    allocator_peaks(tiny_step())
    assert os.environ[LEVEL] == "4"


def test_the_variable_is_set_while_the_step_runs_and_gone_after_one_that_fails(monkeypatch):
    def fail(*_, **__):
        raise ValueError(os.environ[LEVEL])

    monkeypatch.delenv(LEVEL, raising=False)
    monkeypatch.setattr(measure, "run_steps", fail)
    with pytest.raises(ValueError, match="99"):
        allocator_peaks(tiny_step())
    assert LEVEL not in os.environ
