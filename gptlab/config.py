"""The numbers that define a GPT-2. Everything else in the package follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Sizes and settings of a GPT-2, under the names that GPT-2's ``config.json`` uses.

    The defaults are GPT-2 small, 124,439,808 parameters. A config never changes: make a variant
    with ``dataclasses.replace(config, n_layer=2)``. Source: Radford et al. 2019, section 2.3 and
    table 2; dropout 0.1 and ``initializer_range`` 0.02 are those of the published config.

    Raises:
        TypeError: a size is not an integer, or a rate not a number.
        ValueError: a value is out of range, or ``n_embd`` is not divisible by ``n_head``.
    """

    vocab_size: int = 50257
    """V, the number of tokens."""
    n_positions: int = 1024
    """The longest context, in tokens."""
    n_embd: int = 768
    """C, the width of the residual stream."""
    n_layer: int = 12
    """L, the number of blocks."""
    n_head: int = 12
    """H, the number of attention heads in a block."""
    embd_pdrop: float = 0.1
    """Dropout on the input tensor, while training."""
    attn_pdrop: float = 0.1
    """Dropout on the attention weights, while training."""
    resid_pdrop: float = 0.1
    """Dropout on what a sublayer adds to the residual stream, while training."""
    layer_norm_epsilon: float = 1e-5
    """Added to the variance in LayerNorm, inside the root."""
    initializer_range: float = 0.02
    """Standard deviation of fresh weights."""
    tie_word_embeddings: bool = True
    """Whether the output head is the token table itself, as in GPT-2."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r} must be an integer")
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop", "layer_norm_epsilon", "initializer_range"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r} must be a number")
            if name.endswith("pdrop") and not 0 <= value < 1:
                raise ValueError(f"{name}={value} must be at least 0 and below 1")
            if not name.endswith("pdrop") and not 0 < value < float("inf"):
                raise ValueError(f"{name}={value} must be positive and finite")
        if not isinstance(self.tie_word_embeddings, bool):
            raise TypeError(f"tie_word_embeddings={self.tie_word_embeddings!r} must be True or False")
        if self.n_embd % self.n_head:
            raise ValueError(
                f"n_embd={self.n_embd} must be divisible by n_head={self.n_head}: "
                f"each head gets an equal share"
            )

    @property
    def head_dim(self) -> int:
        """D = C / H, the width of one attention head."""
        return self.n_embd // self.n_head


PRESETS: Mapping[str, GPTConfig] = MappingProxyType(
    {
        "gpt2": GPTConfig(),
        "gpt2-medium": GPTConfig(n_layer=24, n_head=16, n_embd=1024),
        "gpt2-large": GPTConfig(n_layer=36, n_head=20, n_embd=1280),
        "gpt2-xl": GPTConfig(n_layer=48, n_head=25, n_embd=1600),
    }
)
"""The four published sizes: 124M, 355M, 774M and 1.5B parameters."""
