"""Keys and values of the positions already read, so that generation reads each token once."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gptlab.config import GPTConfig


class LayerCache:
    """The cache of one block: buffers of (B, H, capacity, D), of which the first ``length`` are filled."""

    def __init__(self, k: Float[Tensor, "B H S D"], v: Float[Tensor, "B H S D"]) -> None:
        self.k, self.v = k, v
        self.length = 0

    def append(
        self, k: Float[Tensor, "B H T D"], v: Float[Tensor, "B H T D"]
    ) -> tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S D"]]:
        """Store the keys and values of T new positions; return those of all positions so far.

        Raises:
            ValueError: the batch size or the heads are others than the cache's, or the cache is full.
            RuntimeError: the keys carry a gradient. A cache is for inference.
        """
        B, H, T, D = k.shape
        capacity, end = self.k.shape[2], self.length + T
        if len(self.k) != B:
            raise ValueError(f"the cache is for batch_size={len(self.k)}, but the input has {B} rows")
        if self.k.shape[1] != H or self.k.shape[3] != D:
            raise ValueError(
                f"the cache is for {self.k.shape[1]} heads of width {self.k.shape[3]}, the model has {H} of width {D}"
            )
        if end > capacity:
            raise ValueError(
                f"the cache holds {capacity} positions, {self.length} are filled and {T} more do not fit: "
                f"make a new KVCache"
            )
        if k.requires_grad:
            raise RuntimeError("a KVCache keeps no gradients: call the model under torch.no_grad()")
        self.k[:, :, self.length : end] = k
        self.v[:, :, self.length : end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


class KVCache:
    """One :class:`LayerCache` per block. It belongs to the caller; the model stores nothing.

    It takes 2 · L · C · ``max_length`` values per row of the batch.

    Args:
        config: the model's config.
        batch_size: the number of rows, B.
        max_length: how many positions it can hold; ``config.n_positions`` unless given.
        dtype: of the model's weights.
        device: of the model's weights.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch_size: int,
        *,
        max_length: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        length = config.n_positions if max_length is None else max_length
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        if not 1 <= length <= config.n_positions:
            raise ValueError(f"max_length={length} must be between 1 and n_positions={config.n_positions}")
        shape = (batch_size, config.n_head, length, config.head_dim)

        def empty() -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.layers = [LayerCache(empty(), empty()) for _ in range(config.n_layer)]

    @property
    def length(self) -> int:
        """How many positions the model has read so far. The next token stands in this position."""
        return self.layers[-1].length

    def rewind(self) -> int:
        """Set every layer to :attr:`length`: a step that failed half-way left the first blocks ahead."""
        for layer in self.layers:
            layer.length = self.length
        return self.length

    @property
    def nbytes(self) -> int:
        """The size of the buffers in bytes."""
        return sum(layer.k.nbytes + layer.v.nbytes for layer in self.layers)
