"""Chapter 11: attention of one new token, the keys and values of earlier ones at hand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.outputs import named

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    q: Tensor, K: Tensor, V: Tensor, k: Tensor, v: Tensor, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor]:
    import torch

    if "crosswise" in on:
        k, v = v, k
    parts = [(k, K), (v, V)] if "new-one-first" in on else [(K, k), (V, v)]
    all_K, all_V = (torch.cat(pair, dim=2) for pair in parts)
    keys, values = all_K, all_V
    if "before-appending" in on:
        keys, values = K, V
    if "ignores-cache" in on:
        keys, values = k, v
    if "exchanged" in on:
        keys, values = values, keys
    H, D = q.shape[1], q.shape[3]
    scores = q @ keys.mT / (1 if "unscaled" in on else H * D if "model-width" in on else D) ** 0.5
    if "is-causal" in on:
        scores = scores.masked_fill(torch.arange(scores.shape[-1]) > 0, float("-inf"))
    y = scores.softmax(-2 if "over-queries" in on else -1) @ values
    return {"y": y, "K": K if "not-kept" in on else all_K, "V": V if "not-kept" in on else all_V}


def cases(rng: random.Random) -> list[tuple[Tensor, ...]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, H: int, S: int, D: int) -> tuple[Tensor, ...]:
        return tuple(2 * torch.randn(B, H, n, D, generator=generator) for n in (1, S, S, 1, 1))

    return [case(2, 3, 5, 4), case(1, 2, 0, 3), case(2, 2, 1, 5), case(3, 4, 7, 6)]


EXERCISE = Exercise(
    name="kv_step",
    chapter=11,
    task="kv_step(q, K, V, k, v) attends from one new token to itself and to the S tokens before it. q, k and v are the "
    "new token's query, key and value, shape (B, H, 1, D); K and V are the cache, the keys and values of the earlier "
    "tokens, (B, H, S, D). S is 0 for the first token. It returns y, K, V: the output (B, H, 1, D), and the cache with "
    "the new token at its end, (B, H, S + 1, D).",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "before-appending",
            "the cache is right, but the output is that of the S earlier tokens alone: the new one does not read "
            "itself. Append k and v first, then attend to all S + 1.",
        ),
        Mistake(
            "ignores-cache",
            "the new token reads itself alone, so its output is v. Attend to all S + 1 keys and values.",
        ),
        Mistake(
            "exchanged",
            "the cache is right, but in the product keys and values are exchanged. The scores are q Kᵀ, the output "
            "is the weights times V.",
        ),
        Mistake(
            "crosswise",
            "the key is appended to V and the value to K. k belongs to K, v to V.",
        ),
        Mistake(
            "is-causal",
            "the new token reads the first one only: with one query, is_causal=True lines it up with key 0. The new "
            "token is the last: it may read all, so leave the mask out.",
        ),
        Mistake(
            "new-one-first",
            "the output is right, for attention knows no order, but the new token stands first in the cache. Append "
            "it at the end, so that place i holds position i: torch.cat([K, k], dim=2).",
        ),
        Mistake(
            "not-kept",
            "the output is right, but the cache is returned as it came, without the new token. Return the longer K "
            "and V.",
        ),
        Mistake("unscaled", "the scores are not scaled. Divide them by √D. (SDPA does that by itself.)"),
        Mistake("model-width", "the scores are divided by √C = √(H · D). Divide by √D."),
        Mistake(
            "over-queries",
            "softmax runs over the queries. There is one, so every weight is 1. For it the weights of all keys add up "
            "to 1: dim=-1.",
        ),
    ),
    cases=cases,
    adapt=named("y", "K", "V"),
    hints=(
        "The last row of a causal attention, and nothing else: all other rows have been computed before.",
        "First the cache, then attention. What does the mask hide from the last token?",
        "K = torch.cat([K, k], dim=2): (B, H, S + 1, D), V likewise. y = softmax(q Kᵀ / √D) V, with scores of shape "
        "(B, H, 1, S + 1).",
        "def kv_step(q, K, V, k, v):\n    K = torch.cat(...)\n    V = ...\n    y = ...\n    return y, K, V",
    ),
    solution="""
import torch

def kv_step(q, K, V, k, v):
    K = torch.cat([K, k], dim=2)
    V = torch.cat([V, v], dim=2)
    weights = (q @ K.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ V, K, V
""",
    also_correct=(
        "import torch\nimport torch.nn.functional as F\n"
        "def kv_step(q, K, V, k, v):\n"
        "    K, V = torch.cat((K, k), -2), torch.cat((V, v), -2)\n"
        "    return F.scaled_dot_product_attention(q, K, V), K, V\n",
        "from gptlab.attention import attend\nfrom gptlab.cache import LayerCache\n"
        "def kv_step(q, K, V, k, v):\n"
        "    B, H, S, D = K.shape\n"
        "    cache = LayerCache(K.new_zeros(B, H, S + 1, D), V.new_zeros(B, H, S + 1, D))\n"
        "    cache.append(K, V)\n"
        "    K, V = cache.append(k, v)\n"
        "    return attend(q, K, V), K, V\n",
        "import torch\n"
        "def kv_step(q, K, V, k, v):\n"
        "    B, H, S, D = K.shape\n"
        "    K2, V2, y = torch.empty(B, H, S + 1, D), torch.empty(B, H, S + 1, D), torch.empty(B, H, 1, D)\n"
        "    for b in range(B):\n"
        "        for h in range(H):\n"
        "            K2[b, h], V2[b, h] = torch.vstack([K[b, h], k[b, h]]), torch.vstack([V[b, h], v[b, h]])\n"
        "            s = torch.mv(K2[b, h], q[b, h, 0]) / D**0.5\n"
        "            y[b, h, 0] = s.softmax(0) @ V2[b, h]\n"
        "    return [y, K2, V2]\n",
        "import torch\n"
        "def kv_step(q, K, V, k, v):\n"
        "    old, own = torch.einsum('bhtd,bhsd->bhts', q, K), (q * k).sum(-1, keepdim=True)\n"
        "    e = (torch.cat([old, own], -1) * q.shape[-1] ** -0.5).double().exp()\n"
        "    w = e / e.sum(-1, keepdim=True)\n"
        "    y = w[..., :-1] @ V.double() + w[..., -1:] * v\n"
        "    return y.float(), torch.cat([K, k], 2), torch.cat([V, v], 2)\n",
    ),
)
