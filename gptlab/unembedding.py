"""From logits to a loss: how surprised the model is by the token that came next."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gptlab.devices import has_values


def token_loss(
    logits: Float[Tensor, "*positions V"], targets: Int[Tensor, "*positions"], ignore_index: int = -100
) -> Float[Tensor, ""]:
    """Mean cross-entropy, in nats, of ``targets`` under ``logits``. Nothing is shifted.

    Args:
        logits: unnormalised scores. Pass float16 ones as ``logits.float()``: their sum overflows.
        targets: the right token at each position; where it is ``ignore_index``, the position does not count.
        ignore_index: the mark for a position without a target.

    Raises:
        TypeError: the targets are no integers.
        ValueError: the shapes do not fit, a target is out of range, or every position is ignored.
    """
    check_targets(logits.shape[:-1], targets, logits.shape[-1], ignore_index)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten().long(), ignore_index=ignore_index)


def next_token_loss(logits: Float[Tensor, "B T V"], input_ids: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The loss of predicting each token from the ones before it: position t is scored on token t + 1.

    For teaching. A batch whose targets are already shifted uses :func:`token_loss`.

    Raises:
        ValueError: there is only one token, so nothing comes next.
    """
    if input_ids.shape[1] < 2:
        raise ValueError(
            f"input_ids of shape {tuple(input_ids.shape)}: a next token needs at least two tokens"
        )
    return token_loss(logits[:, :-1], input_ids[:, 1:])


def chunked_token_loss(
    hidden: Float[Tensor, "B T C"],
    W_U: Float[Tensor, "C V"],
    targets: Int[Tensor, "B T"],
    ignore_index: int = -100,
    n_chunks: int = 8,
) -> Float[Tensor, ""]:
    """``token_loss(hidden @ W_U, targets)`` without ever holding the logits of all positions.

    The logits of one chunk of positions are computed, used and dropped; the backward pass computes them
    again (activation checkpointing, Chen et al. 2016).

    Args:
        hidden: the final hidden states, after ``ln_f``.
        W_U: the unembedding, ``model.lm_head.weight.T``.
        targets: the right token at each position.
        ignore_index: the mark for a position without a target.
        n_chunks: into how many chunks the B · T positions are cut.

    Raises:
        ValueError: as :func:`token_loss`, or ``n_chunks`` is below 1.
    """
    if n_chunks < 1:
        raise ValueError(f"n_chunks={n_chunks} must be at least 1")
    check_targets(hidden.shape[:-1], targets, W_U.shape[-1], ignore_index)

    def chunk_loss(rows: Tensor, wanted: Tensor) -> Tensor:
        logits = (rows @ W_U).float()  # in half precision the sum over many positions loses digits
        return F.cross_entropy(logits, wanted.long(), ignore_index=ignore_index, reduction="sum")

    again = partial(checkpoint, chunk_loss, use_reentrant=False, preserve_rng_state=False)  # nothing is drawn
    chunks = zip(hidden.flatten(0, 1).chunk(n_chunks), targets.flatten().chunk(n_chunks), strict=True)
    total = sum(again(rows, wanted) for rows, wanted in chunks)
    return total / (targets != ignore_index).sum()


def check_targets(shape: torch.Size, targets: Tensor, vocab_size: int, ignore_index: int) -> None:
    """Raise unless there is a valid target for each of the positions, and one that counts."""
    if targets.shape != shape:
        raise ValueError(f"targets of shape {tuple(targets.shape)} do not fit positions of {tuple(shape)}")
    if targets.dtype not in (torch.int64, torch.int32):  # no uint8: it cannot hold the mark -100
        raise TypeError(f"targets are token ids, integers, not {targets.dtype}: use targets.long()")
    if not has_values(targets):
        return
    counted = targets[targets != ignore_index]
    if not counted.numel():
        raise ValueError(
            f"every one of the {targets.numel()} targets is {ignore_index}: nothing is left to score"
        )
    lowest, highest = int(counted.min()), int(counted.max())
    if lowest < 0 or highest >= vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"target {wrong} is out of range: valid ids are 0 to {vocab_size - 1}, or {ignore_index}"
        )
