"""The memory of a training step and of inference: predicted from the config, and measured.

``forms`` predicts, and needs no PyTorch. ``trace`` follows every tensor along a step, on real or fake tensors;
``measure`` asks autograd and the allocator. The public names are resolved when they are first used:
``from gptlab.memory import training_memory`` loads no PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.lazy import lazily

if TYPE_CHECKING:
    from gptlab.memory.forms import (
        MEASURED_WITH,
        InferenceMemory,
        TrainingMemory,
        activations,
        attention_bytes,
        head_and_loss,
        inference_memory,
        kv_cache_bytes,
        other_pytorch,
        training_memory,
        without_dropout,
    )
    from gptlab.memory.measure import SavedBytes, allocator_peaks, saved_bytes
    from gptlab.memory.run import MasterWeights
    from gptlab.memory.sharding import RankBytes, per_rank_bytes, zero_bytes
    from gptlab.memory.step import TrainingStep
    from gptlab.memory.timeline import Moment, Timeline
    from gptlab.memory.trace import LiveBytes, trace_step
    from gptlab.memory.weights import quantized_bytes

_HOME = {
    "InferenceMemory": "forms",
    "MEASURED_WITH": "forms",
    "TrainingMemory": "forms",
    "activations": "forms",
    "attention_bytes": "forms",
    "head_and_loss": "forms",
    "inference_memory": "forms",
    "kv_cache_bytes": "forms",
    "other_pytorch": "forms",
    "training_memory": "forms",
    "without_dropout": "forms",
    "TrainingStep": "step",
    "Moment": "timeline",
    "Timeline": "timeline",
    "RankBytes": "sharding",
    "per_rank_bytes": "sharding",
    "zero_bytes": "sharding",
    "quantized_bytes": "weights",
    "LiveBytes": "trace",
    "trace_step": "trace",
    "SavedBytes": "measure",
    "allocator_peaks": "measure",
    "saved_bytes": "measure",
    "MasterWeights": "run",
}

__all__ = [
    "MEASURED_WITH",
    "InferenceMemory",
    "LiveBytes",
    "MasterWeights",
    "Moment",
    "RankBytes",
    "SavedBytes",
    "Timeline",
    "TrainingMemory",
    "TrainingStep",
    "activations",
    "allocator_peaks",
    "attention_bytes",
    "head_and_loss",
    "inference_memory",
    "kv_cache_bytes",
    "other_pytorch",
    "per_rank_bytes",
    "quantized_bytes",
    "saved_bytes",
    "trace_step",
    "training_memory",
    "without_dropout",
    "zero_bytes",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
