"""How many bytes the weights take as int8. Like every formula here it needs no PyTorch."""

from __future__ import annotations

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger


def quantized_bytes(config: GPTConfig) -> int:
    """Bytes of all tensors of a model from :func:`gptlab.quantization.quantize`, a tied head counted once.

    A matrix takes one byte for each weight and four, a float32 scale, for each row. Biases and LayerNorms stay
    float32.

    >>> quantized_bytes(GPTConfig())
    125340740
    """
    total = 0
    for tensor in Ledger.from_config(config):
        is_matrix = len(tensor.shape) == 2
        total += tensor.parameters + 4 * tensor.shape[0] if is_matrix else 4 * tensor.parameters
    return total
