"""Chapter 4: attention, then the MLP, each adding to the residual stream."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.catalogue import causal_attention, layer_norm, mlp
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Generator, Tensor


def reference(
    x: Tensor, weights: dict[str, Tensor], n_head: int, on: frozenset[str] = NOTHING_WRONG
) -> Tensor:
    def norm(name: str, x: Tensor) -> Tensor:
        if "one-norm" in on:
            name = "ln_1"
        if "no-norm" in on:
            return x
        return layer_norm.reference(x, weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)

    def attention(x: Tensor) -> Tensor:
        return causal_attention.reference(x, part(weights, "attn"), n_head, on & {"no-mask"})

    def wide(x: Tensor) -> Tensor:
        return mlp.reference(x, part(weights, "mlp"), on & {"erf"})

    if "post-norm" in on:
        x = norm("ln_1", x + attention(x))
        return norm("ln_2", x + wide(x))
    steps = [("ln_1", attention, "no-first-residual"), ("ln_2", wide, "no-second-residual")]
    if "mlp-first" in on:
        steps.reverse()
    start = x
    for name, sublayer, forgets in steps:
        normed = norm(name, start if "parallel" in on else x)
        stream = normed if "adds-normed" in on else x
        x = sublayer(normed) if forgets in on else stream + sublayer(normed)
    return x


def part(weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors whose names start with ``name.``, under the rest of their names."""
    return {key.removeprefix(f"{name}."): t for key, t in weights.items() if key.startswith(f"{name}.")}


def cases(rng: random.Random) -> list[tuple[Tensor, dict[str, Tensor], int]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, H: int, D: int) -> tuple[Tensor, dict[str, Tensor], int]:
        x = 2 * torch.randn(B, T, H * D, generator=generator)
        return x, random_weights(H * D, generator), H

    return [case(2, 5, 3, 4), case(1, 1, 2, 3), case(3, 4, 2, 5), case(2, 3, 4, 2)]


def random_weights(C: int, generator: Generator) -> dict[str, Tensor]:
    """The block's twelve tensors under the checkpoint's names, in nn.Linear's layout."""
    import torch

    def norm() -> dict[str, Tensor]:
        return {
            "weight": 1 + 0.5 * torch.randn(C, generator=generator),
            "bias": torch.randn(C, generator=generator),
        }

    parts = {
        "ln_1": norm(),
        "attn": causal_attention.random_weights(C, generator),
        "ln_2": norm(),
        "mlp": mlp.random_weights(C, generator),
    }
    return {f"{name}.{key}": tensor for name, tensors in parts.items() for key, tensor in tensors.items()}


