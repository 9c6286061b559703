"""The row "Time" at the head of a chapter: reading and exercises apart, by one rule for all chapters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode
from prose_numbers import read_notebook

from gptlab.exercises.exercise import everything

CHAPTERS = sorted((Path(__file__).parents[2] / "book").glob("[01][0-9]-*.ipynb"))
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


def reading_minutes(nb: NotebookNode) -> int:
    """Sixty words a minute, ten lines of code, two minutes for a guess and one for a figure; to the next five.

    The pace of somebody who meets the matter for the first time and thinks along.
    """
    minutes, exercises = 0.0, False
    for cell in nb.cells:
        if heading := re.match(r"## (.+)", cell.source):
            exercises = heading[1] == "Exercises"
        if exercises:
            continue
        tags = {*cell.metadata.get("tags", [])}
        if cell.cell_type == "markdown":
            minutes += len(re.findall(r"\w+", cell.source)) / 60
        elif not tags & FOLDED:
            minutes += (cell.source.count("\n") + 1) / 10
        minutes += 2 * ("hide-output" in tags)
        minutes += any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
    return 5 * round(minutes / 5)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_says_how_long_reading_and_exercises_take(path):
    nb = read_notebook(path)
    exercises = sum(one.minutes for one in everything() if one.chapter == int(path.name[:2]))
    row = f"| Time | {reading_minutes(nb)} minutes to read, {exercises} for the exercises |"
    assert row in nb.cells[0].source, f"write {row}"


def test_the_rule_counts_words_lines_guesses_and_figures_but_no_exercise():
    def cell(kind: str, source: str, *tags: str, outputs: tuple[dict, ...] = ()) -> NotebookNode:
        return NotebookNode(cell_type=kind, source=source, metadata={"tags": [*tags]}, outputs=[*outputs])

    words, lines = "word " * 600, "\n".join(["x"] * 100)
    figure = {"output_type": "display_data", "data": {"image/png": ""}}
    parts = {
        10: [cell("markdown", words)],
        20: [cell("markdown", words), cell("code", lines)],
        15: [cell("code", lines, "hide-output"), cell("code", lines, "hide-input", outputs=(figure,) * 3)]
        * 1,
        0: [cell("markdown", "## Exercises"), cell("markdown", words), cell("code", lines)],
    }
    for minutes, cells in parts.items():
        assert reading_minutes(NotebookNode(cells=cells)) == minutes
    assert reading_minutes(NotebookNode(cells=[*parts[0], cell("markdown", "## To keep"), *parts[10]])) == 10
