"""Chapter 3: find out from outside whether a function looks ahead."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor

B, T, C = 2, 8, 4
"""The size of the input that the task names."""

LITTLE = 1e-4
"""The weakest leak that the task allows."""


@dataclass(frozen=True)
class Mixer:
    """A function of (B, T, C): at each position the mean of the inputs up to there, and perhaps something more."""

    leak: tuple[int, int] | None = None
    """(i, j): output i has some of input j as well. With i ≥ j it is no leak."""
    amount: float = 1.0
    """How much of it."""
    times: int | None = None
    """The position whose input multiplies it, feature by feature."""
    feature: int | None = None
    """The one feature that is read and changed. None: all."""
    row: int | None = None
    """The one row of the batch in which it happens. None: all."""
    norm: Literal["", "before", "after"] = ""
    """Where LayerNorm stands: before all, so that only normalised inputs are read, or after all."""
    past: bool = True
    own: bool = True

    def __call__(self, x: Tensor) -> Tensor:
        read = _layer_norm(x) if self.norm == "before" else x
        output = _means(x.shape[1], self.past, self.own).to(x.dtype) @ read
        if self.leak:
            i, j = self.leak
            some = self.amount * read[:, j] * (1 if self.times is None else read[:, self.times])
            rows, features = _chosen(self.row), _chosen(self.feature)
            output[rows, i, features] += some[rows, features]
        return _layer_norm(output) if self.norm == "after" else output

    def __repr__(self) -> str:
        if not self.leak:
            return "f that reads no later input"
        i, j = self.leak
        parts = [f"f with output {i} + {self.amount:g} · input {j}"]
        parts += [f"· input {self.times}"] if self.times is not None else []
        parts += [f"in column {self.feature}"] if self.feature is not None else []
        parts += [f"in text {self.row}"] if self.row is not None else []
        return " ".join(parts) + (f", LayerNorm {self.norm}" if self.norm else "")


@dataclass(frozen=True)
class Attention:
    """x + attention of LayerNorm(x), with one head whose queries, keys and values are LayerNorm(x) itself."""

    diagonal: int | None
    """The first diagonal that is masked: 1 is right, None masks nothing."""

    def __call__(self, x: Tensor) -> Tensor:
        import torch

        q = _layer_norm(x)
        scores = q @ q.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.diagonal is not None:
            masked = torch.ones_like(scores, dtype=torch.bool).triu(self.diagonal)
            scores = scores.masked_fill(masked, float("-inf"))
        return x + scores.softmax(dim=-1) @ q

    def __repr__(self) -> str:
        mask = "no mask" if self.diagonal is None else f"triu({self.diagonal}) masked"
        return f"f = x + attention(LayerNorm(x)), {mask}"


def _layer_norm(x: Tensor) -> Tensor:
    from torch.nn import functional as F

    return F.layer_norm(x, x.shape[-1:])


def _chosen(index: int | None) -> slice:
    return slice(None) if index is None else slice(index, index + 1)


@cache
def _means(n: int, past: bool, own: bool) -> Tensor:
    """(n, n): multiplied with it, each row becomes the mean of the rows up to it."""
    import torch

    means = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]
    return means.tril(-1) * past + means.diag().diag() * own


@cache
def _inputs() -> tuple[Tensor, ...]:
    """The input, and what replaces it for each t."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(B, T, C, generator=generator) for _ in range(T))


def reference(f: Callable[[Tensor], Tensor], on: frozenset[str] = NOTHING_WRONG) -> bool:
    x, *others = _inputs()
    if "zeros" in on:
        x = 0 * x
    before = f(x)
    # What is right is exact: inputs of one shape are computed in the same steps, and what is masked adds 0.
    tolerance = 1e-3 if "loose" in on else 1e-6 if on & {"constant", "summed"} else 0.0
    causal = True
    for t in (T - 1,) if "last-input" in on else (1,) if "first-output" in on else range(1, T):
        new = others[t - 1]
        if "signed" in on:
            new = x + new.abs()
        if on & {"constant", "constant-exactly"}:
            new = x + 1
        if "always" in on:
            new = x
        changed = x.clone()
        last, features = (t + 1 if "neighbour" in on else T), (1 if "one-feature" in on else C)
        changed[:, t:last, :features] = new[:, t:last, :features]
        first, end = (t - 1 if "neighbour" in on else 0), (t + 1 if "counts-itself" in on else t)
        compared = slice(t, None) if "later" in on else slice(first, end)
        difference = (f(changed) - before)[: 1 if "first-row" in on else B, compared]
        if "summed" in on:
            difference = difference.sum(dim=-1)
        if "signed" not in on:
            difference = difference.abs()
        if difference.max() > tolerance:
            causal = False
            break
    return not causal if "inverted" in on else causal


def cases(rng: random.Random) -> list[tuple[Mixer | Attention]]:
    causal: list[Mixer | Attention] = [
        Mixer(),
        Mixer(own=False),
        Mixer(past=False),
        Mixer(norm="before"),
        Mixer(norm="after"),
        Mixer((5, 3), times=2),
        Attention(1),
    ]
    leaky: list[Mixer | Attention] = [
        Mixer((0, T - 1)),
        Mixer((0, T - 1), LITTLE),
        Mixer((0, 1)),
        Mixer((3, T - 1)),
        Mixer((3, 5), -1.0),
        Mixer((T - 2, T - 1)),
        Mixer((2, 4), past=False, own=False),
        *(Mixer((2, 3), feature=feature) for feature in range(C)),
        *(Mixer((4, 5), row=row) for row in range(B)),
        Mixer((3, 6), times=3),
        Mixer((1, 4), times=6),
        Mixer((5, 6), LITTLE, norm="before"),
        Mixer((2, 4), LITTLE, feature=0, norm="before"),
        Mixer((0, 1), norm="after"),
        Mixer((1, 3), feature=0, norm="after"),
        Attention(2),
        Attention(None),
    ]
    return [(f,) for f in (*causal, *leaky, *(_drawn(rng) for _ in range(6)))]


