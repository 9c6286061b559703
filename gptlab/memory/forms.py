"""Memory predicted from the config, in bytes, without PyTorch.

The letters of the formulas: n_params parameters; L, C, H, V, T, B from the config and the batch; N = B · T tokens;
S = B · H · T² attention weights. The predictions are those of PyTorch's kernels on the CPU, of the version
:data:`MEASURED_WITH`: another one may keep other tensors. On a GPU a few differ: a dropout mask takes one byte a
number, and the library keeps buffers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger
from gptlab.memory.replay import replay, replay_prompt
from gptlab.memory.step import TrainingStep
from gptlab.memory.timeline import Timeline
from gptlab.memory.weights import quantized_bytes

MEASURED_WITH = "2.13.0"
"""The version of PyTorch whose steps the predictions were compared with, byte by byte."""

NOT_COUNTED = (
    "what Python, PyTorch's own code and the data loader take",
    "what the allocator rounds up, and holds back when a tensor is freed",
    "what a kernel takes for itself while it runs",
    "the random state that checkpointing keeps for dropout, 5,056 B a block",
    "on a GPU the CUDA context and the libraries' workspaces, several hundred MB",
    f"what another PyTorch does otherwise: the bytes were measured with PyTorch {MEASURED_WITH}",
)


def other_pytorch() -> str | None:
    """The version of PyTorch that is installed, if it is another one than the predictions were measured with."""
    try:
        installed = version("torch").partition("+")[0]  # 2.13.0+cpu: the same, built without CUDA
    except PackageNotFoundError:
        return None
    return None if installed == MEASURED_WITH else installed


@dataclass(frozen=True)
class TrainingMemory:
    """The memory of a training step, by what it is for. All numbers are bytes."""

    step: TrainingStep
    weights: int
    """The model's parameters, a tied head once."""
    gradients: int
    """One for each parameter, from the backward pass to the optimizer."""
    optimizer: dict[str, int]
    """AdamW's state, from the end of the first step on."""
    activations: dict[str, int]
    """What the forward pass of a micro-batch keeps for its backward pass, by component."""
    timeline: Timeline
    """What is alive after each operation."""
    not_counted: tuple[str, ...] = NOT_COUNTED
    """What a process takes beside this."""

    @property
    def state(self) -> int:
        """Weights, gradients and AdamW's state: what does not depend on the batch."""
        return self.weights + self.gradients + sum(self.optimizer.values())

    @property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return self.timeline.peak.live

    @property
    def at_the_peak(self) -> dict[str, int]:
        """What the peak consists of; ``in passing`` is what no derivative has asked to keep, and the batch's ids."""
        moment = self.timeline.peak
        parts = {
            "weights": self.weights,
            "AdamW": sum(self.optimizer.values()),
            "gradients": moment.gradients,
            "activations": moment.activations,
        }
        return {**parts, "in passing": moment.live - sum(parts.values())}


def training_memory(config: GPTConfig, *, batch_size: int, context: int, **how: Any) -> TrainingMemory:
    """Predict the memory of a training step, its peak to the byte with PyTorch 2.13.0 (:data:`MEASURED_WITH`).

    Args:
        config: the model; its dropout counts.
        batch_size: B, the windows of a step.
        context: T, the tokens of a window.
        how: precision, attention, checkpointing, loss, optimizer and micro_batches, as in
            :class:`gptlab.memory.step.TrainingStep`.

    Raises:
        TypeError: a number is not an integer, or an argument is unknown.
        ValueError: a value is out of range or unknown.

    >>> nodrop = dict(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
    >>> training_memory(GPTConfig(**nodrop), batch_size=4, context=1024).peak
    6407847512
    """
    step = TrainingStep(config, batch_size, context, **how)
    n_params, tensors = Ledger.from_config(config).total, len(Ledger.from_config(config).rows)
    width = 2 if step.precision in ("bf16", "master") else 4
    state_width = 4 if step.precision == "master" else width
    optimizer = {
        "first moment": state_width * n_params,
        "second moment": state_width * n_params,
        "step counters": 4 * tensors,
    }
    if step.precision == "master":
        optimizer["float32 copy of the weights"] = 4 * n_params
    return TrainingMemory(
        step,
        weights=width * n_params,
        gradients=width * n_params,
        optimizer=optimizer,
        activations=activations(step),
        timeline=replay(step),
    )


