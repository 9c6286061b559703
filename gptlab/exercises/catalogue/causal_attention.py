"""Chapter 3: the whole attention sublayer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Generator, Tensor


def reference(
    x: Tensor, weights: dict[str, Tensor], n_head: int, on: frozenset[str] = NOTHING_WRONG
) -> Tensor:
    import torch

    B, T, C = x.shape
    if "mixes-texts" in on:
        x = x.reshape(1, B * T, C)
    H = 1 if "one-head" in on else n_head
    qkv = x @ weights["c_attn.weight"].mT
    if "no-qkv-bias" not in on:
        qkv = qkv + weights["c_attn.bias"]
    if "per-head" in on:
        q, k, v = qkv.unflatten(-1, (H, 3, C // H)).permute(3, 0, 2, 1, 4)
    else:
        parts = qkv.unflatten(-1, (C, 3)).unbind(-1) if "every-third" in on else qkv.chunk(3, dim=-1)
        q, k, v = (_split(part, H, on) for part in parts)
    if "k-v-exchanged" in on:
        k, v = v, k
    if "q-k-exchanged" in on:
        q, k = k, q
    if "averages-x" in on:
        v = _split(x, H, on)
    scale = C if "model-width" in on else 1 if "unscaled" in on else C // H
    scores = q @ k.mT / scale**0.5
    if "no-mask" not in on:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    y = scores.softmax(-1) @ v
    y = (y if "merge-mixes" in on else y.transpose(1, 2)).reshape(B, T, C)
    if "no-projection" in on:
        return y
    W = weights["c_proj.weight"]
    y = y @ (W if "projection-transposed" in on else W.mT)
    return y if "no-projection-bias" in on else y + weights["c_proj.bias"]


def _split(part: Tensor, H: int, on: frozenset[str]) -> Tensor:
    B, T, C = part.shape
    if "split-mixes" in on:
        return part.reshape(B, H, T, C // H)
    return part.reshape(B, T, H, C // H).transpose(1, 2)


def cases(rng: random.Random) -> list[tuple[Tensor, dict[str, Tensor], int]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, H: int, D: int) -> tuple[Tensor, dict[str, Tensor], int]:
        x = torch.randn(B, T, H * D, generator=generator)
        return x, random_weights(H * D, generator), H

    return [case(2, 5, 3, 4), case(1, 1, 2, 3), case(3, 4, 2, 5), case(1, 7, 3, 2), case(2, 3, 4, 6)]


def random_weights(C: int, generator: Generator) -> dict[str, Tensor]:
    """The sublayer's four tensors; scores come out large enough for the weights to differ."""
    import torch

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "c_attn.weight": 1.5 * normal(3 * C, C) / C**0.5,
        "c_attn.bias": normal(3 * C),
        "c_proj.weight": normal(C, C) / C**0.5,
        "c_proj.bias": normal(C),
    }


