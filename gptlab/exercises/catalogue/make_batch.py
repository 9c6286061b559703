"""Chapter 6: windows of a row of tokens, and what should follow at each place."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises import compare
from gptlab.exercises.exercise import NOTHING_WRONG, Diagnosis, Exercise, Mistake
from gptlab.exercises.outputs import named

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    data: Tensor, starts: list[int], T: int, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor]:
    import torch

    def windows(offset: int) -> Tensor:
        length = T - 1 if "one-short" in on else T
        return torch.stack([data[start + offset : start + offset + length] for start in starts])

    x = windows(0)
    offsets = {"same": 0, "one-earlier": -1, "two-later": 2, "next-window": T}
    y = windows(next((offsets[name] for name in offsets if name in on), 1))
    if "wraps-round" in on:
        y = x.roll(-1, dims=1)
    if "one-target" in on:
        y = y[:, -1]
    if "columns" in on:
        x, y = x.mT, y.mT if y.ndim == 2 else y
    return {"x": y, "y": x} if "exchanged" in on else {"x": x, "y": y}


def returns_tensors(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """[T] x and y are tensors: a model takes nothing else."""
    for name, rows in function(*case).items():
        if not compare.is_tensor(rows):
            return Diagnosis(
                "no-tensors",
                f"the values are right, but {name} is no tensor, and a model could not read it. Stack slices of data "
                f"with torch.stack, or convert at the end with torch.from_numpy.",
                f"{name} is {compare.a_kind(rows)}",
            )
    return None


def cases(rng: random.Random) -> list[tuple[Tensor, list[int], int]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(n: int, B: int, T: int) -> tuple[Tensor, list[int], int]:
        # From the second token on, and with room behind, so that a window in the wrong place is still one.
        starts = [rng.randrange(1, n - 2 * T) for _ in range(B)]
        return torch.randperm(n, generator=generator) + 300, starts, T

    return [case(40, 3, 4), case(30, 1, 5), case(30, 2, 1), case(60, 5, 7), case(50, 4, 3)]


EXERCISE = Exercise(
    name="make_batch",
    chapter=6,
    task="make_batch(data, starts, T) returns a pair x, y, two tensors of shape (B, T). data is one long row of token "
    "ids, an int64 tensor; starts is a list of B places in it. Row b of x holds the T tokens from starts[b] on, row b "
    "of y for each of them the token that follows it in data.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "same",
            "y equals x: each position would have to predict the token that it reads. y starts one token later.",
        ),
        Mistake(
            "one-earlier",
            "y is one token earlier than x: the model would predict the past. It starts one later, at start + 1.",
        ),
        Mistake(
            "two-later",
            "y is two tokens later than x. It starts one later, at start + 1. Is the shift made twice?",
        ),
        Mistake(
            "wraps-round",
            "y is x turned round: its last token is the window's first. The last target is the token behind the "
            "window, data[start + T]. roll() cannot know it.",
        ),
        Mistake(
            "one-short",
            "the rows have T - 1 tokens. A window of T inputs with their targets takes T + 1 tokens of data.",
        ),
        Mistake(
            "next-window",
            "y is the window behind x, T tokens later. Each position predicts its own next token: y starts at "
            "start + 1.",
        ),
        Mistake(
            "one-target",
            "y holds one token for each row, the one behind the window. Every position has a target: (B, T).",
        ),
        Mistake("columns", "the windows stand in columns, shape (T, B). Stack them as rows, dim=0."),
        Mistake("exchanged", "x and y are exchanged: return the inputs first, then the targets."),
    ),
    cases=cases,
    adapt=named("x", "y"),
    probes=(returns_tensors,),
    hints=(
        "What the model should say at a place is what stands at the next place.",
        "y is a window, too, of the same length. Where does it start?",
        "x: data[s : s + T] for each start s, stacked. y: data[s + 1 : s + T + 1], stacked. Both (B, T).",
        "def make_batch(data, starts, T):\n    x = torch.stack([data[...] for s in starts])\n    y = ...\n"
        "    return x, y",
    ),
    solution="""
import torch

def make_batch(data, starts, T):
    x = torch.stack([data[s : s + T] for s in starts])
    y = torch.stack([data[s + 1 : s + T + 1] for s in starts])
    return x, y
""",
    also_correct=(
        "from gptlab.data import windows_at\n"
        "def make_batch(data, starts, T):\n"
        "    return windows_at(data.numpy(), starts, T)\n",
        "import torch\n"
        "def make_batch(data, starts, T):\n"
        "    places = torch.tensor(starts)[:, None] + torch.arange(T)\n"
        "    return data[places], data[places + 1]\n",
        "def make_batch(data, starts, T):\n"
        "    rows = data.unfold(0, T + 1, 1)[starts]\n"
        "    return rows[:, :-1], rows[:, 1:]\n",
        "import torch\n"
        "def make_batch(data, starts, T):\n"
        "    ids = data.tolist()\n"
        "    x = [[ids[s + t] for t in range(T)] for s in starts]\n"
        "    y = [row[1:] + [ids[s + T]] for row, s in zip(x, starts)]\n"
        "    return torch.tensor(x), torch.tensor(y)\n",
    ),
)
