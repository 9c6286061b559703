"""Chapter 2: token rows plus position rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(tokens: Tensor, W_E: Tensor, W_P: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch
    import torch.nn.functional as F

    B, T = tokens.shape
    places = torch.arange(T)
    if "from-one" in on:
        places = places + 1
    if "row-zero" in on:
        places = torch.zeros(T, dtype=torch.long)
    if "last-rows" in on:
        places = torch.arange(len(W_P) - T, len(W_P))
    position = W_P[places % len(W_P)]
    if "by-token" in on:
        position = W_P[tokens % len(W_P)]
    if "along-batch" in on:
        position = W_P[torch.arange(B) % len(W_P)][:, None]
    if "sinusoids" in on:
        position = _sinusoids(T, W_P.shape[1], W_P)
    X = W_E[tokens]
    if "times-root" in on:
        X = X * W_E.shape[1] ** 0.5
    if "concatenated" in on:
        return torch.cat([X, position.expand_as(X)], dim=-1)
    if "multiplied" in on:
        X = X * position
    elif "no-positions" not in on:
        X = X + position
    return F.layer_norm(X, X.shape[-1:]) if "normalised" in on else X


def _sinusoids(n_positions: int, width: int, like: Tensor) -> Tensor:
    import torch

    angle = torch.arange(n_positions)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].to(like.dtype)


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, P: int, C: int) -> tuple[Tensor, Tensor, Tensor]:
        tokens = torch.randint(V, (B, T), generator=generator)
        return tokens, torch.randn(V, C, generator=generator), torch.randn(P, C, generator=generator)

    return [
        case(2, 3, 11, 7, 4),
        case(4, 4, 13, 9, 6),
        case(1, 1, 5, 3, 8),
        case(3, 5, 12, 16, 10),
        case(2, 7, 19, 8, 6),
    ]


EXERCISE = Exercise(
    name="input_tensor",
    chapter=2,
    task="input_tensor(tokens, W_E, W_P) returns X = W_E[t] + W_P[p] for tokens of shape (B, T): a tensor of shape "
    "(B, T, C). Positions start at 0.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake("no-positions", "the positions are missing: this is W_E[t] alone. Add the rows of W_P."),
        Mistake(
            "sinusoids",
            "sinusoidal positions are added, as in the first transformer. GPT-2 learns its positions: look them "
            "up in W_P.",
        ),
        Mistake(
            "by-token",
            "W_P is looked up by token id. A position row belongs to a place: use 0, 1, …, T - 1.",
        ),
        Mistake("from-one", "the positions start at 1. The first token stands in position 0."),
        Mistake("row-zero", "every token gets row 0 of W_P. Each place has a row of its own."),
        Mistake(
            "along-batch",
            "the positions run along the batch: every token of a text gets the same row. Add W_P[:T], shape "
            "(T, C), which broadcasting repeats for each text.",
        ),
        Mistake("last-rows", "the last T rows of W_P are used, not the first: W_P[:T], not W_P[-T:]."),
        Mistake(
            "times-root",
            "the token rows are multiplied by sqrt(C), as in the first transformer. GPT-2 adds them as they are.",
        ),
        Mistake("concatenated", "token and position rows stand side by side, (B, T, 2C). GPT-2 adds them."),
        Mistake("multiplied", "token and position rows are multiplied. GPT-2 adds them."),
        Mistake(
            "normalised",
            "the sum is normalised. GPT-2's first LayerNorm comes later, inside the first block.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("", "W_E", "W_P"),),
    hints=(
        "Two lookups and a sum: what the token is, and where it stands.",
        "Which rows of W_P does a text of T tokens need? The same for every text in the batch.",
        "W_E[tokens] has shape (B, T, C), W_P[:T] has (T, C); + repeats the second for each text.",
        "def input_tensor(tokens, W_E, W_P):\n    B, T = tokens.shape\n    return W_E[...] + W_P[...]",
    ),
    solution="""
def input_tensor(tokens, W_E, W_P):
    B, T = tokens.shape
    return W_E[tokens] + W_P[:T]
""",
    also_correct=(
        "import torch\nimport torch.nn.functional as F\n"
        "def input_tensor(tokens, W_E, W_P):\n"
        "    places = torch.arange(tokens.shape[1]).expand_as(tokens)\n"
        "    return F.embedding(tokens, W_E) + F.embedding(places, W_P)\n",
        "import torch\n"
        "def input_tensor(tokens, W_E, W_P):\n"
        "    X = W_E[tokens]\n"
        "    for p in range(tokens.shape[1]):\n"
        "        X[:, p] += W_P[p]\n"
        "    return X\n",
        "from gptlab import embeddings\ninput_tensor = embeddings.input_tensor\n",
    ),
)
