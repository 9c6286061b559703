"""The input tensor: what each token is, plus where it stands. X = W_E[t] + W_P[p]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def input_tensor(
    input_ids: Int[Tensor, "B T"],
    W_E: Float[Tensor, "V C"],
    W_P: Float[Tensor, "P C"],
    start: int = 0,
) -> Float[Tensor, "B T C"]:
    """Add to each token's row of ``W_E`` the row of ``W_P`` for the position it stands in.

    Source: Radford et al. 2018 (GPT-1), section 3.1, equation 2, which GPT-2 keeps.

    Args:
        input_ids: token ids, int64 or int32, each 0 to V - 1.
        W_E: the token table, one row per token.
        W_P: the position table, one row per position.
        start: the position of the first token; more than 0 when earlier ones are in a cache.

    Raises:
        TypeError: the ids are not integers.
        ValueError: a token id or a position has no row. (On a GPU an id without a row stops the kernel
            instead; :func:`gptlab.generate` checks its prompt on every device.)
    """
    positions = positions_of(input_ids, start, len(W_P))
    try:
        return F.embedding(input_ids, W_E) + F.embedding(positions, W_P)
    except IndexError:
        check_range(input_ids, len(W_E))
        raise


def positions_of(input_ids: Int[Tensor, "B T"], start: int, n_positions: int) -> Int[Tensor, " T"]:
    """The positions that the tokens of a row stand in, ``start`` and up.

    Raises:
        TypeError: the ids are not integers.
        ValueError: a position has no row.
    """
    check_ids(input_ids)
    end = start + input_ids.shape[1]
    if start < 0 or end > n_positions:
        raise ValueError(
            f"positions {start} to {end - 1} are asked for, but W_P has rows 0 to {n_positions - 1}: "
            f"give at most the last {n_positions} tokens"
        )
    return torch.arange(start, end, device=input_ids.device)


def check_ids(input_ids: Tensor) -> None:
    """Raise unless ``input_ids`` is a (B, T) tensor of int64 or int32 with at least one token."""
    if not isinstance(input_ids, Tensor):
        raise TypeError(f"input_ids must be a tensor, not {type(input_ids).__name__}: use torch.tensor(ids)")
    if input_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"token ids are integers, not {input_ids.dtype}: use input_ids.long()")
    if input_ids.ndim != 2:
        raise ValueError(
            f"input_ids must have shape (B, T), not {tuple(input_ids.shape)}: use input_ids[None] for one row"
        )
    if not input_ids.numel():
        raise ValueError(f"input_ids of shape {tuple(input_ids.shape)} hold no token: give at least one")


def check_range(input_ids: Tensor, vocab_size: int) -> None:
    """Raise a ValueError that names the first id outside 0 to ``vocab_size - 1``."""
    outside = (input_ids < 0) | (input_ids >= vocab_size)
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise ValueError(
            f"token id {input_ids[row, column].item()} at [{row}, {column}] is out of range: "
            f"valid ids are 0 to {vocab_size - 1}"
        )
