"""Exercises whose checker recognises well-known wrong answers and names the mistake.

``gptlab.check("pair_counts", pair_counts)`` tries a function on fixed and random cases. If an answer is wrong, it
is compared with the same reference implementation with one thing wrong, for each mistake in the catalogue, and a
mistake is named only if it gives exactly the learner's answers in every case.

Adding an exercise touches one file: a module in ``gptlab/exercises/catalogue``.
"""

from gptlab.exercises.api import (
    assert_check,
    check,
    export_progress,
    hint,
    progress,
    reset_progress,
    solution,
)

__all__ = ["assert_check", "check", "export_progress", "hint", "progress", "reset_progress", "solution"]
