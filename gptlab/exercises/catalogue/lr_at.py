"""Chapter 10: how large a step may be, at each step."""

from __future__ import annotations

import math
import random

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake


def reference(
    step: int, steps: int, warmup: int, max_lr: float, min_lr: float, on: frozenset[str] = NOTHING_WRONG
) -> float:
    if "one-step-late" in on:
        step -= 1
    if "cosine-alone" in on:
        warmup = 0
    if step < warmup:
        if "flat-warmup" in on:
            return max_lr
        if "starts-at-0" in on:
            return max_lr * step / warmup
        share = (step + 1) / (warmup if "too-early" in on else warmup + 1)
        return min_lr + (max_lr - min_lr) * share if "from-minimum" in on else max_lr * share
    first = 0 if "cosine-from-0" in on else warmup
    length = steps - first - ("ends-late" not in on)
    done = (step - first) / (length if "divides-by-0" in on else max(1, length))
    if "restarts" in on:
        done %= 1.0
    elif "rises-again" not in on:
        done = min(done, 1.0)
    turn = 2 * math.pi if "full-turn" in on else math.pi
    share = 1 - done if "linear" in on else (1 + math.cos(turn * done)) / (1 if "not-halved" in on else 2)
    if "end-first" in on and step == steps - 1:
        return min_lr
    if "to-0" in on:
        return max_lr * share
    return min_lr + (max_lr if "added" in on else max_lr - min_lr) * share


def cases(rng: random.Random) -> list[tuple[int, int, int, float, float]]:
    fixed = [(step, 20, 4, 2e-3, 2e-4) for step in (0, 1, 3, 4, 5, 9, 14, 18, 19, 25)]
    steps, warmup = rng.randrange(30, 60), rng.randrange(5, 15)
    drawn = [(rng.randrange(warmup + 1, steps - 1), steps, warmup, 1e-3, 3e-5) for _ in range(3)]
    return [
        *fixed,
        (0, 600_000, 2000, 6e-4, 6e-5),
        (2000, 600_000, 2000, 6e-4, 6e-5),
        (0, 10, 0, 1e-3, 1e-4),
        (6, 10, 0, 1e-3, 1e-4),
        (4, 5, 4, 1e-3, 1e-4),
        *drawn,
    ]


