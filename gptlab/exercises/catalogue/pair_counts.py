"""Chapter 1: count the pairs of neighbours."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

Pair = tuple[int, int]


def reference(ids: Sequence[int], on: frozenset[str] = NOTHING_WRONG) -> dict[Pair, int]:
    counts: dict[Pair, int] = {}
    ends = len(ids) if "wraps" in on and len(ids) > 1 else len(ids) - 1
    i = 0
    while i < ends:
        pair = (ids[i], ids[(i + 1) % len(ids)])
        if "unordered" in on:
            pair = (min(pair), max(pair))
        counts[pair] = 1 if "presence" in on else counts.get(pair, 0) + 1
        i += 2 if "disjoint" in on else 1
    return counts


def cases(rng: random.Random) -> list[tuple[list[int]]]:
    fixed = [[], [5], [1, 2, 1], [4, 4, 4, 4], list(b" bandana")]
    return [(ids,) for ids in fixed] + [([rng.randrange(4) for _ in range(12)],) for _ in range(4)]


EXERCISE = Exercise(
    name="pair_counts",
    chapter=1,
    task="pair_counts(ids) returns a dict: each pair of neighbours in the list ids, the ids of one piece, and how often "
    "it occurs.",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "unordered",
            "(a, b) and (b, a) are counted as one pair. In text the order matters: 'an' is not 'na'. Use the "
            "pair as it stands, not sorted and not as a set.",
        ),
        Mistake(
            "wraps",
            "the last element and the first are counted as neighbours. A list is not a ring: n elements have "
            "n - 1 pairs. Look at index -1 or at a remainder (%).",
        ),
        Mistake(
            "presence",
            "every pair that occurs has the count 1. Add to the count that is there already.",
        ),
        Mistake(
            "disjoint",
            "pairs that overlap are skipped: after (0, 1) comes (2, 3), not (1, 2). Step by one, not by two.",
        ),
    ),
    cases=cases,
    hints=(
        "Every element but the last has a right neighbour. The two are a pair, in this order.",
        "zip(ids, ids[1:]) gives all pairs, overlapping ones included.",
        "n elements have n - 1 pairs; the values of your dict sum to n - 1 (0 for an empty list).",
        "def pair_counts(ids):\n    counts = {}\n    for pair in zip(ids, ids[1:]):\n        ...\n    return counts",
    ),
    solution="""
def pair_counts(ids):
    counts = {}
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts
""",
    also_correct=(
        "from collections import Counter\nfrom itertools import pairwise\n"
        "def pair_counts(ids):\n    return Counter(pairwise(ids))\n",
        "from collections import defaultdict\n"
        "def pair_counts(ids):\n"
        "    counts = defaultdict(int)\n"
        "    for i in range(1, len(ids)):\n"
        "        counts[ids[i - 1], ids[i]] += 1\n"
        "    return counts\n",
        "def pair_counts(ids):\n"
        "    pairs = [(ids[i], ids[i + 1]) for i in range(len(ids) - 1)]\n"
        "    return {pair: pairs.count(pair) for pair in pairs}\n",
    ),
)
