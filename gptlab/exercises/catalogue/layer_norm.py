"""Chapter 4: each vector to mean 0 and variance 1, then a gain and a bias."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    x: Tensor, gain: Tensor, bias: Tensor, eps: float, on: frozenset[str] = NOTHING_WRONG
) -> Tensor:
    dims: tuple[int, ...] = (-1,)
    if "over-positions" in on:
        dims = (1,)
    if "over-text" in on:
        dims = (1, 2)
    if "over-everything" in on:
        dims = (0, 1, 2)
    mean = x.mean(dims, keepdim=True)
    centred = x if "rms" in on else x - mean
    variance = (centred**2).mean(dims, keepdim=True)
    if "unbiased" in on:
        n = x.numel() // variance.numel()
        variance = variance * n / (n - 1)
    if "no-eps" in on:
        eps = 0.0
    if "other-eps" in on:
        eps = 1e-6
    if "variance" in on:
        spread = variance + eps
    else:
        spread = variance**0.5 + eps if "eps-outside" in on else (variance + eps) ** 0.5
    y = (x if "uncentred" in on else centred) / spread
    if "exchanged" in on:
        gain, bias = bias, gain
    if "no-gain" not in on:
        y = y * gain
    return y if "no-bias" in on else y + bias


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor, Tensor, float]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, C: int, eps: float, spread: float = 1) -> tuple[Tensor, Tensor, Tensor, float]:
        x = spread * (1 + torch.randn(B, T, C, generator=generator))
        gain, bias = 1 + 0.5 * torch.randn(C, generator=generator), torch.randn(C, generator=generator)
        return x, gain, bias, eps

    tiny = case(2, 3, 4, 1e-5, 1e-3)  # here the variance is smaller than epsilon
    return [case(2, 3, 5, 1e-5), tiny, case(1, 4, 6, 1e-2), case(3, 5, 8, 1e-5), case(4, 2, 7, 1e-3)]


EXERCISE = Exercise(
    name="layer_norm",
    chapter=4,
    task="layer_norm(x, gain, bias, eps) normalises each vector of x, shape (B, T, C): subtract its mean and divide by "
    "√(variance + eps); then multiply by gain and add bias, both of shape (C,). The variance is the mean squared "
    "distance from the mean.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "unbiased",
            "the variance divides by C - 1. LayerNorm's divides by C. In PyTorch that is var(unbiased=False).",
        ),
        Mistake(
            "eps-outside",
            "eps is added to the standard deviation, outside the root. Add it to the variance, inside. For vectors "
            "with a small variance it makes a large difference.",
        ),
        Mistake("no-eps", "eps is missing. Add it to the variance, before the root."),
        Mistake(
            "other-eps",
            "eps is 1e-6, whatever was asked for. Use the argument; GPT-2's is 1e-5.",
        ),
        Mistake(
            "over-positions",
            "mean and variance are taken over the positions, dimension 1. Each vector is normalised alone: over the C "
            "features, dim=-1.",
        ),
        Mistake(
            "over-text",
            "mean and variance are taken over a whole text, T · C values. Each vector is normalised alone: dim=-1.",
        ),
        Mistake(
            "over-everything",
            "one mean and one variance serve the whole tensor. Each vector is normalised alone: dim=-1, keepdim=True.",
        ),
        Mistake("variance", "you divide by the variance. Divide by its root."),
        Mistake(
            "rms",
            "the mean is never subtracted, neither before the squares are taken nor after. That is RMSNorm, of later "
            "models. GPT-2's LayerNorm subtracts it.",
        ),
        Mistake(
            "uncentred",
            "the variance is right, but x itself is divided by it. Subtract the mean from x first.",
        ),
        Mistake("no-gain", "the gain is missing. Multiply by it before adding the bias."),
        Mistake("no-bias", "the bias is missing. Add it at the end."),
        Mistake("exchanged", "gain and bias are exchanged: multiply by the gain, add the bias."),
    ),
    cases=cases,
    probes=(gradient_reaches("x", "gain", "bias", ""),),
    hints=(
        "Every token's vector is brought to mean 0 and variance 1 by itself; no other token has a say.",
        "Mean and variance over the last dimension, kept as a dimension of size 1 so that they broadcast. "
        "Where exactly does eps go?",
        "(x - mean) / sqrt(variance + eps) · gain + bias, with mean and variance of shape (B, T, 1) and "
        "variance = mean((x - mean)²).",
        "def layer_norm(x, gain, bias, eps):\n    mean = x.mean(dim=-1, keepdim=True)\n    variance = ...\n"
        "    return ... * gain + bias",
    ),
    solution="""
def layer_norm(x, gain, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias
""",
    also_correct=(
        "import torch.nn.functional as F\n"
        "def layer_norm(x, gain, bias, eps):\n"
        "    return F.layer_norm(x, gain.shape, gain, bias, eps)\n",
        "import torch\n"
        "def layer_norm(x, gain, bias, eps):\n"
        "    variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=0)\n"
        "    return torch.addcmul(bias, x - mean, gain * torch.rsqrt(variance + eps))\n",
        "import torch\n"
        "def layer_norm(x, gain, bias, eps):\n"
        "    def one(v):\n"
        "        d = v - v.sum() / len(v)\n"
        "        return gain * d / (d @ d / len(v) + eps) ** 0.5 + bias\n"
        "    return torch.stack([torch.stack([one(v) for v in text]) for text in x])\n",
        "from gptlab import GPTConfig\nfrom gptlab.block import Block\nfrom torch.func import functional_call\n"
        "def layer_norm(x, gain, bias, eps):\n"
        "    block = Block(GPTConfig(n_embd=x.shape[-1], n_head=1, layer_norm_epsilon=eps))\n"
        "    return functional_call(block.ln_1, {'weight': gain, 'bias': bias}, (x,))\n",
    ),
)
