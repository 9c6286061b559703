"""Chapter 2: look up the rows of the token table."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(tokens: Tensor, W_E: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch

    if "uint8" in on:
        tokens = tokens.to(torch.uint8)
    if "int16" in on:
        tokens = tokens.to(torch.int16)
    if "column" in on:
        return W_E[:, tokens.long() % W_E.shape[1]].movedim(0, -1)
    X = W_E[tokens.long() % len(W_E)]
    if "flattened" in on:
        X = X.flatten(0, 1)
    return X.mean(1) if "averaged" in on else X


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, C: int, *ids: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(V, (B, T), generator=generator)
        tokens.view(-1)[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return tokens, torch.randn(V, C, generator=generator)

    square = case(2, 3, 6, 6)  # here a transpose has the right shape
    return [case(2, 3, 11, 5), square, case(1, 1, 7, 4), case(2, 4, 40_000, 2, 300, 39_999), case(3, 2, 9, 8)]


EXERCISE = Exercise(
    name="embed",
    chapter=2,
    task="embed(tokens, W_E) returns for each token id in tokens, shape (B, T), its row of W_E, shape (V, C): a "
    "tensor of shape (B, T, C).",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "column",
            "you take columns of W_E, not rows. W_E has a row for each token: W_E[tokens]. With V equal to C the "
            "shapes do not show it.",
        ),
        Mistake("uint8", "the ids are squeezed into 8 bits, so 300 became 44. Keep them int64."),
        Mistake(
            "int16",
            "the ids are squeezed into 16 bits with a sign, so 39,999 became negative. Keep them int64.",
        ),
        Mistake("flattened", "batch and time have become one dimension. Keep (B, T, C)."),
        Mistake(
            "averaged", "the rows of a text are averaged. Each token keeps a vector of its own: (B, T, C)."
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("", "W_E"),),
    hints=(
        "An embedding is a row of a table. The id says which.",
        "Indexing a tensor with a tensor of integers picks rows, and the result has the shape of the index with "
        "the row's shape behind it.",
        "W_E[tokens]: (V, C) indexed by (B, T) gives (B, T, C).",
        "def embed(tokens, W_E):\n    return W_E[...]",
    ),
    solution="""
def embed(tokens, W_E):
    return W_E[tokens]
""",
    also_correct=(
        "import torch.nn.functional as F\ndef embed(tokens, W_E):\n    return F.embedding(tokens, W_E)\n",
        "import torch.nn.functional as F\n"
        "def embed(tokens, W_E):\n"
        "    return F.one_hot(tokens, len(W_E)).to(W_E.dtype) @ W_E\n",
        "import torch\n"
        "def embed(tokens, W_E):\n"
        "    return torch.stack([torch.stack([W_E[i] for i in row]) for row in tokens])\n",
    ),
)
