"""The memory of a training step and of inference: predicted from the config, and measured.

``forms`` predicts, and needs no PyTorch. ``trace`` follows every tensor along a step, on real or fake tensors;
``measure`` asks autograd and the allocator. Names are resolved when they are first used, as in ``gptlab`` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.lazy import lookup

if TYPE_CHECKING:
    from gptlab.memory.forms import (
        InferenceMemory,
        TrainingMemory,
        inference_memory,
        kv_cache_bytes,
        training_memory,
    )
    from gptlab.memory.measure import allocator_peaks, saved_bytes
    from gptlab.memory.sharding import RankBytes, per_rank_bytes, zero_bytes
    from gptlab.memory.step import TrainingStep
    from gptlab.memory.timeline import Moment, Timeline
    from gptlab.memory.trace import trace_step
    from gptlab.memory.weights import quantized_bytes

_HOME = {
    "training_memory": "forms",
    "TrainingMemory": "forms",
    "inference_memory": "forms",
    "InferenceMemory": "forms",
    "kv_cache_bytes": "forms",
    "quantized_bytes": "weights",
    "TrainingStep": "step",
    "Timeline": "timeline",
    "Moment": "timeline",
    "per_rank_bytes": "sharding",
    "zero_bytes": "sharding",
    "RankBytes": "sharding",
    "trace_step": "trace",
    "allocator_peaks": "measure",
    "saved_bytes": "measure",
}

__all__ = [
    "InferenceMemory",
    "Moment",
    "RankBytes",
    "Timeline",
    "TrainingMemory",
    "TrainingStep",
    "allocator_peaks",
    "inference_memory",
    "kv_cache_bytes",
    "per_rank_bytes",
    "quantized_bytes",
    "saved_bytes",
    "trace_step",
    "training_memory",
    "zero_bytes",
]

__getattr__, __dir__ = lookup(__name__, _HOME)
