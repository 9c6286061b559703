"""A pytest plugin: write down every stored line that nbval found to differ, instead of only printing tracebacks.

    PYTHONPATH=scripts pytest -p nbval_differences --differences FILE --nbval ... book

nbval alone decides whether a cell fails. For each one that does, this plugin compares the stored outputs with the new
ones line by line, and writes FILE, in JSON: how many notebooks and cells were run, and what differs.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from nbval.plugin import IPyNbCell

CELL, DIFFERS = "notebook of this cell", "stored lines that differ"


def lines(outputs: Iterable[dict[str, Any]]) -> list[str]:
    """The text of a cell's outputs, line by line. Images are left out: nbval does not compare them either."""
    texts = []
    for output in outputs:
        if output["output_type"] == "stream":
            texts.append(output["text"])
        elif output["output_type"] == "error":
            texts.append(f"{output['ename']}: {output['evalue']}")
        else:
            texts += [text for mime, text in output["data"].items() if not mime.startswith("image/")]
    return [line for text in texts for line in ("".join(text)).splitlines()]


def differences(stored: list[str], new: list[str]) -> list[tuple[str | None, str | None]]:
    """Pairs (stored line, new line) that are not equal; None where one side has no such line."""
    pairs: list[tuple[str | None, str | None]] = []
    for kind, i, j, k, m in SequenceMatcher(None, stored, new, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs += zip_longest(stored[i:j], new[k:m])
    return pairs


def place(cell: IPyNbCell) -> str:
    """The notebook's path, below the root if it lies there."""
    path, root = cell.path, cell.config.rootpath
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def describe(cell: IPyNbCell, message: str) -> dict[str, Any]:
    """What differs in a cell that failed: its place, and the pairs of lines, or nbval's message if none differs."""
    number = next(i for i, each in enumerate(cell.parent.nb.cells, start=1) if each is cell.cell)
    pairs = differences(lines(cell.cell.outputs), lines(cell.test_outputs or []))
    return {
        "notebook": place(cell),
        "cell": number,
        "name": cell.cell.get("id", ""),
        "message": message.strip().splitlines()[0] if message.strip() else "failed",
        "lines": pairs,
    }


class Differences:
    """Collects what differs, and writes it at the end."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, IPyNbCell):
            if report.when == "call":
                report.user_properties.append((CELL, place(item)))
            if report.failed and call.excinfo is not None:
                report.user_properties.append((DIFFERS, describe(item, str(call.excinfo.value))))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = [
            each
            for kind in terminalreporter.stats.values()
            for each in kind
            if hasattr(each, "user_properties")
        ]
        found = [each for report in reports for each in report.user_properties]
        cells = [value for name, value in found if name == CELL]
        result = {
            "notebooks": len(set(cells)),
            "cells": len(cells),
            "differences": [value for name, value in found if name == DIFFERS],
        }
        self.file.write_text(json.dumps(result), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--differences", metavar="FILE", type=Path, help="write what differs into FILE, in JSON")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--differences")) is not None:
        config.pluginmanager.register(Differences(file))