EXERCISE = Exercise(
    name="block",
    chapter=4,
    task="block(x, weights, n_head) computes one block of GPT-2: LayerNorm, attention, and the sum with what came in; "
    "LayerNorm, MLP, and again the sum. x and the result have shape (B, T, C). weights is a dict with the "
    "checkpoint's names: ln_1.weight, ln_1.bias, attn.c_attn.weight, attn.c_attn.bias, attn.c_proj.weight, "
    "attn.c_proj.bias, the same for ln_2, mlp.c_fc and mlp.c_proj. The matrices are as nn.Linear holds them, "
    "(outputs, inputs); LayerNorm's eps is 1e-5.",
    difficulty="medium",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "post-norm",
            "LayerNorm comes after each sum, as in the first transformer (Post-LN). GPT-2 normalises at the input of "
            "each sublayer and leaves the stream itself alone: x + attention(norm(x)).",
        ),
        Mistake(
            "no-first-residual",
            "attention replaces the stream. Its result should be added: x + attention(norm(x)).",
        ),
        Mistake(
            "no-second-residual",
            "the MLP replaces the stream. Its result should be added: x + mlp(norm(x)).",
        ),
        Mistake(
            "adds-normed",
            "the sublayer's result is added to the normalised x. Add it to x as it came in; only the "
            "sublayer reads the normalised one.",
        ),
        Mistake(
            "parallel",
            "attention and MLP both read the block's input. The MLP comes second and reads the stream to which "
            "attention has added already.",
        ),
        Mistake("one-norm", "ln_1 is used twice. The MLP has a LayerNorm of its own, ln_2."),
        Mistake("no-norm", "the LayerNorms are missing. Each sublayer reads a normalised stream."),
        Mistake("mlp-first", "the MLP comes before attention. Attention is first."),
        Mistake("no-mask", "attention has no mask: a later token changes the output at an earlier position."),
        Mistake("erf", "the MLP's GELU is the exact one, with erf. GPT-2's is the tanh form."),
    ),
    cases=cases,
    probes=(gradient_reaches("x", "weights", ""),),
    hints=(
        "Picture a stream that runs through the block unchanged. Two sublayers read it, and each adds something to it.",
        "What a sublayer reads is normalised. What it adds to is not.",
        "x = x + causal_attention(layer_norm(x, ln_1), ...), then x = x + mlp(layer_norm(x, ln_2), ...). The names of "
        'a part\'s weights are yours without the prefix: "attn.c_attn.weight" is its "c_attn.weight".',
        "def block(x, weights, n_head):\n    x = x + causal_attention(...)\n    x = x + mlp(...)\n    return x",
    ),
    solution="""
import torch.nn.functional as F

def block(x, weights, n_head):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], eps=1e-5)

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    B, T, C = x.shape
    qkv = linear(norm(x, "ln_1"), "attn.c_attn")
    q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
    x = x + linear(y, "attn.c_proj")
    hidden = F.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh")
    return x + linear(hidden, "mlp.c_proj")
""",
    also_correct=(
        "from torch.func import functional_call\n"
        "from gptlab import GPTConfig\nfrom gptlab.block import Block\n"
        "def block(x, weights, n_head):\n"
        "    module = Block(GPTConfig(n_embd=x.shape[-1], n_head=n_head)).eval()\n"
        "    return functional_call(module, weights, (x,))\n",
        "import torch\nimport torch.nn.functional as F\n"
        "from gptlab.attention import attend, merge_heads, split_heads\n"
        "def block(x, weights, n_head):\n"
        "    w = weights\n"
        "    def norm(x, n):\n"
        "        d = x - x.mean(-1, keepdim=True)\n"
        "        return d / (d.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f'{n}.weight'] + w[f'{n}.bias']\n"
        "    qkv = norm(x, 'ln_1') @ w['attn.c_attn.weight'].T + w['attn.c_attn.bias']\n"
        "    a = merge_heads(attend(*(split_heads(p, n_head) for p in qkv.chunk(3, -1))))\n"
        "    x = a @ w['attn.c_proj.weight'].T + w['attn.c_proj.bias'] + x\n"
        "    h = F.gelu(norm(x, 'ln_2') @ w['mlp.c_fc.weight'].T + w['mlp.c_fc.bias'], approximate='tanh')\n"
        "    return h @ w['mlp.c_proj.weight'].T + w['mlp.c_proj.bias'] + x\n",
        "import torch\nfrom torch.func import functional_call\n"
        "from gptlab import GPTConfig\nfrom gptlab.attention import CausalSelfAttention\nfrom gptlab.mlp import MLP\n"
        "def block(x, weights, n_head):\n"
        "    config = GPTConfig(n_embd=x.shape[-1], n_head=n_head, resid_pdrop=0.0, attn_pdrop=0.0)\n"
        "    parts = {'attn': CausalSelfAttention(config), 'mlp': MLP(config)}\n"
        "    for ln, (name, module) in zip(('ln_1', 'ln_2'), parts.items()):\n"
        "        own = {k.split('.', 1)[1]: t for k, t in weights.items() if k.startswith(name)}\n"
        "        normed = torch.layer_norm(x, x.shape[-1:], weights[ln + '.weight'], weights[ln + '.bias'])\n"
        "        x = x + functional_call(module, own, (normed,))\n"
        "    return x\n",
    ),
)
