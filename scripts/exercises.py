"""The totals of the exercise checker: python scripts/exercises.py

Every mistake of the catalogue, and every differently written right answer, is checked as a learner would check it.
A mistake that is not named, or a right answer that is called a mistake, is counted as false.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gptlab.exercises.engine import examine
from gptlab.exercises.exercise import Exercise, NumericExercise, everything
from gptlab.exercises.report import Report


def attempts(exercise: Exercise | NumericExercise) -> list[tuple[Any, str | None]]:
    """What learners may hand in, each with the id of the mistake in it, or None for a right answer."""
    if isinstance(exercise, NumericExercise):
        wrong = [(str(wrong.value.value), "number") for wrong in exercise.wrong]
        return [(str(exercise.answer.value), None), *wrong]
    right: list[tuple[Any, str | None]] = [
        (define(source, exercise.name), None) for source in (exercise.solution, *exercise.also_correct)
    ]
    return [*right, *((with_mistake(exercise, mistake.id), mistake.id) for mistake in exercise.mistakes)]


def define(source: str, name: str) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)
    return names[name]


def with_mistake(exercise: Exercise, mistake: str) -> Callable[..., Any]:
    return lambda *case: exercise.reference(*case, on=frozenset({mistake}))


def without_adapt(exercise: Exercise | NumericExercise) -> Exercise | NumericExercise:
    """The exercise as one on functions: a mistake is a switch of the reference, and that is never a class."""
    return replace(exercise, adapt=None) if isinstance(exercise, Exercise) else exercise


def main() -> int:
    seconds, false = [], 0
    for exercise in everything():
        for attempt, mistake in attempts(exercise):
            start = time.perf_counter()
            report = examine(without_adapt(exercise) if mistake else exercise, attempt)
            seconds.append(time.perf_counter() - start)
            false += not is_true(report, mistake)
    mistakes = sum(len(e.wrong if isinstance(e, NumericExercise) else e.mistakes) for e in everything())
    print(f"exercises: {len(everything())}, recognised mistakes: {mistakes}, false claims: {false}")
    print(
        f"{len(seconds)} checks: median {statistics.median(seconds):.3f} s, slowest {max(seconds):.3f} s "
        f"(the first one loads PyTorch)"
    )
    return int(false > 0)


def is_true(report: Report, mistake: str | None) -> bool:
    if mistake is None:
        return report.status == "passed"
    return report.diagnosis is not None and report.diagnosis.id == mistake


if __name__ == "__main__":
    sys.exit(main())
