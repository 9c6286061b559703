"""One of GPT-2's twelve blocks: attention, then the MLP, each adding to the residual stream."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from gptlab.attention import CausalSelfAttention
from gptlab.cache import LayerCache
from gptlab.config import GPTConfig
from gptlab.mlp import MLP


class Block(nn.Module):
    """Pre-LN: LayerNorm stands at the input of each sublayer (Radford et al. 2019, section 2.3)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Float[Tensor, "B T C"], cache: LayerCache | None = None) -> Float[Tensor, "B T C"]:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))
