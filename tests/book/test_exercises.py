"""The exercises as the chapters show them are those of the catalogue."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from gptlab.exercises.exercise import Exercise, everything

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = {int(n) for n in re.findall(r"book/(\d\d)-", (BOOK.parent / "_toc.yml").read_text("utf-8"))}
each_exercise = pytest.mark.parametrize("exercise", everything(), ids=lambda exercise: exercise.name)


def cells_of(chapter: int) -> list[nbformat.NotebookNode]:
    if chapter not in CHAPTERS:
        pytest.skip(f"chapter {chapter} is not in the table of contents yet")
    (file,) = BOOK.glob(f"{chapter:02}-*.ipynb")
    return nbformat.read(file, as_version=4).cells


@each_exercise
def test_the_chapter_states_the_task_then_a_stub_with_its_check_then_the_solution(exercise):
    cells = cells_of(exercise.chapter)
    (at,) = [
        i
        for i, cell in enumerate(cells)
        if cell.source.endswith(f'gptlab.check("{exercise.name}", {exercise.name})')
    ]
    task, stub, solution = cells[at - 1 : at + 2]
    assert task.source.startswith(
        f"**{exercise.name}** ({exercise.difficulty}, {exercise.minutes} minutes). "
    )
    assert task.source.replace("`", "").endswith(exercise.task.replace("`", ""))
    start = ("def ", "class ") if isinstance(exercise, Exercise) else (f"{exercise.name} = ...",)
    assert stub.source.startswith(start)
    assert f"```python\n{exercise.solution.strip()}\n```" in solution.source
    assert solution.source.startswith("<details><summary>")


@each_exercise
def test_with_its_stub_untouched_the_stored_check_says_not_attempted(exercise):
    (cell,) = [
        c
        for c in cells_of(exercise.chapter)
        if c.source.endswith(f'check("{exercise.name}", {exercise.name})')
    ]
    (output,) = cell.outputs
    assert output.data["text/plain"].startswith(f"○ {exercise.name}: not attempted")
    assert "<script" not in output.data["text/html"]


def test_every_check_in_a_chapter_is_one_of_the_catalogue():
    known = {exercise.name for exercise in everything()}
    for file in BOOK.glob("*.ipynb"):
        for cell in nbformat.read(file, as_version=4).cells:
            if cell.cell_type == "code" and "gptlab.check(" in cell.source:
                assert cell.source.split('gptlab.check("')[1].split('"')[0] in known