def _drawn(rng: random.Random) -> Mixer:
    """A function with one leak, of one kind."""
    leak = rng.choice([(i, j) for i in range(T) for j in range(i + 1, T)])
    return rng.choice(
        [
            Mixer(leak),
            Mixer(leak, LITTLE),
            Mixer(leak, -1.0),
            Mixer(leak, LITTLE, norm="before"),
            Mixer(leak, norm="after"),
            Mixer(leak, times=rng.choice([p for p in range(T) if p != leak[1]])),
            Mixer(leak, feature=rng.randrange(C)),
            Mixer(leak, row=rng.randrange(B)),
        ]
    )


_CONSTANT = (
    "the same number is added to, or written into, every column. A LayerNorm inside f takes the mean of a row "
    "away, and with it such a change, so a leak behind it stays unseen. Put random vectors in place of the inputs."
)

EXERCISE = Exercise(
    name="is_causal",
    chapter=3,
    task="is_causal(f) returns True if no output of f depends on an input at a later position, and False otherwise. "
    "f turns a float tensor of shape (B, T, C) into one of the same shape. Probe it from outside, with inputs of "
    "shape (2, 8, 4). Some of the functions look ahead at one position only, in one column or one text of the batch, "
    "behind a LayerNorm, or by as little as 1e-4.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake("constant", _CONSTANT),
        # Compared exactly: the rounding of x + 1 betrays a large leak behind a LayerNorm, but not a small one.
        Mistake("constant-exactly", _CONSTANT),
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
            "neighbour",
            "each output is tried with the next input only. A function may look further ahead. Change the inputs from "
            "t on, and compare all outputs before t.",
        ),
        Mistake(
            "one-feature",
            "only the first column is changed or compared. A function may read another one. Change and compare them "
            "all.",
        ),
        Mistake(
            "first-row",
            "only the first text of the batch is changed or compared. A function may look ahead in another one.",
        ),
        Mistake(
            "zeros",
            "the first input is all zeros. A function that multiplies a later input by another one gives 0 whatever "
            "the later one is. Start from random numbers.",
        ),
        Mistake(
            "summed",
            "the differences are added up before they are compared. Positive and negative ones cancel, always so where "
            "the output comes from a LayerNorm. Take abs() first, or compare with torch.equal.",
        ),
        Mistake(
            "signed",
            "only outputs that grow are found. A leak with a negative weight makes the output smaller: take abs() of "
            "the difference.",
        ),
        Mistake(
            "loose",
            "the tolerance is too loose: a leak of 1e-4 goes unnoticed. No tolerance is needed: outputs that depend on "
            "nothing later agree to the last bit.",
        ),
        Mistake(
            "counts-itself",
            "the output at the changed position is compared as well. It may depend on its own input. Compare the "
            "outputs before it: [:, :t], not [:, : t + 1].",
        ),
        Mistake(
            "later",
            "outputs are compared that may change: those after a changed input. Compare the ones before it, [:, :t], and "
            "change a fresh clone() for every t.",
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
        "For t = 1 … T - 1: changed = x.clone(), then random vectors in changed[:, t:]; f(changed)[:, :t] has to "
        "equal f(x)[:, :t], to the last bit.",
        "def is_causal(f):\n    x = torch.randn(2, 8, 4)\n    before = f(x)\n    for t in range(1, 8):\n"
        "        changed = x.clone()\n        ...\n    return True",
    ),
    solution="""
import torch

def is_causal(f):
    x = torch.randn(2, 8, 4)
    before = f(x)
    for t in range(1, 8):
        changed = x.clone()
        changed[:, t:] = torch.randn(2, 8 - t, 4)
        if not torch.equal(f(changed)[:, :t], before[:, :t]):
            return False
    return True
""",
    also_correct=(
        "import torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(2, 8, 4)\n"
        "    for t in range(1, 8):\n"
        "        changed = x.clone()\n"
        "        changed[:, t] += torch.rand(4)\n"
        "        if (f(changed) - f(x))[:, :t].abs().max() > 1e-6:\n"
        "            return False\n"
        "    return True\n",
        "import torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(2, 8, 4)\n"
        "    ok = []\n"
        "    for t in range(8):\n"
        "        y = x.clone()\n"
        "        y[:, t] = 100.0\n"
        "        ok.append(torch.allclose(f(x)[:, :t], f(y)[:, :t]))\n"
        "    return all(ok)\n",
        "import torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(2, 8, 4)\n"
        "    J = torch.autograd.functional.jacobian(f, x)  # output's B, T, C, input's B, T, C\n"
        "    reads = J.abs().sum((0, 2, 3, 5))  # (T, T): output i, input j\n"
        "    return (reads.triu(1) == 0).all()\n",
        "import numpy as np, torch\n"
        "def is_causal(f):\n"
        "    x = torch.randn(2, 8, 4).double()\n"
        "    return np.all([torch.equal(f(x)[:, :t], f(x * (torch.arange(8) < t)[:, None])[:, :t]) for t in range(8)])\n",
    ),
)
