"""Exercises that return several tensors: give each a name, so that a report can say which is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gptlab.exercises import compare
from gptlab.exercises.exercise import Misbuilt

NUMBERS = {2: "two", 3: "three"}


def named(*names: str) -> Callable[[Any], Callable[..., dict[str, Any]]]:
    """For :attr:`gptlab.exercises.exercise.Exercise.adapt`: a function of these outputs becomes one of a dict."""

    def adapt(attempt: Any) -> Callable[..., dict[str, Any]]:
        def function(*case: Any) -> dict[str, Any]:
            result = attempt(*case)
            if not isinstance(result, tuple | list) or len(result) != len(names):
                many = NUMBERS[len(names)]
                raise Misbuilt(
                    f"not-{many}",
                    f"it returns {compare.a_kind(result)}. {many.capitalize()} tensors are asked for: return "
                    f"{', '.join(names)}.",
                )
            return dict(zip(names, result, strict=True))

        return function

    return adapt
