"""Chapter 4: four times wider, GELU, and back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.catalogue import gelu
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Generator, Tensor


def reference(x: Tensor, weights: dict[str, Tensor], on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    hidden = x @ weights["c_fc.weight"].mT
    if "no-first-bias" not in on:
        hidden = hidden + weights["c_fc.bias"]
    if not on & {"no-activation", "activation-last"}:
        hidden = gelu.reference(hidden, on & {"erf", "relu"})
    y = hidden @ weights["c_proj.weight"].mT
    if "no-second-bias" not in on:
        y = y + weights["c_proj.bias"]
    if on & {"activation-last", "activation-twice"}:
        y = gelu.reference(y, on & {"erf", "relu"})
    return x + y if "residual" in on else y


def cases(rng: random.Random) -> list[tuple[Tensor, dict[str, Tensor]]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, C: int) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.randn(B, T, C, generator=generator), random_weights(C, generator)

    return [case(2, 3, 5), case(1, 1, 4), case(3, 2, 7), case(2, 5, 6)]


def random_weights(C: int, generator: Generator) -> dict[str, Tensor]:
    """The sublayer's four tensors, in nn.Linear's layout."""
    import torch

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "c_fc.weight": 1.5 * normal(4 * C, C) / C**0.5,
        "c_fc.bias": normal(4 * C),
        "c_proj.weight": normal(C, 4 * C) / C**0.5,
        "c_proj.bias": normal(C),
    }


EXERCISE = Exercise(
    name="mlp",
    chapter=4,
    task="mlp(x, weights) computes GPT-2's MLP sublayer: C features become 4C, GELU in its tanh form, and C again; "
    "x and the result have shape (B, T, C). weights is a dict with the checkpoint's names: c_fc.weight (4C, C), "
    "c_fc.bias (4C), c_proj.weight (C, 4C), c_proj.bias (C). The matrices are as nn.Linear holds them, (outputs, "
    "inputs).",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "no-activation",
            "nothing happens between the two products, so together they are one matrix of C × C. Apply GELU to the 4C "
            "features.",
        ),
        Mistake(
            "activation-last",
            "GELU comes after the second product. It belongs between the two, on the 4C features.",
        ),
        Mistake(
            "activation-twice",
            "GELU is applied again at the end. Only the 4C features in between go through it.",
        ),
        Mistake("erf", "GELU is the exact one, with erf. GPT-2's is the tanh form: approximate='tanh'."),
        Mistake("relu", "the activation is ReLU. GPT-2's is GELU, in its tanh form."),
        Mistake("no-first-bias", "the first product has lost its bias. Add c_fc.bias before GELU."),
        Mistake("no-second-bias", "the second product has lost its bias. Add c_proj.bias."),
        Mistake(
            "residual",
            "x is added to the result. That is right in the block, around the MLP; the MLP returns its own "
            "contribution.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("x", "weights"),),
    hints=(
        "Two linear layers with something between them that is not linear.",
        "F.linear(x, weight, bias) takes the weight as nn.Linear holds it. Which of the two layers is the wide one?",
        "hidden = gelu(F.linear(x, c_fc)): (B, T, 4C). F.linear(hidden, c_proj): (B, T, C).",
        'def mlp(x, weights):\n    hidden = F.linear(x, weights["c_fc.weight"], weights["c_fc.bias"])\n'
        "    hidden = ...\n    return F.linear(hidden, ..., ...)",
    ),
    solution="""
import torch.nn.functional as F

def mlp(x, weights):
    hidden = F.linear(x, weights["c_fc.weight"], weights["c_fc.bias"])
    hidden = F.gelu(hidden, approximate="tanh")
    return F.linear(hidden, weights["c_proj.weight"], weights["c_proj.bias"])
""",
    also_correct=(
        "from torch.func import functional_call\n"
        "from gptlab import GPTConfig\nfrom gptlab.mlp import MLP\n"
        "def mlp(x, weights):\n"
        "    module = MLP(GPTConfig(n_embd=x.shape[-1], n_head=1)).eval()\n"
        "    return functional_call(module, weights, (x,))\n",
        "import math, torch\n"
        "def mlp(x, weights):\n"
        "    h = torch.einsum('btc,hc->bth', x, weights['c_fc.weight']) + weights['c_fc.bias']\n"
        "    h = h * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))\n"
        "    return torch.einsum('bth,ch->btc', h, weights['c_proj.weight']) + weights['c_proj.bias']\n",
        "import torch\nfrom torch import nn\n"
        "def mlp(x, weights):\n"
        "    act = nn.GELU(approximate='tanh')\n"
        "    y = weights['c_proj.bias']\n"
        "    for i in range(4 * x.shape[-1]):  # one hidden feature after the other\n"
        "        h = act((x * weights['c_fc.weight'][i]).sum(-1) + weights['c_fc.bias'][i])\n"
        "        y = y + h[..., None] * weights['c_proj.weight'][:, i]\n"
        "    return y\n",
    ),
)
