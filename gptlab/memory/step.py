"""The training step whose memory is predicted and measured: what is trained, on how much, and in which way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gptlab.config import GPTConfig

Precision = Literal["fp32", "amp", "bf16", "master"]
Attention = Literal["sdpa", "explicit"]
Loss = Literal["full", "chunked", "fused"]
Optimizer = Literal["fused", "foreach", "loop"]
N_CHUNKS = 8  # of the chunked loss, as in gptlab.unembedding


@dataclass(frozen=True)
class TrainingStep:
    """One step of AdamW on the mean loss of ``batch_size`` windows: ``loss = token_loss(model(x), y)``.

    The logits are never bound to a name, the gradients are set to None after the step, and the step is not the
    first: AdamW's moments are there. Dropout is the config's.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a value is out of range or unknown.
    """

    config: GPTConfig
    batch_size: int
    """B, the windows of a step."""
    context: int
    """T, the tokens of a window."""
    precision: Precision = "fp32"
    """``fp32``; ``amp``, PyTorch's autocast to bfloat16 over float32 weights; ``bf16``, everything; ``master``,
    bfloat16 with a float32 copy of the weights that AdamW changes (Micikevicius et al. 2018, section 3.1)."""
    attention: Attention = "sdpa"
    """``sdpa``, the fused kernel; ``explicit``, with the T × T weights in memory."""
    checkpointing: bool = False
    """Keep only each block's input, and compute the block again for the backward pass."""
    loss: Loss = "full"
    """``full``, with the logits of all positions; ``chunked``, of an eighth at a time, computed twice; ``fused``,
    :func:`gptlab.fused_loss.fused_token_loss`, which ``gptlab train`` uses."""
    optimizer: Optimizer = "fused"
    """The form of AdamW: one kernel for all tensors; operation by operation on lists; or tensor by tensor."""
    micro_batches: int = 1
    """Parts in which the batch goes through the model, one after the other."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "context", "micro_batches"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r} must be an integer")
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if self.context > self.config.n_positions:
            raise ValueError(
                f"context={self.context} is more than the model's n_positions={self.config.n_positions}"
            )
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size={self.batch_size} must be divisible by micro_batches={self.micro_batches}"
            )
        for name, known in (
            ("precision", get_args(Precision)),
            ("attention", get_args(Attention)),
            ("loss", get_args(Loss)),
            ("optimizer", get_args(Optimizer)),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {', '.join(known)}")
        if self.loss == "fused" and self.precision != "fp32":
            raise ValueError(f"loss='fused' computes in fp32, not {self.precision}: choose full or chunked")

    @property
    def rows(self) -> int:
        """The windows that go through the model at once."""
        return self.batch_size // self.micro_batches
