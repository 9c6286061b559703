"""int8 weights for inference: one byte a weight where float32 takes four, and one table for both its duties.

Each row of a matrix gets a scale, its largest magnitude divided by 127. A weight is rounded to a whole number of
scales, from -127 to 127, and so moves by at most half a scale. All else stays float32: biases, LayerNorms, and what
flows through the model. Source: Dettmers et al. 2022, section 2.1, absmax quantisation, there of inputs as well.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn

from gptlab.model import GPT

ROWS = 512  # of a matrix that are float32 at a time: few enough to stay in the processor's cache


def int8_rows(W: Float[Tensor, "R C"]) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Split a matrix into integers from -127 to 127 and a float32 scale for each row.

    A row of zeros has some positive scale, and stays zeros.

    Raises:
        ValueError: the matrix holds NaN or infinity.

    >>> int8_rows(torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 4.0]]))[0].tolist()
    [[0, 0, 0], [32, -64, 127]]
    """
    W = W.detach().float()
    if not W.isfinite().all():
        raise ValueError(
            f"the matrix of shape {tuple(W.shape)} holds NaN or infinity, which int8 cannot express"
        )
    smallest = torch.finfo(torch.float32).tiny  # instead of 0, by which nothing can be divided
    scale = (W.abs().amax(dim=1) / 127).clamp(min=smallest)
    return (W / scale[:, None]).round().to(torch.int8), scale


def dequantize(q: Int8[Tensor, "*rows C"], scale: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows C"]:
    """The rows that integers and scales stand for."""
    return q * scale[..., None]


class Int8Matrix(nn.Module):
    """What stands in the place of a weight of shape (R, C): it gives its rows, and products with all of them."""

    q: Int8[Tensor, "R C"]
    scale: Float[Tensor, " R"]

    def __init__(self, W: Float[Tensor, "R C"]) -> None:
        super().__init__()
        q, scale = int8_rows(W)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)

    def rows(self, ids: Int[Tensor, "*ids"]) -> Float[Tensor, "*ids C"]:
        """The rows with these numbers, W[ids]. Only they become float32.

        Raises:
            IndexError: a row is not there (on a GPU the kernel stops instead).
        """
        return F.embedding(ids, self.q) * F.embedding(ids, self.scale[:, None])

    def product(self, x: Float[Tensor, "*rows C"]) -> Float[Tensor, "*rows R"]:
        """x Wᵀ. A scale is the same along its row, so it waits until the sum over the row is there."""
        parts = [F.linear(x, q.to(x.dtype)) for q in self.q.split(ROWS)]
        return torch.cat(parts, dim=-1) * self.scale


class Int8Linear(nn.Module):
    """x Wᵀ + b, like nn.Linear."""

    def __init__(self, weight: Int8Matrix, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Float[Tensor, "*rows C"]) -> Float[Tensor, "*rows R"]:
        y = self.weight.product(x)
        return y if self.bias is None else y + self.bias


class Int8Embedding(nn.Module):
    """W[ids], like nn.Embedding."""

    def __init__(self, weight: Int8Matrix) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, ids: Int[Tensor, "*ids"]) -> Float[Tensor, "*ids C"]:
        return self.weight.rows(ids)


class Int8GPT(GPT):
    """A GPT that :func:`quantize` has filled: for inference alone."""


@torch.no_grad()
def quantize(model: GPT) -> Int8GPT:
    """A copy of a model with int8 matrices: blocks, token table, head and position table.

    It is on the CPU, in evaluation mode, and cannot be trained; :func:`gptlab.generate` takes it like any GPT. A
    head that is the token table is so still: ``lm_head.weight`` and ``wte.weight`` are one Int8Matrix. How many
    bytes it takes, :func:`gptlab.memory.weights.quantized_bytes` says.

    On held-out text, the logits of the model that ships with the package move by less than 5 % of the largest, over
    98 % of the positions keep their likeliest token, and the loss changes by less than 0.005 nats.

    Args:
        model: the model to copy, on any device, compiled or not. It is left as it was.

    Raises:
        TypeError: the model is quantised already.
        ValueError: a matrix holds NaN or infinity.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if isinstance(model, Int8GPT):
        raise TypeError("the model is an Int8GPT, quantised already: pass the GPT that it was made from")
    # An entry for each Parameter: a token table that is the head as well becomes one Int8Matrix.
    matrices: dict[Tensor, Int8Matrix] = {W: Int8Matrix(W.cpu()) for W in model.parameters() if W.ndim == 2}
    with torch.device("meta"):  # without values: every module that has any is replaced
        new = Int8GPT(model.config)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            new.set_submodule(name, Int8Embedding(matrices[module.weight]))
        elif isinstance(module, nn.Linear):
            new.set_submodule(name, Int8Linear(matrices[module.weight], deepcopy(module.bias)))
        elif isinstance(module, nn.LayerNorm):
            new.set_submodule(name, deepcopy(module))
    return new.to("cpu", torch.float32).requires_grad_(False).eval()
