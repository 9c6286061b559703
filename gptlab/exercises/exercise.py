"""What an exercise is: one declaration that holds everything there is to know about it."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

from gptlab.exercises import catalogue
from gptlab.exercises.quantity import Quantity

NOTHING_WRONG: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Mistake:
    """A well-known wrong answer: a switch of the exercise's reference, and what to tell who made it."""

    id: str
    message: str
    """What was done, as a fact, and where to look."""


@dataclass(frozen=True)
class Diagnosis:
    """The mistake that an attempt makes, and one fact that shows it."""

    id: str
    message: str
    evidence: str = ""
    also_possible: tuple[str, ...] = ()
    """Other mistakes that give the very same answers."""


class Misbuilt(Exception):
    """An attempt that is recognised before it is run, by how it is built."""

    def __init__(self, id: str, message: str, evidence: str = "") -> None:
        super().__init__(message)
        self.diagnosis = Diagnosis(id, message, evidence)


Probe = Callable[[Callable[..., Any], tuple[Any, ...]], Diagnosis | None]
"""Looks at one property of an attempt whose values are right: given it and the arguments of a case."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What every exercise has."""

    name: str
    chapter: int
    task: str
    difficulty: Literal["easy", "medium", "hard"]
    minutes: int
    hints: tuple[str, ...]
    """From the concept, over where to look, to formula and skeleton."""
    solution: str
    """Python source that defines ``name``, or computes the answer."""


@dataclass(frozen=True, kw_only=True)
class Exercise(Question):
    """A function, or a class, to be written."""

    reference: Callable[..., Any]
    """The right answer; called with ``on={"id"}``, the answer with that mistake in it."""
    mistakes: tuple[Mistake, ...]
    cases: Callable[[random.Random], list[tuple[Any, ...]]]
    """Arguments to try: fixed edge cases first, then random ones drawn from the generator."""
    also_correct: tuple[str, ...]
    """Sources of differently written right answers, which have to pass."""
    probes: tuple[Probe, ...] = ()
    adapt: Callable[[Any], Callable[..., Any]] | None = None
    """Turns what the learner gives, such as a class, into a function of the cases' arguments."""


@dataclass(frozen=True)
class WrongNumber:
    """A well-known wrong answer to a numeric exercise."""

    value: Quantity
    message: str


@dataclass(frozen=True, kw_only=True)
class NumericExercise(Question):
    """A number, with a unit or without, to be found."""

    answer: Quantity
    wrong: tuple[WrongNumber, ...]


def find(name: str) -> Exercise | NumericExercise:
    """The exercise called ``name``.

    Raises:
        ValueError: there is none; the message names the closest.
    """
    names = _module_names()
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if isinstance(name, str) else ""
    if module in names:
        exercise = _load(module)
        if exercise.name == name:
            return exercise
    known = [exercise.name for exercise in everything()]
    close = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    raise ValueError(f"there is no exercise {name!r}; {hint}")


@cache
def everything() -> tuple[Exercise | NumericExercise, ...]:
    """All exercises, in the order of the chapters."""
    return tuple(sorted(map(_load, _module_names()), key=lambda exercise: (exercise.chapter, exercise.name)))


@cache
def _module_names() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(catalogue.__path__))


def _load(module: str) -> Exercise | NumericExercise:
    return importlib.import_module(f"{catalogue.__name__}.{module}").EXERCISE
