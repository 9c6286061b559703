"""Matrix products in half precision, on a CPU that has no instructions for them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEWEST_ROWS = 8  # from here on, making the matrix float32 costs less than it saves (benchmarks/README.md)


def upcast_if_emulated(weight: Tensor, rows: int) -> AbstractContextManager[object]:
    """:class:`UpcastProducts` where products of ``rows`` rows with weights like this one would be emulated.

    That is: in half precision, on an x86 processor that has AVX2 and no AVX-512. Elsewhere it changes nothing.
    """
    half = weight.dtype in (torch.bfloat16, torch.float16)
    emulated = weight.device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX2"
    return UpcastProducts() if half and emulated and rows >= FEWEST_ROWS else nullcontext()


class UpcastProducts(TorchFunctionMode):
    """Inside it, ``F.linear`` of eight rows or more with half-precision weights works on a float32 copy of them.

    Where such products are emulated, reading a prompt in bfloat16 takes longer than in float32. A product with one
    row is another matter: it waits for memory, of which half precision reads less. The sums are in float32 either
    way, and the result is rounded once. The copy of a weight lives for one product.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is F.linear and args[0].numel() >= FEWEST_ROWS * args[0].shape[-1]:
            x, weight, bias = args
            return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
        return function(*args, **(kwargs or {}))
