"""Chapter 1: replace a pair by one new id."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

Pair = tuple[int, int]


def reference(ids: Sequence[int], pair: Pair, new: int, on: frozenset[str] = NOTHING_WRONG) -> list[int]:
    if "right-to-left" in on:
        backwards = reference(ids[::-1], (pair[1], pair[0]), new, on - {"right-to-left"})
        return backwards[::-1]
    merged: list[int] = []
    i, done = 0, False
    end = len(ids) - 1 if "loses-last" in on else len(ids)
    while i < end:
        if tuple(ids[i : i + 2]) == pair and not done:
            merged.append(new)
            i += 1 if "steps-one" in on else 2
            done = "once" in on
        else:
            merged.append(ids[i])
            i += 1
    return merged


def cases(rng: random.Random) -> list[tuple[list[int], Pair, int]]:
    fixed: list[tuple[list[int], Pair, int]] = [
        ([], (1, 2), 9),
        ([1], (1, 2), 9),
        ([1, 2], (1, 2), 9),
        ([3, 1, 2, 1, 2, 4], (1, 2), 9),
        ([7, 7, 7, 5], (7, 7), 9),
        (list(b"banana bandana"), (97, 110), 256),
    ]
    return fixed + [
        ([rng.randrange(3) for _ in range(12)], (rng.randrange(3), rng.randrange(3)), 9) for _ in range(6)
    ]


EXERCISE = Exercise(
    name="merge_pair",
    chapter=1,
    task="merge_pair(ids, pair, new) returns a new list in which each occurrence of pair, from left to right, is "
    "replaced by the one id new.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "steps-one",
            "after a merge you step over one element only, so the second half of the pair is copied as well. "
            "Both halves are used up: step by two.",
        ),
        Mistake(
            "right-to-left",
            "the merges are made from the right. In (7, 7, 7) the first two should be joined, not the last two.",
        ),
        Mistake(
            "loses-last",
            "the last element is lost when it is not part of a pair. Look at where the loop ends.",
        ),
        Mistake("once", "only the first occurrence is merged. Go on to the end of the list."),
    ),
    cases=cases,
    hints=(
        "Walk through the list with an index that you move yourself: sometimes by one, sometimes by two.",
        "A for loop cannot step over an element; a while loop can.",
        "Where (ids[i], ids[i + 1]) is the pair: append new, i += 2. Elsewhere: append ids[i], i += 1.",
        "def merge_pair(ids, pair, new):\n    merged, i = [], 0\n    while i < len(ids):\n        ...\n    return merged",
    ),
    solution="""
def merge_pair(ids, pair, new):
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == tuple(pair):
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged
""",
    also_correct=(
        "def merge_pair(ids, pair, new):\n"
        "    merged = []\n"
        "    skip = False\n"
        "    for i, token in enumerate(ids):\n"
        "        if skip:\n"
        "            skip = False\n"
        "        elif i + 1 < len(ids) and token == pair[0] and ids[i + 1] == pair[1]:\n"
        "            merged.append(new)\n"
        "            skip = True\n"
        "        else:\n"
        "            merged.append(token)\n"
        "    return merged\n",
        "def merge_pair(ids, pair, new):\n"
        "    rest, merged = list(ids), []\n"
        "    while rest:\n"
        "        if tuple(rest[:2]) == tuple(pair):\n"
        "            merged, rest = merged + [new], rest[2:]\n"
        "        else:\n"
        "            merged, rest = merged + rest[:1], rest[1:]\n"
        "    return merged\n",
        "def merge_pair(ids, pair, new):\n"
        "    ids = list(ids)\n"
        "    i = 0\n"
        "    while i < len(ids) - 1:\n"
        "        if (ids[i], ids[i + 1]) == pair:\n"
        "            ids[i : i + 2] = [new]\n"
        "        i += 1\n"
        "    return ids\n",
    ),
)
