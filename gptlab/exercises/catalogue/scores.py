"""Chapter 3: how well each query and each key match."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(q: Tensor, k: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    H, T, D = q.shape[1:]
    products = k @ q.mT if "rows-are-keys" in on else q @ k.mT
    if "unscaled" in on:
        return products
    size = D
    if "model-width" in on:
        size = H * D
    if "positions" in on:
        size = T
    scale = size if "no-root" in on else size**0.5
    result = products * scale if "multiplied" in on else products / scale
    return result.softmax(-1) if "softmaxed" in on else result


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, H: int, T: int, D: int) -> tuple[Tensor, Tensor]:
        q, k = torch.randn(2, B, H, T, D, generator=generator)
        return q, k

    return [case(2, 3, 5, 4), case(1, 2, 3, 8), case(3, 4, 1, 2), case(3, 2, 7, 5), case(2, 5, 4, 3)]


EXERCISE = Exercise(
    name="scores",
    chapter=3,
    task="scores(q, k) returns the attention scores q kᵀ / √D of queries and keys of shape (B, H, T, D): a tensor "
    "of shape (B, H, T, T) with a row for each query and a column for each key. No mask yet.",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "unscaled",
            "the products are not scaled. A sum of D products has a spread of about √D; divide by √D, or softmax "
            "puts nearly all weight on one key.",
        ),
        Mistake(
            "model-width",
            "you divide by √C, the root of all heads' width together. A score sums over the D = C / H numbers of "
            "one head: divide by √D, with D = q.shape[-1].",
        ),
        Mistake("positions", "you divide by √T, the number of positions. The sum runs over D = q.shape[-1]."),
        Mistake("no-root", "you divide by D. Divide by its square root."),
        Mistake("multiplied", "you multiply by √D. Divide by it."),
        Mistake("softmaxed", "the result is softmaxed. Return the scores; the mask comes in between."),
        Mistake(
            "rows-are-keys",
            "the rows are keys and the columns queries: this is k qᵀ. Softmax runs along a row, so a row has to "
            "belong to a query: q kᵀ.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("q", "k"),),
    hints=(
        "A query and a key match well if their dot product is large.",
        "All dot products of all queries with all keys are one matrix product. Which of the two has to be "
        "transposed, and in which dimensions?",
        "q @ k.transpose(-2, -1): (B, H, T, D) by (B, H, D, T) gives (B, H, T, T). Divide by math.sqrt(D), "
        "D = q.shape[-1].",
        "def scores(q, k):\n    D = q.shape[-1]\n    return q @ ... / ...",
    ),
    solution="""
import math

def scores(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
""",
    also_correct=(
        "import torch\n"
        "def scores(q, k):\n"
        "    return torch.einsum('bhid,bhjd->bhij', q, k) * q.size(3) ** -0.5\n",
        "def scores(q, k):\n"
        "    B, H, T, D = q.shape\n"
        "    root = D ** 0.25\n"
        "    flat = (q / root).reshape(B * H, T, D).bmm((k / root).reshape(B * H, T, D).mT)\n"
        "    return flat.reshape(B, H, T, T)\n",
        "import torch\n"
        "def scores(q, k):\n"
        "    T, D = q.shape[2:]\n"
        "    rows = [torch.stack([(q[:, :, i] * k[:, :, j]).sum(-1) for j in range(T)], -1) for i in range(T)]\n"
        "    return torch.stack(rows, dim=-2) / D ** 0.5\n",
        "def scores(q, k):\n    return (q[:, :, :, None] * k[:, :, None]).sum(-1).div(q.shape[-1] ** 0.5)\n",
    ),
)