EXERCISE = Exercise(
    name="lr_at",
    chapter=10,
    task="lr_at(step, steps, warmup, max_lr, min_lr) returns the learning rate of a step. Steps are counted from 0. In "
    "the warmup first ones it rises in equal parts, from max_lr / (warmup + 1) at step 0 to max_lr at step warmup. From "
    "there it falls along half a cosine to min_lr at the last step, steps - 1, and stays there for any later one. "
    "warmup may be 0; where step warmup is the last one, it has max_lr.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "flat-warmup",
            "there is no warm-up: the first steps have max_lr, when AdamW's running means know hardly any gradient "
            "yet. At step s < warmup it is max_lr · (s + 1) / (warmup + 1).",
        ),
        Mistake(
            "cosine-alone",
            "there is no warm-up: the cosine starts with step 0. It starts at step warmup, and before that the rate "
            "rises.",
        ),
        Mistake(
            "cosine-from-0",
            "the cosine is counted from step 0, so that after the warm-up it does not begin at max_lr. Count from the "
            "end of the warm-up: step - warmup.",
        ),
        Mistake(
            "end-first",
            "where step warmup is the last one, the rate is min_lr. It is max_lr there: look at the order of the "
            "conditions.",
        ),
        Mistake(
            "starts-at-0",
            "step 0 has a learning rate of 0, and is wasted. It is the first of warmup + 1 equal parts: "
            "(step + 1) / (warmup + 1).",
        ),
        Mistake(
            "too-early",
            "the warm-up reaches max_lr one step too early, at step warmup - 1. There are warmup + 1 equal parts: "
            "(step + 1) / (warmup + 1).",
        ),
        Mistake(
            "from-minimum",
            "the warm-up rises from min_lr. It rises from nothing: max_lr · (step + 1) / (warmup + 1).",
        ),
        Mistake(
            "one-step-late",
            "every step has the rate of the one before it. Steps are counted from 0: step 0 has max_lr / (warmup + 1).",
        ),
        Mistake(
            "ends-late",
            "the last step does not reach min_lr: the cosine is divided by steps - warmup. From step warmup to step "
            "steps - 1 there are steps - 1 - warmup to go.",
        ),
        Mistake("linear", "the rate falls along a straight line. Half a cosine: (1 + cos(π · done)) / 2."),
        Mistake(
            "full-turn",
            "the cosine makes a full turn: in the middle the rate is at its smallest, at the end at its largest "
            "again. Half a turn goes from 1 to -1: cos(π · done).",
        ),
        Mistake(
            "restarts",
            "the cosine begins anew when it has come to its end: the last step has max_lr again. It stays at min_lr: "
            "let done be 1 at most, without a remainder.",
        ),
        Mistake(
            "rises-again",
            "behind the last step the rate rises again, with the cosine. It stays at min_lr: let done be 1 at most.",
        ),
        Mistake(
            "not-halved",
            "the cosine is not halved: 1 + cos goes from 2 to 0, and the rate begins at twice what it should fall by. "
            "Take (1 + cos(π · done)) / 2.",
        ),
        Mistake("to-0", "the rate falls to 0. It falls to min_lr."),
        Mistake(
            "added",
            "min_lr is added on top, so that the rate begins at max_lr + min_lr. What falls is the difference: "
            "min_lr + (max_lr - min_lr) · share.",
        ),
        Mistake(
            "divides-by-0",
            "where step warmup is the last one, there is nothing to fall through, and 0 / 0 raises an error. Divide "
            "by max(1, ...).",
        ),
    ),
    cases=cases,
    hints=(
        "Two pieces: a straight line up, half a cosine down. Which one does a step belong to?",
        "For the way down: how far along is the step, from 0 at step warmup to 1 at step steps - 1? The cosine of π "
        "times that goes from 1 to -1.",
        "step < warmup: max_lr · (step + 1) / (warmup + 1). Else done = (step - warmup) / max(1, steps - 1 - warmup), 1 "
        "at most, and min_lr + (max_lr - min_lr) · (1 + cos(π · done)) / 2.",
        "def lr_at(step, steps, warmup, max_lr, min_lr):\n    if step < warmup:\n        return ...\n"
        "    done = ...\n    return min_lr + (max_lr - min_lr) * ...",
    ),
    solution="""
import math

def lr_at(step, steps, warmup, max_lr, min_lr):
    if step < warmup:
        return max_lr * (step + 1) / (warmup + 1)
    done = min(1, (step - warmup) / max(1, steps - 1 - warmup))
    return min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * done)) / 2
""",
    also_correct=(
        "from gptlab.training import TrainingSettings, learning_rate\n"
        "def lr_at(step, steps, warmup, max_lr, min_lr):\n"
        "    settings = TrainingSettings(\n"
        "        steps=steps, warmup=warmup, learning_rate=max_lr, final_share=min_lr / max_lr\n"
        "    )\n"
        "    return learning_rate(step, settings)\n",
        "import numpy as np\n"
        "def lr_at(step, steps, warmup, max_lr, min_lr):\n"
        "    fall = max(steps - warmup, 2)\n"
        "    up = np.linspace(0, max_lr, warmup + 2)[1:-1]\n"
        "    down = min_lr + (max_lr - min_lr) * np.cos(np.linspace(0, np.pi / 2, fall)) ** 2\n"
        "    return np.concatenate([up, down])[min(step, warmup + fall - 1)]\n",
        "import torch\n"
        "def lr_at(step, steps, warmup, max_lr, min_lr):\n"
        "    rise = max_lr * (step + 1) / (warmup + 1)\n"
        "    if rise <= max_lr:\n"
        "        return rise\n"
        "    if step >= steps - 1:\n"
        "        return min_lr\n"
        "    angle = torch.tensor(torch.pi * (step - warmup) / (steps - 1 - warmup), dtype=torch.float64)\n"
        "    return (max_lr + min_lr) / 2 + (max_lr - min_lr) / 2 * torch.cos(angle)\n",
    ),
)
