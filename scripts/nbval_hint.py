"""A pytest plugin: when a notebook fails under nbval, say what that means and what to do.

PYTHONPATH=scripts pytest -p nbval_hint --nbval ... book
"""

from __future__ import annotations

import pytest

HINT = """\
A notebook printed something else than the output that is stored in it (or a cell failed).
  If the code is right and the stored output is old: run `make notebooks`, then read the diff
  (`git diff book`), and correct the prose that quotes the number.
  If the stored output and the prose are right: the code has changed what it computes; fix the code.
  Never edit a stored output by hand. nbval counts code cells only, from 0."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", [])
    if any(".ipynb::" in report.nodeid for report in reports):
        terminalreporter.section("what to do")
        terminalreporter.write_line(HINT)
