"""The MLP: at each position alone, four times wider, GELU, and back."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gptlab.config import GPTConfig


class MLP(nn.Module):
    """C -> 4C -> C with GELU in between, in its tanh form as in OpenAI's code (Hendrycks and Gimpel 2016)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        C = config.n_embd
        self.c_fc = nn.Linear(C, 4 * C)
        self.c_proj = nn.Linear(4 * C, C)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.resid_dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))
