"""Chapter 3: find out from outside whether a function looks ahead."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor

B, T, C = 1, 8, 4
"""The size of the input that the task names."""


@dataclass(frozen=True)
class Mixer:
    """A function of (B, T, C) whose output at each position is a weighted sum of the inputs at some positions."""

    leaks: tuple[tuple[int, int], ...] = ()
    """Pairs (i, j): output i reads the later input j."""
    amount: float = 1.0
    """How strongly it does."""
    past: bool = True
    own: bool = True

    def __call__(self, x: Tensor) -> Tensor:
        return _weights(self, x.shape[1]).to(x.dtype) @ x

    def __repr__(self) -> str:
        if not self.leaks:
            return "f that reads no later input"
        if len(self.leaks) > 1:
            return f"f that reads all later inputs × {self.amount:g}"
        return f"f with output {self.leaks[0][0]} + {self.amount:g} · input {self.leaks[0][1]}"


@cache
def _weights(f: Mixer, n: int) -> Tensor:
    import torch

    def weight(i: int, j: int) -> float:
        if j > i:
            return f.amount * ((i, j) in f.leaks)
        return 1 / (1 + i + j) * (f.own if i == j else f.past)

    return torch.tensor([[weight(i, j) for j in range(n)] for i in range(n)])


def reference(f: Callable[[Tensor], Tensor], on: frozenset[str] = NOTHING_WRONG) -> bool:
    import torch

    x = torch.randn(B, T, C, generator=torch.Generator().manual_seed(0))
    before = f(x)
    tolerance = 1e-3 if "loose" in on else 1e-6
    unchanged = True
    for t in (T - 1,) if "last-input" in on else (1,) if "first-output" in on else range(1, T):
        changed = x.clone()
        if "always" not in on:
            changed[:, t:] += 1
        compared = slice(t, None) if "later" in on else slice(t + 1 if "counts-itself" in on else t)
        difference = (f(changed) - before)[:, compared].abs()
        unchanged = unchanged and bool(difference.max() < tolerance)
    return not unchanged if "inverted" in on else unchanged


def cases(rng: random.Random) -> list[tuple[Mixer]]:
    later = tuple((i, j) for i in range(T) for j in range(i + 1, T))
    causal = [Mixer(), Mixer(own=False), Mixer(past=False)]
    leaky = [
        Mixer(later),
        Mixer(later, 1e-4),
        Mixer(later, past=False, own=False),
        Mixer(((0, T - 1),)),
        Mixer(((0, T - 1),), 1e-4),
        Mixer(((0, 1),)),
        Mixer(((3, T - 1),)),
        Mixer(((3, 5),)),
        Mixer(((T - 2, T - 1),)),
    ]
    drawn = [Mixer((rng.choice(later),), rng.choice((1.0, 1e-4))) for _ in range(4)]
    return [(f,) for f in causal + leaky + drawn]


EXERCISE = Exercise(
    name="is_causal",
    chapter=3,
    task="is_causal(f) returns True if no output of f depends on an input at a later position, and False otherwise. "
    "f turns a float tensor of shape (B, T, C) into one of the same shape. Probe it from outside, with inputs of "
    "shape (1, 8, 4). Some of the functions look ahead at one position only, or by as little as 1e-4.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "last-input",
            "only the last input is changed. A function may look ahead elsewhere, from position 3 to 5 say. Change "
            "the inputs from t on, for every t, and compare the outputs before t.",
        ),
        Mistake(
            "first-output",
            "only the first output is compared. A function may look ahead at another position. Change the inputs from "
            "t on, for every t, and compare the outputs before t.",
        ),
        Mistake(
            "loose",
            "the tolerance is too loose: a leak of 1e-4 goes unnoticed. Outputs that depend on nothing later agree to "
            "the last bit or nearly so; 1e-6 is enough.",
        ),
        Mistake(
            "counts-itself",
            "the output at the changed position is compared as well. It may depend on its own input. Compare the "
            "outputs before it: [:, :t], not [:, : t + 1].",
        ),
        Mistake(
            "later",
            "the outputs after the changed input are compared. Those may change; the ones before it may not.",
        ),
        Mistake("inverted", "the answer is turned round: True should mean that f is causal."),
        Mistake(
            "always",
            "every function is called causal. Is the changed input another tensor than the first, or the same one "
            "under two names? Change a clone().",
        ),
    ),
    cases=cases,
    hints=(
        "If you change the future, the past must not move.",
        "Run f twice, with inputs that differ from position t on. Which outputs have to be equal? And is one t "
        "enough?",
        "For t = 1 … T - 1: changed = x.clone(); changed[:, t:] += 1; compare f(changed)[:, :t] with f(x)[:, :t], to "
        "about 1e-6.",
        "def is_causal(f):\n    x = torch.randn(1, 8, 4)\n    before = f(x)\n    for t in range(1, 8):\n"
        "        changed = x.clone()\n        ...\n    return True",
    ),
    solution="""
import torch

def is_causal(f):
    x = torch.randn(1, 8, 4)
    before = f(x)
    for t in range(1, 8):
        changed = x.clone()
        changed[:, t:] += 1
        if (f(changed) - before)[:, :t].abs().max() > 1e-6:
            return False
    return True
""",
    also_correct=(
        "import torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(1, 8, 4, requires_grad=True)\n"
        "    for t in range(8):\n"
        "        (grad,) = torch.autograd.grad(f(x)[0, t].sum(), x, allow_unused=True)\n"
        "        if grad is not None and grad[0, t + 1 :].abs().sum() > 0:\n"
        "            return False\n"
        "    return True\n",
        "import torch\n"
        "def is_causal(f):\n"
        "    x = torch.ones(1, 8, 4)\n"
        "    ok = []\n"
        "    for t in range(8):\n"
        "        y = x.clone()\n"
        "        y[0, t] = 100.0\n"
        "        ok.append(torch.allclose(f(x)[0, :t], f(y)[0, :t]))\n"
        "    return all(ok)\n",
        "import torch\n"
        "def is_causal(f):\n"
        "    J = torch.autograd.functional.jacobian(lambda x: f(x)[0].sum(-1), torch.randn(1, 8, 4))\n"
        "    reads = J[:, 0].abs().sum(-1)  # (T, T): output i, input j\n"
        "    return (reads.triu(1) == 0).all()\n",
        "import numpy as np, torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(1, 8, 4).double()\n"
        "    return np.all([torch.equal(f(x)[:, :t], f(x * (torch.arange(8) < t)[:, None])[:, :t]) for t in range(8)])\n",
    ),
)
