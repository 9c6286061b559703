"""scripts/validate.py: it names each stored line that differs, stops at none, and without CUDA claims nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
import validate
from nbformat import v4
from validate import Difference, Result

ROOT = Path(__file__).resolve().parents[1]


def notebook(path: Path, cells: list[tuple[str, str]]) -> None:
    """A notebook of Markdown and code cells, with what each one prints stored: (code, stored stream)."""
    nb = v4.new_notebook(cells=[v4.new_markdown_cell("# Title", id="title")])
    for number, (code, stored) in enumerate(cells, start=1):
        outputs = [v4.new_output("stream", text=stored)] if stored else []
        nb.cells.append(v4.new_code_cell(code, id=f"code-{number}", execution_count=number, outputs=outputs))
    path.write_text(nbformat.writes(nb), encoding="utf-8")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run over three notebooks: one right, one with three wrong cells between right ones, one whose line is gone."""
    root = tmp_path_factory.mktemp("course")
    (root / "book").mkdir()
    notebook(root / "book" / "a-right.ipynb", [("print(6 * 7)", "42\n")])
    notebook(
        root / "book" / "b-wrong.ipynb",
        [
            ("print('peak: 1,234 MB')\nprint('steps: 3')", "peak: 1,235 MB\nsteps: 3\n"),
            ("print('same')", "same\n"),
            (
                "from gptlab.reporting import report\nreport('loss', 10.5, '10.97')",
                "loss: 10.97\n",
            ),
            ("print('last')", "lost\n"),
        ],
    )
    notebook(root / "book" / "c-missing.ipynb", [("pass", "once\n")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return validate.validate([root / "book"], root)


def test_every_notebook_and_cell_is_run_whatever_differs_before_it(result: Result) -> None:
    assert (result.notebooks, result.cells) == (3, 6)
    assert result.status == 1


def test_each_stored_line_that_differs_is_named_with_the_new_one(result: Result) -> None:
    found = [(each.notebook, each.cell, each.name, each.stored, each.new) for each in result.differences]
    assert found == [
        ("book/b-wrong.ipynb", 2, "code-1", "peak: 1,235 MB", "peak: 1,234 MB"),
        (
            "book/b-wrong.ipynb",
            4,
            "code-3",
            "loss: 10.97",
            "ValueError: loss: this machine computes 10.5, the text says 10.97 (± 0.01)",
        ),
        ("book/b-wrong.ipynb", 5, "code-4", "lost", "last"),
        ("book/c-missing.ipynb", 2, "code-1", "once", None),
    ]


def test_the_report_gives_place_old_and_new(result: Result) -> None:
    report = str(result)
    assert report.startswith("4 stored lines would differ, in 2 of 3 notebooks, 6 code cells.\n")
    assert "book/b-wrong.ipynb, cell 2 (code-1)\n  stored  peak: 1,235 MB\n  new     peak: 1,234 MB" in report
    assert "cell 2 (code-1)\n  stored  once\n  new     (no such line)" in report


def test_a_shipped_notebook_with_one_number_changed_is_found_out(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The front door, on a copy of a chapter of the book."""
    (tmp_path / "book").mkdir()
    nb = nbformat.read(ROOT / "book" / "08-parameter-ledger.ipynb", as_version=4)
    changed = next(
        output
        for cell in nb.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "124,439,808" in output.get("text", "")
    )
    changed.text = changed.text.replace("124,439,808", "124,439,809", 1)
    path = tmp_path / "book" / "08-parameter-ledger.ipynb"
    path.write_text(nbformat.writes(nb), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        assert validate.main([str(path)]) == 1
    shown = capsys.readouterr().out
    assert "1 stored line would differ, in 1 of 1 notebook," in shown
    stored, new = (
        next(line for line in shown.splitlines() if line.startswith(f"  {side} "))
        for side in ("stored", "new")
    )
    assert "124,439,809" in stored
    assert "124,439,808" in new


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_without_cuda_make_gpu_says_that_nothing_was_validated_and_fails(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "validate.py", "--gpu"],
        env={"GITHUB_STEP_SUMMARY": str(summary), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Not validated on GPU: this machine has no CUDA device for PyTorch." in done.stdout
    assert "passed" not in done.stdout
    assert "Not validated on GPU" in summary.read_text(encoding="utf-8")


def outcome(monkeypatch: pytest.MonkeyPatch, *, tests: int, result: Result) -> int:
    """What `make gpu` ends with, on a machine that is said to have CUDA."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr(validate, "cuda", lambda: "a GPU")
    monkeypatch.setattr(validate, "gpu_tests", lambda: tests)
    monkeypatch.setattr(validate, "validate", lambda notebooks: result)
    return validate.main(["--gpu"])


DIFFERENT = Difference("book/a.ipynb", 2, "x", "Cell outputs differ", "1", "2")


@pytest.mark.parametrize(
    ("tests", "result", "status"),
    [
        (0, Result(2, 9, [], 0), 0),
        (1, Result(2, 9, [], 0), 1),
        (5, Result(2, 9, [], 0), 1),  # no test was collected
        (0, Result(2, 9, [DIFFERENT], 1), 1),
        (0, Result(2, 9, [], 3), 1),
        (0, Result(0, 0, [], 5), 2),
    ],
)
def test_it_is_green_only_if_tests_and_notebooks_were_run_and_agree(
    monkeypatch: pytest.MonkeyPatch, tests: int, result: Result, status: int
) -> None:
    assert outcome(monkeypatch, tests=tests, result=result) == status


def test_notebooks_are_run_though_a_gpu_test_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert outcome(monkeypatch, tests=1, result=Result(2, 9, [DIFFERENT], 1)) == 1
    shown = capsys.readouterr().out
    assert "Tests marked gpu: failed: pytest ended with status 1." in shown
    assert "book/a.ipynb, cell 2 (x)\n  stored  1\n  new     2" in shown


def test_a_cell_that_failed_without_a_line_to_show_is_reported_by_nbvals_message() -> None:
    cell = {
        "notebook": "book/a.ipynb",
        "cell": 3,
        "name": "",
        "message": "Timeout of 600 seconds",
        "lines": [],
    }
    report = json.dumps({"notebooks": 1, "cells": 4, "differences": [cell]})
    assert "book/a.ipynb, cell 3\n  Timeout of 600 seconds" in str(validate.read(report, 1))
