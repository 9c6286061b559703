"""Chapter 3: the numbers of each head, apart."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, n_head: int, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    B, T, C = x.shape
    D = C // n_head
    if "exchanged" in on:
        n_head, D = D, n_head
    if "mixes-tokens" in on:
        heads = x.reshape(B, n_head, T, D)
    elif "interleaved" in on:
        heads = x.reshape(B, T, D, n_head).permute(0, 3, 1, 2)
    else:
        heads = x.reshape(B, T, n_head, D).transpose(1, 2)
    if "features-first" in on:
        return heads.mT
    return heads.transpose(1, 2) if "positions-first" in on else heads


def cases(rng: random.Random) -> list[tuple[Tensor, int]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, H: int, D: int) -> tuple[Tensor, int]:
        return torch.randn(B, T, H * D, generator=generator), H

    square = case(2, 3, 3, 4)  # here T is H: forgetting to transpose gives the right shape
    return [case(2, 5, 3, 4), square, case(1, 1, 2, 3), case(3, 4, 2, 5), case(2, 6, 5, 3)]


EXERCISE = Exercise(
    name="split_heads",
    chapter=3,
    task="split_heads(x, n_head) cuts the C numbers of each row of x, shape (B, T, C), into n_head groups "
    "of D = C / H neighbours, one for each head, and returns shape (B, H, T, D).",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "mixes-tokens",
            "the tensor is viewed as (B, H, T, D) at once. The shape is right, but a head's rows now hold parts of "
            "other tokens: the memory runs token by token. View as (B, T, H, D) first, then exchange T and H.",
        ),
        Mistake(
            "positions-first",
            "the result is (B, T, H, D): the heads stand behind the positions. Each head needs a (T, D) matrix of its "
            "own: exchange dimensions 1 and 2. Where T equals H, the shape does not show it.",
        ),
        Mistake(
            "interleaved",
            "each head gets every H-th number. A head's numbers are neighbours: head 0 has the first D.",
        ),
        Mistake(
            "exchanged",
            "H and D are exchanged: there are D heads with H numbers each. The last dimension is (n_head, D), in "
            "this order.",
        ),
        Mistake(
            "features-first", "the last two dimensions are exchanged: the result should be (B, H, T, D)."
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("x", ""),),
    hints=(
        "Nothing is computed here. Numbers that belong together get a dimension of their own.",
        "view can cut one dimension into two neighbours, it cannot change the order. For that there is transpose.",
        "(B, T, C) -> view -> (B, T, H, D) -> transpose(1, 2) -> (B, H, T, D).",
        "def split_heads(x, n_head):\n    B, T, C = x.shape\n    return x.view(B, T, ..., ...).transpose(..., ...)",
    ),
    solution="""
def split_heads(x, n_head):
    B, T, C = x.shape
    return x.view(B, T, n_head, C // n_head).transpose(1, 2)
""",
    also_correct=(
        "from gptlab.attention import split_heads\n",
        "import torch\ndef split_heads(x, n_head):\n    return torch.stack(x.chunk(n_head, dim=-1), dim=1)\n",
        "import torch\n"
        "def split_heads(x, n_head):\n"
        "    D = x.shape[-1] // n_head\n"
        "    return torch.cat([x[:, None, :, h * D : (h + 1) * D] for h in range(n_head)], dim=1)\n",
        "def split_heads(x, n_head):\n"
        "    B, T, C = x.shape\n"
        "    return x.reshape(B, T, n_head, -1).permute(0, 2, 1, 3).contiguous()\n",
    ),
)
