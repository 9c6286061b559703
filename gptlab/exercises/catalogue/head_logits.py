"""Chapter 6: from hidden states to a score for each token."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import LayerNorm

LAST = (
    "there are logits for the last position only. The head is applied at every position: in training each of them "
    "predicts its next token. The result has shape (B, T, V)."
)


def reference(x: Tensor, W_E: Tensor, ln_f: LayerNorm, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch.nn.functional as F

    if "bare-norm" in on:
        x = F.layer_norm(x, x.shape[-1:])
    elif "no-norm" not in on:
        x = ln_f(x)
    if "last-position" in on:
        x = x[:, -1:]
    if "last-row" in on:
        x = x[:, -1]
    logits = x @ (W_E if "no-transpose" in on else W_E.mT)
    if "scaled" in on:
        logits = logits / x.shape[-1] ** 0.5
    if "log-softmax" in on:
        return logits.log_softmax(-1)
    return logits.softmax(-1) if "softmax" in on else logits


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor, LayerNorm]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def case(B: int, T: int, V: int, C: int) -> tuple[Tensor, Tensor, LayerNorm]:
        ln_f = torch.nn.LayerNorm(C)
        with torch.no_grad():
            ln_f.weight.copy_(1 + 0.5 * normal(C))
            ln_f.bias.copy_(normal(C))
        return 3 * normal(B, T, C), normal(V, C), ln_f

    square = case(2, 4, 6, 6)  # here a transpose has the right shape
    return [case(2, 3, 11, 5), square, case(1, 1, 7, 4), case(3, 2, 9, 8)]


EXERCISE = Exercise(
    name="head_logits",
    chapter=6,
    task="head_logits(x, W_E, ln_f) turns what leaves the last block, x of shape (B, T, C), into logits of shape "
    "(B, T, V): the final LayerNorm, then the dot product with every row of the token table W_E, shape (V, C). ln_f is "
    "an nn.LayerNorm.",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "no-norm",
            "the final LayerNorm is missing. The stream has grown block by block: apply ln_f(x) before the product.",
        ),
        Mistake(
            "bare-norm",
            "x is normalised, but ln_f's gain and bias are missing. Call the module, ln_f(x): they are learnt.",
        ),
        Mistake(
            "no-transpose",
            "you multiply by W_E, not by its transpose. Its rows are the tokens' vectors, and each logit is a dot "
            "product with a row: W_E.T, shape (C, V). With V equal to C the shapes do not show it.",
        ),
        Mistake(
            "softmax",
            "these are probabilities: softmax is applied. Logits are the scores before it; the loss applies it itself.",
        ),
        Mistake(
            "log-softmax",
            "these are log-probabilities: log_softmax is applied. Logits are the scores before it; the loss applies it "
            "itself.",
        ),
        Mistake("last-position", LAST),
        Mistake("last-row", LAST),
        Mistake(
            "scaled",
            "the logits are divided by √C. That belongs to attention's scores. GPT-2's logits are the dot products "
            "as they are.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("x", "W_E", "ln_f"),),
    hints=(
        "A token's logit says how far the hidden state points along that token's row of the table.",
        "All dot products of all hidden states with all rows are one matrix product. Which of the two is transposed? "
        "And what happens to x before?",
        "ln_f(x): (B, T, C). W_E.T: (C, V). The product: (B, T, V).",
        "def head_logits(x, W_E, ln_f):\n    h = ...\n    return h @ ...",
    ),
    solution="""
def head_logits(x, W_E, ln_f):
    return ln_f(x) @ W_E.T
""",
    also_correct=(
        "import torch.nn.functional as F\n"
        "def head_logits(x, W_E, ln_f):\n"
        "    return F.linear(ln_f(x), W_E)\n",
        "import torch\n"
        "def head_logits(x, W_E, ln_f):\n"
        "    h = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + ln_f.eps).sqrt()\n"
        "    return torch.einsum('btc,vc->btv', h * ln_f.weight + ln_f.bias, W_E)\n",
        "import torch\nfrom gptlab import GPT, GPTConfig\n"
        "def head_logits(x, W_E, ln_f):\n"
        "    V, C = W_E.shape\n"
        "    model = GPT(GPTConfig(vocab_size=V, n_embd=C, n_layer=1, n_head=1, n_positions=1))\n"
        "    model.ln_f = ln_f\n"
        "    return torch.func.functional_call(model.lm_head, {'weight': W_E}, (model.ln_f(x),))\n",
        "import torch\n"
        "def head_logits(x, W_E, ln_f):\n"
        "    h = ln_f(x)\n"
        "    return torch.stack([(h * row).sum(-1) for row in W_E], dim=-1)\n",
    ),
)
