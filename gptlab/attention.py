"""Causal self-attention: each position reads the ones before it and itself, and no other."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gptlab.cache import LayerCache
from gptlab.config import GPTConfig


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H T D"]:
    """Attention, step by step: softmax(q kᵀ / √D + mask) v.

    The T queries are the last T of S positions: query i stands in position S - T + i and reads the keys
    up to that position. Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    Args:
        q: queries.
        k: keys, of all S ≥ T positions.
        v: values, of all S positions.
        dropout: the share of attention weights set to zero, 0 outside training.

    Raises:
        ValueError: there are more queries than keys, or keys without values.
    """
    T, S = _lengths(q, k, v)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    future = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
    weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return F.dropout(weights, dropout) @ v


def attend_sdpa(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H T D"]:
    """The same function by PyTorch's fused kernel, which never stores the T × S weights.

    ``is_causal=True`` would line up the first query with the first key. That is right only when T = S,
    so with cached keys the mask is spelled out; a single query, the last position, needs none.
    Source: Dao et al. 2022 for the kernel's idea.
    """
    T, S = _lengths(q, k, v)
    if T == S:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    past = None if T == 1 else torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=past, dropout_p=dropout)


def _lengths(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int]:
    T, S = q.shape[-2], k.shape[-2]
    if k.shape != v.shape:  # the fused kernel would read past the end of the shorter one
        raise ValueError(
            f"keys of shape {tuple(k.shape)} but values of shape {tuple(v.shape)}: give one for each"
        )
    if T > S:
        raise ValueError(f"{T} queries but {S} keys: each query's own position must have a key")
    return T, S


def split_heads(x: Float[Tensor, "B T C"], n_head: int) -> Float[Tensor, "B H T D"]:
    """Cut the C features into ``n_head`` groups of D = C / H, and put the heads before the positions."""
    return x.unflatten(-1, (n_head, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
    """Undo :func:`split_heads`."""
    return x.transpose(1, 2).flatten(-2)


class CausalSelfAttention(nn.Module):
    """Queries, keys and values for all heads in one matrix product; attention; the output projection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        C = config.n_embd
        self.n_head = config.n_head
        self.attn_pdrop = config.attn_pdrop
        self.c_attn = nn.Linear(C, 3 * C)  # Q, K and V side by side
        self.c_proj = nn.Linear(C, C)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: Float[Tensor, "B T C"], cache: LayerCache | None = None) -> Float[Tensor, "B T C"]:
        q, k, v = (split_heads(part, self.n_head) for part in self.c_attn(x).chunk(3, dim=-1))
        if cache is not None:
            k, v = cache.append(k, v)
        y = attend_sdpa(q, k, v, self.attn_pdrop if self.training else 0.0)
        return self.resid_dropout(self.c_proj(merge_heads(y)))
