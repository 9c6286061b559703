import errno

import numpy as np
import pytest
import torch

import gptlab
from gptlab.devices import is_out_of_memory


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_the_fastest_device_is_chosen(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert gptlab.device() == torch.device(expected)


@pytest.mark.parametrize("allocate", [torch.empty, torch.zeros, np.empty, bytearray])
def test_memory_that_cannot_be_had_is_recognised(allocate):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate(10**15)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory is a word in this text"), False),
    ],
)
def test_other_errors_are_not_taken_for_a_lack_of_memory(error, expected):
    assert is_out_of_memory(error) is expected
