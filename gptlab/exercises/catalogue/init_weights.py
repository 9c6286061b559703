"""Chapter 5: fresh weights, the residual projections smaller with depth."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from gptlab.config import GPTConfig
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor

BEFORE = 0.5
"""What every value of the model is before, so that what is left alone shows."""


def scales(L: int) -> dict[str, float]:
    """Standard deviations of the residual projections: the right one, and those of mistakes."""
    return {
        "right": 0.02 / math.sqrt(2 * L),
        "unscaled": 0.02,
        "root-of-L": 0.02 / math.sqrt(L),
        "no-root": 0.02 / (2 * L),
        "always-12": 0.02 / math.sqrt(2 * 12),
    }


def reference(config: GPTConfig, on: frozenset[str] = NOTHING_WRONG) -> dict[str, float]:
    """For each parameter its spread, or if all its values are one, that value."""
    known = scales(config.n_layer)
    residual = next((known[name] for name in known if name in on), known["right"])

    def size(name: str) -> float:
        if name.endswith("bias"):
            return BEFORE if "biases-left" in on else 0.02 if "vectors-drawn" in on else 0.0
        if "ln_" in name:
            return BEFORE if "gains-left" in on else 0.02 if "vectors-drawn" in on else 1.0
        if name == "wpe.weight" and "smaller-positions" in on:
            return 0.01
        scaled = name.startswith("h.") if "all-scaled" in on else name.endswith("c_proj.weight")
        if ("mlp-only" in on and "attn" in name) or ("attention-only" in on and "mlp" in name):
            scaled = False
        return residual if scaled else 0.02

    return {row.name: size(row.name) for row in Ledger.from_config(config)}


class Measured:
    """The learner's function as one of a config: it gets a model of that size, which is then measured."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, config: GPTConfig) -> dict[str, float]:
        import torch

        from gptlab.model import GPT

        model = GPT(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(BEFORE)
        self.attempt(model)
        known = (*scales(config.n_layer).values(), 0.01)
        return {name: _size(parameter.detach(), known) for name, parameter in model.named_parameters()}


def _size(values: Tensor, known: tuple[float, ...]) -> float:
    """The spread: a known one if it is within 5 % of it, else one digit. If all values are one, that value."""
    if values.min() == values.max():
        return float(values.flatten()[0])
    spread = float(values.std())
    return next((size for size in known if abs(spread / size - 1) < 0.05), float(f"{spread:.1g}"))


def cases(rng: random.Random) -> list[tuple[GPTConfig]]:
    """Models just large enough for a measured spread to be within a hundredth or two of the one drawn from."""
    return [
        (GPTConfig(n_layer=L, n_head=H, n_embd=96, n_positions=80, vocab_size=rng.randrange(100, 150)),)
        for L, H in ((3, 2), (5, 4), (6, 3))
    ]


EXERCISE = Exercise(
    name="init_weights",
    chapter=5,
    task="init_weights(model) draws fresh weights for a gptlab.GPT, in place, from normal distributions: standard "
    "deviation 0.02, but for the two matrices of each block that write into the residual stream, attn.c_proj and "
    "mlp.c_proj, 0.02 / √(2L) with L = model.config.n_layer. Biases become 0, LayerNorm's gains 1. The check measures "
    "standard deviations to within 5 %.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "unscaled",
            "the residual projections get 0.02 like all others. 2L of them add to the stream, so each gets "
            "0.02 / √(2L), in GPT-2 small 0.00408. They are the matrices named c_proj.",
        ),
        Mistake(
            "root-of-L",
            "the residual projections get 0.02 / √L, in GPT-2 small 0.00577. Each block adds to the stream twice: "
            "0.02 / √(2L), in GPT-2 small 0.00408.",
        ),
        Mistake(
            "no-root",
            "the residual projections get 0.02 / (2L), in GPT-2 small 0.00083. Variances add up, not standard "
            "deviations: divide by the root, 0.02 / √(2L), in GPT-2 small 0.00408.",
        ),
        Mistake(
            "always-12",
            "the residual projections get 0.02 / √24, whatever the depth. That is right for 12 blocks. Use the "
            "model's own: model.config.n_layer.",
        ),
        Mistake(
            "attention-only",
            "only attention's projection is scaled down. The MLP writes into the stream as well: mlp.c_proj, too.",
        ),
        Mistake(
            "mlp-only",
            "only the MLP's projection is scaled down. Attention writes into the stream as well: attn.c_proj, too.",
        ),
        Mistake(
            "all-scaled",
            "every matrix of the blocks is scaled down. Only those that write into the stream are, attn.c_proj and "
            "mlp.c_proj. c_attn and c_fc get 0.02.",
        ),
        Mistake(
            "smaller-positions",
            "the position table gets 0.01, as in OpenAI's code. Here it gets 0.02 like the token table, as in "
            "transformers and nanoGPT.",
        ),
        Mistake("biases-left", "the biases keep what they held before. Set them to 0."),
        Mistake("gains-left", "LayerNorm's gains keep what they held before. Set them to 1."),
        Mistake(
            "vectors-drawn",
            "biases and LayerNorm's gains are drawn at random like the matrices. Set the biases to 0 and the gains "
            "to 1.",
        ),
    ),
    cases=cases,
    adapt=Measured,
    hints=(
        "2L contributions are added to the stream, one after the other. How does the spread of a sum grow with the "
        "number of its terms?",
        "model.named_parameters() gives names and tensors. The name tells a bias, a gain, a residual projection and "
        "the rest apart.",
        "Names that end in .bias: zeros. ln_ in the name: ones. Names that end in c_proj.weight: 0.02 / √(2L). All "
        "others: 0.02. In place, without gradients: torch.nn.init does that by itself.",
        "def init_weights(model):\n    small = 0.02 / math.sqrt(...)\n"
        "    for name, parameter in model.named_parameters():\n        if name.endswith(...):\n            ...",
    ),
    solution="""
import math

from torch import nn

def init_weights(model):
    small = 0.02 / math.sqrt(2 * model.config.n_layer)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
        elif "ln_" in name:
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=small if name.endswith("c_proj.weight") else 0.02)
""",
    also_correct=(
        "from gptlab.model import init_weights\n",
        "from torch import nn\n"
        "def init_weights(model):\n"
        "    def fresh(module):\n"
        "        if isinstance(module, nn.LayerNorm):\n"
        "            module.reset_parameters()\n"
        "        elif isinstance(module, (nn.Linear, nn.Embedding)):\n"
        "            module.weight.data.normal_(0.0, 0.02)\n"
        "            if getattr(module, 'bias', None) is not None:\n"
        "                module.bias.data.zero_()\n"
        "    model.apply(fresh)\n"
        "    for block in model.h:\n"
        "        for layer in (block.attn.c_proj, block.mlp.c_proj):\n"
        "            layer.weight.data.mul_((2 * len(model.h)) ** -0.5)\n"
        "    return model\n",
        "import torch\n"
        "@torch.no_grad()\n"
        "def init_weights(model):\n"
        "    for name, p in model.state_dict().items():\n"
        "        if p.ndim == 1:\n"
        "            p.fill_(float(name.endswith('weight')))\n"
        "        else:\n"
        "            p.copy_(torch.randn(p.shape) * 0.02)\n"
        "            if 'c_proj' in name:\n"
        "                p.div_((2 * model.config.n_layer) ** 0.5)\n",
    ),
)