def activations(step: TrainingStep) -> dict[str, int]:
    """Bytes that the forward pass of a micro-batch keeps for the backward pass, by component.

    For fp32 with the fused attention kernel and without dropout the sum is
    L·N(64C + 4H + 16) + N(4C + 8) + 4NC + N(4V + 8) + 4 + 8N + 8T.
    """
    config, T, N = step.config, step.context, step.rows * step.context
    C, L = config.n_embd, config.n_layer
    r = 2 if step.precision in ("bf16", "master") else 4  # bytes of a number in the residual stream
    e = 4 if step.precision == "fp32" else 2  # bytes of a number in a matrix product
    resid, embd = bool(config.resid_pdrop), bool(config.embd_pdrop)
    layer_norm = r * N * C + 2 * r * N  # its input; mean and deviation of each row
    if step.checkpointing:
        blocks = {"block inputs": L * r * N * C}
    else:
        blocks = {
            "LayerNorms": L * 2 * layer_norm,
            "attention": L * (attention_bytes(step) + e * N * C * (2 + resid)),
            "MLP": L * e * N * C * (1 + 4 + 4 + resid),
        }
        if step.precision == "amp":
            blocks["bfloat16 copies of the weights"] = L * 2 * 12 * C * C
    return {
        "embedding": 8 * N + 8 * T + embd * r * N * C,
        **blocks,
        "final LayerNorm": layer_norm,
        **head_and_loss(step),
    }


def attention_bytes(step: TrainingStep) -> int:
    """What a layer's attention keeps between the two matrix products around it: q, k and v, and what belongs to them."""
    config, B, T = step.config, step.rows, step.context
    N, H, C = B * T, config.n_head, config.n_embd
    S, e, dropout = N * H * T, 4 if step.precision == "fp32" else 2, bool(config.attn_pdrop)
    if (
        step.attention == "explicit"
    ):  # q, k, v; the mask; the weights, with dropout also its mask and the rest
        return 3 * e * N * C + T * T + e * S * (3 if dropout else 1)
    if not dropout:  # q, k, v; for each query the logarithm of a sum
        return 3 * e * N * C + 4 * N * H
    # On the CPU PyTorch has no fused kernel with dropout. It computes in float32, and scales q and k beforehand; where
    # heads need not be copied together, v is still the whole of qkv.
    whole = e == 4 and (B == 1 or H == 1)
    return 4 * N * C * (2 + 3 if whole else 3) + 4 * S * 3


def head_and_loss(step: TrainingStep) -> dict[str, int]:
    """What the head and the loss keep, in the loss's form."""
    N, C, V = step.rows * step.context, step.config.n_embd, step.config.vocab_size
    if step.loss == "fused":
        return {"gradients of hidden states and head": 4 * N * C + 4 * V * C}
    if step.loss == "chunked":
        r = 2 if step.precision in ("bf16", "master") else 4
        return {"hidden states": r * N * C, "targets": 8 * N + 8}
    e, width = (4, 4) if step.precision == "fp32" else (2, 4) if step.precision == "amp" else (2, 2)
    head = e * N * C + (2 * V * C if step.precision == "amp" else 0)
    return {"head": head, "log-probabilities": width * V * N + width, "targets": 8 * N}


# Inference

InferencePrecision = Literal["fp32", "bf16", "int8"]


@dataclass(frozen=True)
class InferenceMemory:
    """The memory of generating text, in bytes."""

    weights: int
    cache: int
    """Keys and values of all positions, 2 · L · C numbers for each."""
    logits: int
    """Of the last position of each row."""
    peak: int | None
    """The most bytes alive while a prompt of the whole context is read; None for int8, where it is not predicted."""
    not_counted: tuple[str, ...] = NOT_COUNTED
    """What a process takes beside this."""


def inference_memory(
    config: GPTConfig, *, batch_size: int, context: int, precision: InferencePrecision = "fp32"
) -> InferenceMemory:
    """Predict the memory of generating text: a prompt is read, and each token's keys and values are kept.

    Args:
        config: the model.
        batch_size: the rows that are generated at once.
        context: the tokens of a row, prompt included.
        precision: of weights, cache and all that is computed; ``int8`` is :func:`gptlab.quantization.quantize`,
            with all but the matrices in float32.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a value is out of range or unknown.
    """
    if precision not in get_args(InferencePrecision):
        raise ValueError(f"precision={precision!r} must be one of {', '.join(get_args(InferencePrecision))}")
    width = 2 if precision == "bf16" else 4
    TrainingStep(config, batch_size, context)  # checks the numbers
    return InferenceMemory(
        weights=quantized_bytes(config) if precision == "int8" else width * Ledger.from_config(config).total,
        cache=kv_cache_bytes(config, batch_size, context, width),
        logits=width * batch_size * config.vocab_size,
        peak=None if precision == "int8" else replay_prompt(config, batch_size, context, precision).peak.live,
    )


def kv_cache_bytes(config: GPTConfig, batch_size: int, context: int, bytes_per_value: int = 4) -> int:
    """Bytes of the keys and values of ``context`` positions: 2 · L · C numbers for each, and each row of the batch."""
    return 2 * config.n_layer * config.n_embd * batch_size * context * bytes_per_value


def without_dropout(config: GPTConfig) -> GPTConfig:
    """The same model with all dropout at 0."""
    return replace(config, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
