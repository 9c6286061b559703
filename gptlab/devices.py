"""Where to compute."""

from __future__ import annotations

import torch


def device() -> torch.device:
    """The fastest device that this machine offers: CUDA, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
