"""How much arithmetic one token costs: the work that the ledger's parameters do, and the work that needs none."""

from __future__ import annotations

from gptlab.config import GPTConfig


def forward_flops(config: GPTConfig, context: int | None = None) -> dict[str, int]:
    """Floating-point operations of a forward pass for one token of ``context``, by kind.

    A product with a matrix of n weights is n multiplications and n additions, 2n operations. Scores and
    weighted sums are counted for all T keys of each query, masked or not, as PyTorch's counter does; what
    takes only a few operations for each feature (biases, LayerNorm, GELU, softmax, lookups) is left out. The sum
    is 2(12C²L + VC) + 4TCL. The head costs the same tied or not.

    Args:
        config: gives C, L and V.
        context: T, the tokens of the text; ``n_positions`` without it.

    Raises:
        ValueError: the context is not from 1 to ``n_positions``.

    >>> sum(forward_flops(GPTConfig()).values())
    284812800
    """
    T = config.n_positions if context is None else context
    if not 1 <= T <= config.n_positions:
        raise ValueError(f"context={T} must be from 1 to n_positions={config.n_positions}")
    V, C, L = config.vocab_size, config.n_embd, config.n_layer
    return {
        "attention": 2 * 4 * C * C * L,
        "scores and sums": 2 * 2 * T * C * L,
        "MLP": 2 * 8 * C * C * L,
        "head": 2 * V * C,
    }
