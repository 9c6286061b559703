"""Chapter 3: from scores to weights, from weights to a mixture of values."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(scores: Tensor, v: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch

    T = scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    if "scaled-again" in on:
        scores = scores / v.shape[-1] ** 0.5
    if not on & {"no-mask", "mask-late"}:
        scores = scores.masked_fill(future, float("-inf"))
    dim = -2 if "over-queries" in on else 1 if "over-heads" in on else -1
    weights = scores if "no-softmax" in on else scores.softmax(dim)
    if "mask-late" in on:
        weights = weights.masked_fill(future, 0.0)
    return (weights.mT if "transposed" in on else weights) @ v


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, H: int, T: int, D: int) -> tuple[Tensor, Tensor]:
        return 2 * torch.randn(B, H, T, T, generator=generator), torch.randn(B, H, T, D, generator=generator)

    return [case(2, 3, 5, 4), case(1, 1, 4, 3), case(3, 2, 4, 6), case(1, 4, 2, 3), case(2, 4, 6, 5)]


EXERCISE = Exercise(
    name="weighted_values",
    chapter=3,
    task="weighted_values(scores, v) masks the future in the scores, shape (B, H, T, T), with a row for each query, "
    "makes weights of each row by softmax, and returns for each query the weighted sum of the values v, shape "
    "(B, H, T, D).",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake("no-mask", "the future is not masked: each query also reads later values."),
        Mistake(
            "scaled-again",
            "the scores are divided by √D. They have been when they were made: take them as they are.",
        ),
        Mistake(
            "mask-late",
            "the mask comes after softmax. The future has had its share of the weights by then, and a row no longer "
            "sums to 1. Mask the scores, with minus infinity, then softmax.",
        ),
        Mistake(
            "over-queries",
            "softmax runs over the queries: each column sums to 1. Each query's weights, a row, should: dim=-1.",
        ),
        Mistake(
            "over-heads",
            "softmax runs over the heads. Each head has weights of its own, which sum to 1 over the keys: dim=-1.",
        ),
        Mistake(
            "no-softmax",
            "the scores themselves are the weights. Softmax turns a row of scores into weights that are positive "
            "and sum to 1.",
        ),
        Mistake(
            "transposed",
            "the weights are transposed: values are collected along the columns. Row i of the weights belongs to "
            "query i: weights @ v.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("scores", "v"),),
    hints=(
        "What a query takes home is a mean of the values, weighted by how well their keys match.",
        "In which order: mask, softmax, product? And along which dimension should the weights sum to 1?",
        "weights = masked.softmax(dim=-1), shape (B, H, T, T); weights @ v has shape (B, H, T, D).",
        "def weighted_values(scores, v):\n    masked = ...\n    weights = masked.softmax(dim=...)\n    return ...",
    ),
    solution="""
import torch

def weighted_values(scores, v):
    T = scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    return weights @ v
""",
    also_correct=(
        "import torch\nimport torch.nn.functional as F\n"
        "def weighted_values(scores, v):\n"
        "    T = scores.shape[-1]\n"
        "    mask = scores + torch.full((T, T), -torch.inf).triu(1)\n"
        "    none = torch.zeros_like(v)\n"
        "    return F.scaled_dot_product_attention(none, none, v, attn_mask=mask)\n",
        "import torch\n"
        "def weighted_values(scores, v):\n"
        "    rows = []\n"
        "    for i in range(scores.shape[-1]):\n"
        "        w = torch.softmax(scores[:, :, i, : i + 1], dim=-1)\n"
        "        rows.append((w[..., None] * v[:, :, : i + 1]).sum(2))\n"
        "    return torch.stack(rows, dim=2)\n",
        "import torch\n"
        "def weighted_values(scores, v):\n"
        "    e = (scores - scores.amax(-1, keepdim=True)).exp().tril()\n"
        "    return torch.einsum('bhij,bhjd->bhid', e / e.sum(-1, keepdim=True), v)\n",
    ),
)
