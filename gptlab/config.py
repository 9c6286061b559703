"""The numbers that define a GPT-2. Everything else in the package follows from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any


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


# Settings of Hugging Face's config.json that would make it another model than the one built here,
# each with the only value that the course's model stands for.
_FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def read_config(path: str | PathLike[str]) -> GPTConfig:
    """Read a ``config.json`` in Hugging Face's layout; keys that do not change the model are ignored.

    Raises:
        ValueError: the file is not a JSON object, or describes a model that is not a GPT-2.
    """
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except ValueError as err:
        raise ValueError(f"{path} is not valid JSON: {err}") from err
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(found).__name__}")
    for key, value in _FIXED.items():
        if found.get(key, value) != value:
            raise ValueError(f"{path}: {key}={found[key]!r}, but this package builds {key}={value!r} only")
    names = {field.name for field in fields(GPTConfig)}
    try:
        config = GPTConfig(**{key: value for key, value in found.items() if key in names})
    except (TypeError, ValueError) as err:
        raise ValueError(f"{path}: {err}") from err
    if found.get("n_inner") not in (None, 4 * config.n_embd):
        raise ValueError(
            f"{path}: n_inner={found['n_inner']!r}, but GPT-2's is 4 × n_embd = {4 * config.n_embd}"
        )
    return config


def config_json(config: GPTConfig) -> dict[str, Any]:
    """The content of a ``config.json`` that transformers reads as the same model."""
    end_of_text = config.vocab_size - 1  # GPT-2's only special token is its last one, 50256
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_FIXED,
        **asdict(config),
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
    }
