"""Chapter 3: the heads' results side by side again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    B, H, T, D = x.shape
    if "averaged" in on:
        return x.mean(1)
    if "summed" in on:
        return x.sum(1)
    if "mixes-tokens" in on:
        return x.reshape(B, T, H * D)
    if "positions-inside" in on:
        return x.reshape(B, H, T * D)
    return x.permute(0, 2, 3, 1).flatten(2) if "interleaved" in on else x.transpose(1, 2).flatten(2)


def cases(rng: random.Random) -> list[tuple[Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    sizes = [(2, 3, 5, 4), (2, 3, 3, 4), (1, 2, 1, 3), (3, 2, 4, 5), (2, 5, 6, 3)]
    return [(torch.randn(*size, generator=generator),) for size in sizes]


EXERCISE = Exercise(
    name="merge_heads",
    chapter=3,
    task="merge_heads(x) undoes split_heads: it lays the H heads of x, shape (B, H, T, D), side by side and returns "
    "shape (B, T, C) with C = H · D, head 0 first.",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "mixes-tokens",
            "the tensor is reshaped to (B, T, C) without a transpose, so a row holds parts of several tokens. First "
            "bring the positions before the heads, (B, T, H, D), then join the last two dimensions.",
        ),
        Mistake(
            "positions-inside",
            "the last two dimensions, T and D, are joined. Those to join are H and D, once they are neighbours: "
            "exchange dimensions 1 and 2 first.",
        ),
        Mistake(
            "interleaved",
            "the heads' numbers alternate. They should lie side by side: all of head 0, then all of head 1.",
        ),
        Mistake(
            "averaged", "the heads are averaged. They lie side by side, nothing is lost: C = H · D numbers."
        ),
        Mistake("summed", "the heads are summed. They lie side by side, nothing is lost: C = H · D numbers."),
    ),
    cases=cases,
    probes=(gradient_reaches("x"),),
    hints=(
        "It is split_heads backwards: the same two steps, in the opposite order.",
        "Dimensions can only be joined if they are neighbours. Which two should be?",
        "(B, H, T, D) -> transpose(1, 2) -> (B, T, H, D) -> reshape -> (B, T, H * D). After a transpose, view "
        "refuses; reshape copies.",
        "def merge_heads(x):\n    B, H, T, D = x.shape\n    return x.transpose(..., ...).reshape(B, T, ...)",
    ),
    solution="""
def merge_heads(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)
""",
    also_correct=(
        "from gptlab.attention import merge_heads\n",
        "import torch\ndef merge_heads(x):\n    return torch.cat(x.unbind(1), dim=-1)\n",
        "import torch\n"
        "def merge_heads(x):\n"
        "    B, H, T, D = x.shape\n"
        "    y = torch.zeros(B, T, H * D)\n"
        "    for h in range(H):\n"
        "        y[..., h * D : (h + 1) * D] = x[:, h]\n"
        "    return y\n",
        "def merge_heads(x):\n"
        "    B, H, T, D = x.shape\n"
        "    return x.permute(0, 2, 1, 3).contiguous().view(B, T, -1)\n",
    ),
)
