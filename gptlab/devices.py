"""Where to compute, and whether there is anything to compute with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def device() -> torch.device:
    """The fastest device that this machine offers: CUDA, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def has_values(tensor: Tensor) -> bool:
    """Whether a tensor's values can be looked at: not on ``meta``, in a fake tensor, or while compiling."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor) or torch.compiler.is_compiling())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up. Python, CUDA and each allocator say it in their own way."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = ("out of memory", "not enough memory", "allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError | OSError) and any(text in str(error) for text in words)
