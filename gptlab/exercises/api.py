"""The functions that a learner calls, at the top level of the package: ``gptlab.check`` and its companions."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from gptlab.exercises import records
from gptlab.exercises.engine import examine
from gptlab.exercises.exercise import everything, find
from gptlab.exercises.report import Report

ATTEMPTS_BEFORE_SOLUTION = 3


@dataclass(frozen=True)
class Text:
    """A text that a notebook and a terminal show as it is, sentences in lines of 78 characters, code as written."""

    text: str
    is_code: bool = False

    def __repr__(self) -> str:
        return self.text if self.is_code else "\n".join(map(_wrapped, self.text.split("\n")))


def _wrapped(line: str) -> str:
    return line if line.startswith(" ") else textwrap.fill(line, 78)  # in a hint, code is indented


def check(name: str, attempt: Any, seed: int | None = None) -> Report:
    """Check an attempt at an exercise, and note it in the learner's progress.

    Args:
        name: the exercise, such as ``"pair_counts"``; :func:`progress` lists them.
        attempt: the function, the class, or for a numeric exercise the number: ``124_439_808``, ``"38.6M"``
            or ``"1.854 GiB"``.
        seed: for the random cases; the same in every session unless given.

    Returns:
        The report. It never raises because of a wrong answer.

    Raises:
        ValueError: there is no such exercise.
    """
    report = examine(find(name), attempt, seed)
    try:
        records.note(report, attempt)
    except (OSError, ValueError) as error:  # the verdict stands, whatever happens to the file
        return replace(report, remark=f"this attempt is not noted in your progress: {error}")
    return report


def assert_check(name: str, attempt: Any, seed: int | None = None) -> None:
    """Like :func:`check`, for test suites: an AssertionError with the report unless the attempt passes."""
    report = examine(find(name), attempt, seed)
    if report.status != "passed":
        raise AssertionError(str(report))


def hint(name: str, level: int | None = None) -> Text:
    """The next hint for an exercise: first the concept, in the end a skeleton.

    Args:
        name: the exercise.
        level: 1 and up, to see that hint again; it then does not count as the next one.

    Raises:
        ValueError: there is no such exercise or level.
    """
    exercise = find(name)
    if level is None:
        level = min(records.of(name)["hints"] + 1, len(exercise.hints))
        records.update(name, lambda record: record.update(hints=level))
    if not 1 <= level <= len(exercise.hints):
        raise ValueError(f"level={level}: {name} has hints 1 to {len(exercise.hints)}")
    return Text(f"Hint {level} of {len(exercise.hints)} for {name}\n\n{exercise.hints[level - 1].strip()}")


def solution(name: str, reveal: bool = False) -> Text:
    """A solution, after a pass or three different attempts; ``reveal=True`` opens it at once."""
    exercise, record = find(name), records.of(name)
    left = ATTEMPTS_BEFORE_SOLUTION - len(record["attempts"])
    if not reveal and record["status"] != "passed" and left > 0:
        return Text(
            f"The solution of {name} opens when the check passes, or after {left} more "
            f"{'attempt' if left == 1 else 'attempts'}. gptlab.hint({name!r}) helps; "
            f"gptlab.solution({name!r}, reveal=True) opens it now."
        )
    return Text(exercise.solution.strip(), is_code=True)


def progress() -> Text:
    """Every exercise and where the learner stands."""
    known = records.load()
    lines = []
    for exercise in everything():
        record = known.get(exercise.name, {})
        sign = {"passed": "✓", "incorrect": "✗", "error": "!"}.get(record.get("status", ""), "○")
        about = f"chapter {exercise.chapter}, {exercise.difficulty}, {exercise.minutes} minutes"
        tried = f", attempts: {len(record['attempts'])}" if record.get("attempts") else ""
        lines.append(f"{sign} {exercise.name:22} {about}{tried}")
    return Text("\n".join(lines))


def export_progress(path: str | PathLike[str]) -> None:
    """Write the progress to a JSON file, to hand in or to keep."""
    Path(path).write_text(
        json.dumps({"version": records.VERSION, "exercises": records.load()}, indent=1), "utf-8"
    )


def reset_progress(name: str | None = None) -> None:
    """Forget one exercise's record, or with no name all of them."""
    if name is not None:
        find(name)
    records.forget(name)
