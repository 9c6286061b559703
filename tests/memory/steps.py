"""Steps of tiny models, all sizes unequal, for the tests of predicted and measured memory."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from gptlab.memory.forms import without_dropout
from gptlab.memory.step import TrainingStep
from tests.conftest import TINY

SMALL = replace(without_dropout(TINY), vocab_size=1009, n_positions=40, n_embd=24, n_layer=2, n_head=3)


def tiny_step(batch_size: int = 2, context: int = 16, **how: Any) -> TrainingStep:
    return TrainingStep(SMALL, batch_size, context, **how)


def random_steps(count: int, seed: int, *, micro_batches: bool = True) -> list[TrainingStep]:
    """Steps drawn from everything that can be chosen. The same seed gives the same steps."""
    rng = random.Random(seed)
    return [_random_step(rng, micro_batches) for _ in range(count)]


def _random_step(rng: random.Random, micro_batches: bool) -> TrainingStep:
    H = rng.choice([1, 2, 3, 4])
    config = replace(
        SMALL,
        vocab_size=rng.choice([11, 59, 257, 1009, 5003]),
        n_embd=H * rng.choice([4, 7, 8]),
        n_layer=rng.choice([1, 2, 3]),
        n_head=H,
        embd_pdrop=rng.choice([0.0, 0.0, 0.1]),
        attn_pdrop=rng.choice([0.0, 0.0, 0.1]),
        resid_pdrop=rng.choice([0.0, 0.0, 0.1]),
        tie_word_embeddings=rng.random() < 0.8,
    )
    precision = rng.choice(["fp32", "fp32", "amp", "bf16", "master"])
    parts = rng.choice([1, 1, 1, 2, 3]) if micro_batches else 1
    losses = ["full", "full", "chunked", "fused"] if precision == "fp32" else ["full", "chunked"]
    return TrainingStep(
        config,
        batch_size=parts * rng.choice([1, 2, 3]),
        context=rng.choice([1, 2, 5, 16, 33, 40]),
        precision=precision,
        attention=rng.choice(["sdpa", "explicit"]),
        checkpointing=rng.random() < 0.3,
        loss=rng.choice(losses),
        optimizer=rng.choice(["fused", "foreach", "loop"]),
        micro_batches=parts,
    )