EXERCISE = Exercise(
    name="causal_attention",
    chapter=3,
    task="causal_attention(x, weights, n_head) computes GPT-2's attention sublayer: x of shape (B, T, C) becomes Q, "
    "K and V side by side, each is split into heads, each position reads itself and earlier ones, the heads are "
    "merged and projected. It returns shape (B, T, C). weights is a dict with the checkpoint's names: c_attn.weight "
    "(3C, C), c_attn.bias (3C), c_proj.weight (C, C), c_proj.bias (C). The matrices are as nn.Linear holds them, "
    "(outputs, inputs).",
    difficulty="hard",
    minutes=30,
    reference=reference,
    mistakes=(
        Mistake(
            "no-mask",
            "there is no mask: a later token changes the output at an earlier position. Hide the keys j > i before "
            "softmax, or call SDPA with is_causal=True.",
        ),
        Mistake(
            "no-projection",
            "the output projection is missing: the merged heads are returned as they are. Apply c_proj.",
        ),
        Mistake("no-projection-bias", "the output projection has lost its bias. Add c_proj.bias."),
        Mistake(
            "projection-transposed",
            "c_proj.weight is used the wrong way round. It is square, so no shape complains. It is held as (outputs, "
            "inputs): multiply by its transpose, as F.linear does.",
        ),
        Mistake(
            "k-v-exchanged",
            "K and V are exchanged. The 3C columns hold Q, then K, then V. Look at the order of the names to which "
            "the three parts go, or at the call of SDPA.",
        ),
        Mistake(
            "q-k-exchanged",
            "Q and K are exchanged: each position is weighed as if it asked the questions of the others. The 3C columns "
            "hold Q, then K, then V.",
        ),
        Mistake(
            "per-head",
            "the 3C columns are read head by head, each with its q, k and v. GPT-2 lays Q of all heads first, then K, "
            "then V: cut into three parts of C columns, then each part into heads.",
        ),
        Mistake(
            "every-third",
            "Q, K and V take every third column. They lie side by side: Q is the first C columns.",
        ),
        Mistake(
            "no-qkv-bias",
            "Q, K and V have lost their bias. Add c_attn.bias. (Its part for the keys alone would change nothing: it "
            "adds the same to all scores of a query, and softmax ignores that.)",
        ),
        Mistake(
            "averages-x",
            "the weights average x itself. They should average the values, V. The third part of c_attn's output is "
            "unused.",
        ),
        Mistake(
            "mixes-texts",
            "the texts of a batch influence each other: later ones read the earlier ones. Batch and time were joined "
            "into one dimension. Keep them apart.",
        ),
        Mistake(
            "unscaled",
            "the scores are not scaled. Divide them by √D, with D = C / n_head. (SDPA does that by itself.)",
        ),
        Mistake("model-width", "the scores are divided by √C. Divide by √D, with D = C / n_head."),
        Mistake(
            "one-head",
            "there is one head, C wide. n_head is unused: split Q, K and V into n_head heads of C / n_head numbers.",
        ),
        Mistake(
            "split-mixes",
            "the split into heads mixes tokens: (B, T, C) is viewed as (B, H, T, D) at once. View as (B, T, H, D), "
            "then transpose(1, 2).",
        ),
        Mistake(
            "merge-mixes",
            "the merging mixes tokens: (B, H, T, D) is reshaped to (B, T, C) at once. First transpose(1, 2), then "
            "reshape.",
        ),
    ),
    cases=cases,
    probes=(gradient_reaches("x", "weights", ""),),
    hints=(
        "You have written the parts: split_heads, scores, causal_mask, weighted_values, merge_heads. What is new are "
        "two matrix products, one in front and one behind.",
        "One product makes Q, K and V at once, 3C numbers. chunk(3, dim=-1) cuts them apart, in this order.",
        "qkv = F.linear(x, W, b): (B, T, 3C). Three parts (B, T, C), each split to (B, H, T, D). y = softmax(q kᵀ / √D, "
        "masked) v: (B, H, T, D). Merge to (B, T, C), then F.linear with c_proj.",
        'def causal_attention(x, weights, n_head):\n    qkv = F.linear(x, weights["c_attn.weight"], ...)\n'
        "    q, k, v = (split_heads(part, n_head) for part in ...)\n    y = ...\n"
        '    return F.linear(merge_heads(y), weights["c_proj.weight"], ...)',
    ),
    solution="""
import torch.nn.functional as F

def causal_attention(x, weights, n_head):
    B, T, C = x.shape
    qkv = F.linear(x, weights["c_attn.weight"], weights["c_attn.bias"])
    q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2).reshape(B, T, C)
    return F.linear(y, weights["c_proj.weight"], weights["c_proj.bias"])
""",
    also_correct=(
        "from torch.func import functional_call\n"
        "from gptlab import GPTConfig\nfrom gptlab.attention import CausalSelfAttention\n"
        "def causal_attention(x, weights, n_head):\n"
        "    layer = CausalSelfAttention(GPTConfig(n_embd=x.shape[-1], n_head=n_head)).eval()\n"
        "    return functional_call(layer, weights, (x,))\n",
        "import torch\n"
        "def causal_attention(x, weights, n_head):\n"
        "    C = x.shape[-1]\n"
        "    D, T = C // n_head, x.shape[1]\n"
        "    W, b = weights['c_attn.weight'], weights['c_attn.bias']\n"
        "    out = weights['c_proj.bias']\n"
        "    for h in range(n_head):\n"
        "        q, k, v = (\n"
        "            x @ W[s + h * D : s + (h + 1) * D].T + b[s + h * D : s + (h + 1) * D] for s in (0, C, 2 * C)\n"
        "        )\n"
        "        s = q @ k.transpose(1, 2) / D**0.5\n"
        "        s = s.masked_fill(torch.ones(T, T).tril() == 0, -torch.inf)\n"
        "        out = out + s.softmax(-1) @ v @ weights['c_proj.weight'][:, h * D : (h + 1) * D].T\n"
        "    return out\n",
        "import torch\nfrom gptlab.attention import attend, merge_heads, split_heads\n"
        "def causal_attention(x, weights, n_head):\n"
        "    qkv = torch.einsum('btc,dc->btd', x, weights['c_attn.weight']) + weights['c_attn.bias']\n"
        "    q, k, v = (split_heads(part, n_head) for part in qkv.split(x.shape[-1], dim=-1))\n"
        "    y = merge_heads(attend(q, k, v))\n"
        "    return torch.einsum('btc,dc->btd', y, weights['c_proj.weight']) + weights['c_proj.bias']\n",
        "import torch\n"
        "def causal_attention(x, weights, n_head):\n"
        "    B, T, C = x.shape\n"
        "    qkv = x @ weights['c_attn.weight'].T + weights['c_attn.bias']\n"
        "    q, k, v = qkv.reshape(B, T, 3, n_head, -1).permute(2, 0, 3, 1, 4)\n"
        "    rows = []\n"
        "    for t in range(T):\n"
        "        s = (q[:, :, t, None] * k[:, :, : t + 1]).sum(-1) / q.shape[-1] ** 0.5\n"
        "        rows.append((s.softmax(-1)[..., None] * v[:, :, : t + 1]).sum(2).flatten(1))\n"
        "    y = torch.stack(rows, dim=1)\n"
        "    return y @ weights['c_proj.weight'].T + weights['c_proj.bias']\n",
    ),
)
