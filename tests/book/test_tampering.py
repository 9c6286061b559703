"""Text and code cannot drift apart: every way of altering one fails, and the message says what to do."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import notebooks
import pytest
from nbformat import NotebookNode

Edit = Callable[[str, Callable[[NotebookNode], None]], None]
NAME = "book/01-sample.ipynb"
SCRIPTS = Path(notebooks.__file__).parent


def check(book: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    status = notebooks.main(["check"], root=book)
    lines = capsys.readouterr().out.splitlines()
    assert status == (1 if lines else 0)
    return lines


def nbval(book: Path) -> subprocess.CompletedProcess[str]:
    """Run the book under nbval, as the Makefile does."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "nbval_hint",
        "-p",
        "no:cacheprovider",
        "-q",
        "--color=no",
    ]
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=300"]
    config = Path(__file__).parents[1] / "nbval.cfg"
    path = os.pathsep.join([str(SCRIPTS), str(book)])
    return subprocess.run(
        [*command, *options, f"--nbval-sanitize-with={config}", "book"],
        cwd=book,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def replace(old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(cell: NotebookNode) -> None:
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def test_the_untouched_notebook_passes(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(book, capsys) == []
    result = nbval(book)
    assert result.returncode == 0, result.stdout
    assert "6 passed" in result.stdout
    assert "make notebooks" not in result.stdout


def test_a_number_changed_in_an_output(book: Path, edit: Edit) -> None:
    edit(
        "count",
        lambda cell: cell.outputs[0].update(text=cell.outputs[0].text.replace("38,597,376", "38,597,377")),
    )
    result = nbval(book)
    assert result.returncode == 1
    assert "1 failed, 5 passed" in result.stdout
    assert "38,597,377" in result.stdout
    assert "run `make notebooks`, then read the diff" in result.stdout
    assert "fix the code" in result.stdout


def test_a_number_changed_in_prose(book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit("intro", replace("38.6M", "38.7M"))
    assert check(book, capsys) == [
        f'{NAME}: cell 1 (intro): "38.7M" is not printed by any cell (nearest: 38,597,376 in cell 3); '
        'print it in a cell, correct the prose, or mark it "(not computed here)"'
    ]


def test_a_number_changed_in_a_formula(book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit("maths", replace("38{,}597{,}376", "38{,}597{,}367"))
    (line,) = check(book, capsys)
    assert 'cell 5 (maths): "38,597,367" is not printed by any cell (nearest: 38,597,376 in cell 3)' in line


@pytest.mark.parametrize(
    ("part", "key", "name"), [("figure", "caption", "caption"), ("image", "alt", "alt text")]
)
def test_a_number_changed_in_a_caption_or_alt_text(
    book: Path, edit: Edit, capsys: pytest.CaptureFixture[str], part: str, key: str, name: str
) -> None:
    def change(cell: NotebookNode) -> None:
        cell.metadata.mystnb[part][key] = cell.metadata.mystnb[part][key].replace("38.6", "38.8")

    edit("figure", change)
    (line,) = check(book, capsys)
    assert f"cell 6 (figure), {name}: " in line
    assert "(nearest: 38,597,376 in cell 3)" in line
    assert "correct the prose" in line


def test_a_cell_that_was_never_run(book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit("env", lambda cell: cell.update(outputs=[], execution_count=None))
    assert check(book, capsys) == [
        f"{NAME}: cell 8 (env): never executed, so nbval would compare nothing; run: make notebooks"
    ]


def test_code_edited_after_its_output_was_stored(
    book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(
        "figure", replace("bars.draw([38.6, 85.1])", "bars.draw([38.6, 85.2])")
    )  # nbval would not see this one
    assert check(book, capsys) == [
        f"{NAME}: code was edited after its outputs were stored; run: make notebooks"
    ]


@pytest.mark.parametrize("module", ["plots/bars.py", "config.py", "ledger.py"])
def test_a_module_that_draws_was_edited(book: Path, capsys: pytest.CaptureFixture[str], module: str) -> None:
    with (book / "gptlab" / module).open("a") as file:
        file.write("\nCOLOUR = 'red'\n")
    (line,) = check(book, capsys)
    assert "was edited after the figures were stored; run: make notebooks, and look at the figures" in line


def test_an_image_was_altered(book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    def flip_a_byte(cell: NotebookNode) -> None:
        png = bytearray(base64.b64decode(cell.outputs[1].data["image/png"]))
        png[len(png) // 2] ^= 1
        cell.outputs[1].data["image/png"] = base64.b64encode(png).decode()

    edit("figure", flip_a_byte)
    assert check(book, capsys) == [
        f"{NAME}: a stored image is not the one that the code drew; run: make notebooks"
    ]
