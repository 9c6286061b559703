"""Chapter 9: what is left on each of several machines."""

from __future__ import annotations

import random
from typing import Any

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

Split = tuple[int, int, int]


def reference(
    n_params: int,
    world_size: int,
    stage: int,
    split: Split = (4, 4, 8),
    on: frozenset[str] = NOTHING_WRONG,
) -> int | float:
    if "fixed-split" in on:
        split = (4, 4, 8)
    stage += ("one-stage-more" in on) - ("one-stage-less" in on)
    order = [2, 1, 0]  # the stages take the optimizer first, then the gradients, then the weights
    if "weights-first" in on:
        order = [0, 1, 2]
    if "gradients-first" in on:
        order = [1, 2, 0]
    sharded = set(order[: max(0, stage)])
    if "one-at-a-time" in on:
        sharded = set(order[max(0, stage - 1) : max(0, stage)])
    if "always-all" in on:
        sharded = {0, 1, 2}
    ranks = 1 if "all-ranks" in on else world_size
    copies = world_size if "all-ranks" in on else 1
    size = sum(n * n_params // ranks if i in sharded else n * n_params * copies for i, n in enumerate(split))
    return size / n_params if "one-parameter" in on else size


def cases(rng: random.Random) -> list[tuple[Any, ...]]:
    P = 124_439_808
    drawn = rng.randrange(3, 9)
    return [
        *((P, 8, stage) for stage in range(4)),
        *((P, 8, stage, (2, 2, 12)) for stage in (1, 2, 3)),
        (1000, 1, 2),
        (drawn * rng.randrange(100, 999), drawn, 1, (2, 4, 6)),
        (drawn * rng.randrange(100, 999), drawn, 2, (2, 4, 6)),
    ]


EXERCISE = Exercise(
    name="zero_bytes",
    chapter=9,
    task="zero_bytes(n_params, world_size, stage, split=(4, 4, 8)) returns the bytes of training state on each of "
    "world_size ranks. split holds the bytes of a parameter in weights, gradients and optimizer. Stage 0 keeps all "
    "three whole on every rank; stage 1 of ZeRO divides the optimizer's among the ranks, stage 2 the gradients as "
    "well, stage 3 the weights, too. n_params is divisible by world_size.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "weights-first",
            "the stages begin with the weights. They begin with what is largest and needed least: the optimizer's "
            "state, the last number of split; then the gradients; then the weights.",
        ),
        Mistake(
            "gradients-first",
            "stages 1 and 2 are exchanged: the gradients are divided before the optimizer's state. Stage 1 divides "
            "the optimizer's.",
        ),
        Mistake(
            "one-at-a-time",
            "each stage divides one thing alone. A stage divides what those before it do, and one thing more.",
        ),
        Mistake(
            "one-stage-more",
            "each stage does what the next one should: stage 0 divides the optimizer's state already. Stage 0 divides "
            "nothing. Look at the comparisons, >= or >.",
        ),
        Mistake(
            "one-stage-less",
            "each stage does what the one before it should: stage 1 divides nothing yet. It divides the optimizer's "
            "state. Look at the comparisons, >= or >.",
        ),
        Mistake(
            "always-all",
            "everything is divided at every stage. That is stage 3; before, the weights at least stay whole.",
        ),
        Mistake(
            "all-ranks",
            "this is the sum over all ranks. What one rank holds is asked for: a share of what is divided, and the "
            "whole of what is not.",
        ),
        Mistake("fixed-split", "the split is always 4 + 4 + 8. Take the argument split."),
        Mistake("one-parameter", "these are the bytes for one parameter. Multiply by n_params."),
    ),
    cases=cases,
    hints=(
        "Every rank holds three things. What a stage divides is there once in all; what it does not is there on every "
        "rank.",
        "Divide what is largest and used least often first. From which stage on is each of the three divided?",
        "n_params · (w + g + o / N) at stage 1, n_params · (w + (g + o) / N) at stage 2, n_params · (w + g + o) / N at "
        "stage 3, with N = world_size and w, g, o = split.",
        "def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):\n    weights, gradients, optimizer = split\n"
        "    if stage >= 1:\n        optimizer = ...\n    ...\n    return ...",
    ),
    solution="""
def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):
    weights, gradients, optimizer = (n_params * size for size in split)
    if stage >= 1:
        optimizer //= world_size
    if stage >= 2:
        gradients //= world_size
    if stage >= 3:
        weights //= world_size
    return weights + gradients + optimizer
""",
    also_correct=(
        "def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):\n"
        "    from_stage = (3, 2, 1)\n"
        "    return sum(\n"
        "        size * n_params / (world_size if stage >= first else 1) for size, first in zip(split, from_stage)\n"
        "    )\n",
        "def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):\n"
        "    share = n_params // world_size\n"
        "    whole, divided = sum(split[: 3 - stage]), sum(split[3 - stage :])\n"
        "    return whole * n_params + divided * share\n",
        "import numpy as np\n"
        "def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):\n"
        "    ranks = np.where(np.array([3, 2, 1]) <= stage, world_size, 1)\n"
        "    return (np.array(split) * (n_params // ranks)).sum()\n",
    ),
)
