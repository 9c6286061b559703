"""Chapter 7: the gradient of a table that is used at both ends."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    W: Tensor, H: Tensor, tokens: Tensor, grad_logits: Tensor, on: frozenset[str] = NOTHING_WRONG
) -> Tensor:
    import torch

    as_head = grad_logits.flatten(0, 1).T @ H.flatten(0, 1)
    rows, ids = (grad_logits @ W).flatten(0, 1), tokens.flatten()
    as_table = torch.zeros_like(W)
    if "overwritten" in on:
        for i, row in zip(ids, rows, strict=True):
            as_table[i] = row
    else:
        as_table.index_add_(0, ids, rows)
    if "mean-of-repeats" in on:
        as_table = as_table / ids.bincount(minlength=len(W)).clamp(min=1)[:, None]
    gradient = as_head + as_table
    if "table-missing" in on:
        gradient = as_head
    if "head-missing" in on:
        gradient = as_table
    if "averaged" in on:
        gradient = gradient / 2
    return gradient.T if "transposed" in on else gradient


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def case(B: int, T: int, V: int, C: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tokens = torch.randint(V, (B, T), generator=generator)
        tokens.view(-1)[-1] = tokens.view(-1)[0]  # one id comes twice
        return normal(V, C), normal(B, T, C), tokens, normal(B, T, V)

    return [case(2, 3, 11, 5), case(1, 5, 7, 4), case(1, 1, 5, 3), case(3, 2, 6, 6), case(2, 6, 4, 9)]


EXERCISE = Exercise(
    name="tied_gradient",
    chapter=7,
    task="A model without blocks and without LayerNorm: H = W[tokens] + positions, logits = H Wᵀ. W is used twice. "
    "tied_gradient(W, H, tokens, grad_logits) returns the gradient of the loss for W, shape (V, C), given W (V, C), "
    "H (B, T, C), tokens (B, T) and the gradient for the logits, grad_logits (B, T, V).",
    difficulty="hard",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "table-missing",
            "only the head's part is there. W is the table, too: the gradient for H, grad_logits W, goes to the rows "
            "of the tokens that were read.",
        ),
        Mistake(
            "head-missing",
            "only the table's part is there, on the rows of the tokens that were read. W is the head, too: "
            "grad_logitsᵀ H, a part for every row.",
        ),
        Mistake(
            "averaged",
            "the two parts are averaged. A tensor that is used twice gets the sum of the two gradients.",
        ),
        Mistake(
            "overwritten",
            "of a token that occurs twice only the last occurrence counts: G[tokens] += rows writes each row once. "
            "Add them all up, with index_add_ or index_put_(accumulate=True).",
        ),
        Mistake(
            "mean-of-repeats",
            "of a token that occurs twice the mean is taken. Each occurrence used the row: add them up.",
        ),
        Mistake(
            "transposed",
            "this is the transpose, (C, V). A gradient has the shape of its tensor, (V, C).",
        ),
    ),
    cases=cases,
    hints=(
        "Pretend that there are two matrices, one at each end, and find the gradient of each. Then they are one again.",
        "logits = H Wᵀ gives a gradient for W and one for H. That for H goes on, through H = W[tokens] + positions, to "
        "rows of W. And if a row was read twice?",
        "As head: the sum over b, t of grad_logits[b, t, v] · H[b, t, c]: (V, C). As table: grad_logits @ W: (B, T, C), "
        "each of whose B · T rows is added to the row of its token.",
        "def tied_gradient(W, H, tokens, grad_logits):\n    as_head = ...\n    as_table = torch.zeros_like(W)\n"
        "    as_table.index_add_(0, tokens.flatten(), ...)\n    return as_head + as_table",
    ),
    solution="""
import torch

def tied_gradient(W, H, tokens, grad_logits):
    as_head = torch.einsum("btv,btc->vc", grad_logits, H)
    as_table = torch.zeros_like(W)
    as_table.index_add_(0, tokens.flatten(), (grad_logits @ W).flatten(0, 1))
    return as_head + as_table
""",
    also_correct=(
        "import torch\n"
        "def tied_gradient(W, H, tokens, grad_logits):\n"
        "    W = W.clone().requires_grad_()\n"
        "    X = W[tokens]\n"
        "    logits = (X + (H - X).detach()) @ W.T\n"
        "    return torch.autograd.grad(logits, W, grad_logits)[0]\n",
        "import torch\nimport torch.nn.functional as F\nfrom gptlab.embeddings import input_tensor\n"
        "def tied_gradient(W, H, tokens, grad_logits):\n"
        "    table, head = W.clone().requires_grad_(), W.clone().requires_grad_()\n"
        "    X = input_tensor(tokens, table, torch.zeros(tokens.shape[1], W.shape[1]))\n"
        "    F.linear(X + (H - X.detach()), head).backward(grad_logits)\n"
        "    return table.grad + head.grad\n",
        "import torch.nn.functional as F\n"
        "def tied_gradient(W, H, tokens, grad_logits):\n"
        "    hits = F.one_hot(tokens, len(W)).to(W.dtype).flatten(0, 1)\n"
        "    G = grad_logits.flatten(0, 1)\n"
        "    return G.T @ H.flatten(0, 1) + hits.T @ (G @ W)\n",
        "import torch\n"
        "def tied_gradient(W, H, tokens, grad_logits):\n"
        "    G = torch.zeros_like(W)\n"
        "    for b in range(tokens.shape[0]):\n"
        "        for t in range(tokens.shape[1]):\n"
        "            g = grad_logits[b, t]\n"
        "            G += torch.outer(g, H[b, t])\n"
        "            G[tokens[b, t]] += g @ W\n"
        "    return G\n",
    ),
)
