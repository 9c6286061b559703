"""The head and the loss in one: the same number as token_loss(logits, targets), in less time and memory.

Logits are the largest tensor of a training step: N × 50,257 numbers for N positions, and the plain way holds
three of that size, the logits, their logarithmic softmax and its gradient. Here one buffer serves them all, for a
few hundred positions at a time, and each gradient is computed while the numbers are still near the processor.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from gptlab.devices import has_values
from gptlab.unembedding import check_targets

ROWS = 512  # positions at a time: the buffer holds ROWS × V numbers, 103 MB for GPT-2
COLUMNS = 4096  # tokens at a time in the product that fills it; wider products run slower on CPUs


def fused_token_loss(
    hidden: Float[Tensor, "B T C"],
    W_U: Float[Tensor, "C V"],
    targets: Int[Tensor, "B T"],
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """``token_loss(hidden @ W_U, targets)``, for training: the gradients are computed along with the loss.

    Args:
        hidden: the final hidden states, after ``ln_f``.
        W_U: the unembedding, ``model.lm_head.weight.T``.
        targets: the right token at each position.
        ignore_index: the mark for a position without a target.

    Raises:
        ValueError: as :func:`gptlab.unembedding.token_loss`.
    """
    check_targets(hidden.shape[:-1], targets, W_U.shape[-1], ignore_index)
    counts = (targets != ignore_index).flatten()
    wanted = targets.flatten().long().where(counts, 0)  # an ignored position has some target, and weight 0
    return _FusedLoss.apply(hidden.flatten(0, 1), W_U.T, wanted, counts / counts.sum())


class _FusedLoss(torch.autograd.Function):
    """Σₙ weightₙ · cross-entropy of row n, and its gradients by hₙ and W: (softmax - one-hot) times the other."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Float[Tensor, "N C"],
        W: Float[Tensor, "V C"],
        targets: Int[Tensor, " N"],
        weights: Float[Tensor, " N"],
    ) -> Float[Tensor, ""]:
        learns = any(ctx.needs_input_grad)
        loss, dh, dW = h.new_zeros(()), torch.empty_like(h), torch.zeros_like(W) if learns else None
        buffer = h.new_empty(min(ROWS, len(h)), len(W))
        for start in range(0, len(h), ROWS):
            rows = slice(start, start + ROWS)
            x, weight, target = h[rows], weights[rows, None].to(h), targets[rows, None]
            logits = buffer[: len(x)]
            for first in range(0, len(W), COLUMNS):
                columns = slice(first, first + COLUMNS)
                torch.mm(x, W[columns].T, out=logits[:, columns])
            log_p = torch.log_softmax(logits, dim=-1, out=logits)
            loss -= (weight * log_p.gather(-1, target)).sum()
            if dW is not None:
                d_logits = log_p.exp_()
                d_logits.scatter_add_(-1, target, -torch.ones_like(weight))
                dh[rows] = (d_logits @ W) * weight
                dW.addmm_(d_logits.T, x * weight)
        if dW is not None:
            ctx.save_for_backward(dh, dW)
        return loss

    @staticmethod
    @once_differentiable  # dh and dW are constants here: a gradient of the gradient would come out wrong
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        dh, dW = ctx.saved_tensors
        if not is_one(gradient):
            dh, dW = dh * gradient, dW * gradient
        return dh, dW, None, None


def is_one(gradient: Float[Tensor, ""]) -> bool:
    """Whether the loss itself is what ``backward()`` starts from, so that nothing need be multiplied and copied.

    A value that cannot be seen, for instance while compiling, may be any: the answer is no.
    """
    return has_values(gradient) and bool(gradient == 1)
