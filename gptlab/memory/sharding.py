"""What each of several processes holds of a model in training: closed forms, in bytes, without PyTorch.

Weights and gradients are float32, four bytes a value, and Adam's two moments eight. Its step counters, four bytes for
each tensor, are left out, and so are activations. :func:`per_rank_bytes` is what stays, :func:`fsdp_step_bytes` adds
what FSDP2 puts together, and sends, along a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger, Row

STRATEGIES = ("ddp", "zero1", "fsdp")


@dataclass(frozen=True)
class RankBytes:
    """What one process, a rank, holds of a model that is being trained, in bytes."""

    parameters: int
    gradients: int
    moments: int
    """Adam's two."""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.moments


def zero_bytes(n_params: int, world_size: int, stage: int, split: tuple[int, int, int] = (4, 4, 8)) -> int:
    """Bytes on a rank if everything that is split could be split evenly (Rajbhandari et al. 2020, section 5).

    Stage 1 splits the optimizer's state, stage 2 the gradients too, stage 3 the parameters too; stage 0 is plain data
    parallelism. Where the ranks do not divide the parameters, this is the rank with one more.

    Args:
        n_params: the number of parameters.
        world_size: the number of ranks.
        stage: 0 to 3.
        split: bytes for each parameter of weights, gradients and optimizer state. (4, 4, 8) is float32 with Adam;
            (2, 2, 12) is the paper's mixed precision, whose optimizer keeps float32 weights of its own.

    Raises:
        ValueError: a stage that does not exist, or no parameter, or no rank.

    >>> [zero_bytes(124_439_808, 8, stage) for stage in (1, 2, 3)]
    [1119958272, 684418944, 248879616]
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage={stage} must be 0, 1, 2 or 3")
    _check_world_size(world_size)
    if n_params < 1:
        raise ValueError(f"n_params={n_params} must be at least 1")
    weights, gradients, state = split
    part = ceil(n_params / world_size)
    return (
        weights * (part if stage >= 3 else n_params)
        + gradients * (part if stage >= 2 else n_params)
        + state * (part if stage >= 1 else n_params)
    )


def per_rank_bytes(config: GPTConfig, world_size: int, strategy: str) -> tuple[RankBytes, ...]:
    """What each rank really holds between the backward pass and the step, rank 0 first.

    ``"ddp"``: all of everything. ``"zero1"``: as PyTorch's ``ZeroRedundancyOptimizer`` splits Adam's moments, by whole
    tensors, so that one rank has the token table. ``"fsdp"``: as ``fully_shard`` splits everything, each tensor by its
    rows.

    Raises:
        ValueError: another strategy, or no rank.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r} must be one of {', '.join(STRATEGIES)}")
    _check_world_size(world_size)
    ledger = Ledger.from_config(config)
    n_params = ledger.total
    if strategy == "ddp":
        return (RankBytes(4 * n_params, 4 * n_params, 8 * n_params),) * world_size
    if strategy == "zero1":
        return tuple(
            RankBytes(4 * n_params, 4 * n_params, 8 * values) for values in _whole_tensors(ledger, world_size)
        )
    return tuple(_rows_of_rank(ledger, world_size, rank) for rank in range(world_size))


def fsdp_step_bytes(config: GPTConfig, world_size: int, rank: int = 0) -> dict[str, int]:
    """What a rank holds of weights, gradients and moments along a step with ``"fsdp"``, in bytes, moment by moment.

    :func:`per_rank_bytes` is what a rank keeps. In the step FSDP2 puts weights together and takes gradients apart:

    - The root group (tables, positions, ``ln_f`` and head) is whole from the first block to the last gradient.
    - A block that is computed is whole. In the forward pass the buffer that its weights came in lives on beside it; in
      the backward pass the next block's buffer is there already, and the one in which the gradients of the block
      before went out.
    - Gradients are whole until their group has all of its own: a block's for a moment, the head's from the loss on. At
      the end the token table's two, from the head and from the embedding, and their sum are three tables.

    The loss is the trainer's, :mod:`gptlab.fused_loss`, in one micro-batch. As PyTorch 2.13 does it, without what the
    library that sends keeps for itself.

    Returns:
        In their order: ``"before"``, ``"forward, block 0"`` and so on, ``"backward, block 11"`` and so on, each with
        all gradients of its block, ``"backward, tables"``, and ``"after"``, before the optimizer's step.

    Raises:
        ValueError: fewer than two ranks, or a rank that is not among them.

    >>> moments = fsdp_step_bytes(GPTConfig(), 8)
    >>> max(moments, key=moments.get), moments["after"], max(moments.values())
    ('backward, tables', 248890368, 881429760)
    """
    if world_size < 2:
        raise ValueError(f"world_size={world_size} must be at least 2: one rank has nobody to share with")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank={rank} must be from 0 to {world_size - 1}")
    ledger, L = Ledger.from_config(config), config.n_layer
    kept = _rows_of_rank(ledger, world_size, rank)
    block = [row for row in ledger if row.name.startswith("h.0.")]
    root = [row for row in ledger if not row.name.startswith("h.")]
    gathered, root_gathered = (_filled(group, world_size) for group in (block, root))
    block_gradient = 4 * sum(row.parameters for row in block)
    table, norm = 4 * config.vocab_size * config.n_embd, 4 * 2 * config.n_embd

    before = kept.parameters + kept.moments
    moments = {"before": before}
    for i in range(L):
        moments[f"forward, block {i}"] = before + root_gathered + 2 * gathered
    whole = before + root_gathered + table + norm  # gradients of head and ln_f: they go out last
    for i in reversed(range(L)):
        buffers = 1 + (i > 0) + (i < L - 1)  # its own, the next one's, and the gradients' of the one before
        sent = (L - 1 - i) * gathered // world_size
        moments[f"backward, block {i}"] = whole + buffers * gathered + sent + block_gradient
    tables = (2 if config.tie_word_embeddings else 1) * table + 4 * config.n_positions * config.n_embd
    moments["backward, tables"] = whole + tables + gathered + L * gathered // world_size
    moments["after"] = kept.total
    return moments


def _filled(rows: list[Row], world_size: int) -> int:
    """The bytes of whole weights, or gradients, as they are sent: each tensor filled up to equal pieces."""
    return 4 * sum(
        row.parameters // row.shape[0] * ceil(row.shape[0] / world_size) * world_size for row in rows
    )


def _whole_tensors(ledger: Ledger, world_size: int) -> list[int]:
    """The number of values that each rank gets if whole tensors are dealt out, the largest first.

    Each goes to the rank that has least. The trainer's matrices, which decay, come before the rest, which does not.
    """
    values = [0] * world_size
    for group in (_matrices(ledger), _vectors(ledger)):
        for row in sorted(group, key=lambda row: row.parameters, reverse=True):
            values[values.index(min(values))] += row.parameters
    return values


def _matrices(ledger: Ledger) -> Iterator[Row]:
    return (row for row in ledger if len(row.shape) > 1)


def _vectors(ledger: Ledger) -> Iterator[Row]:
    return (row for row in ledger if len(row.shape) == 1)


def _rows_of_rank(ledger: Ledger, world_size: int, rank: int) -> RankBytes:
    """Each tensor is cut along its first dimension into pieces of ⌈rows / ranks⌉.

    The last ranks may get fewer rows, or none. Their weights and gradients are filled up to the same size, because what
    is sent round must be equally long; their moments are not.
    """
    held, filled = 0, 0
    for row in ledger:
        n, width = row.shape[0], row.parameters // row.shape[0]
        piece = ceil(n / world_size)
        held += width * max(0, min(piece, n - rank * piece))
        filled += width * piece
    return RankBytes(4 * filled, 4 * filled, 8 * held)


def _check_world_size(world_size: int) -> None:
    if world_size < 1:
        raise ValueError(f"world_size={world_size} must be at least 1")
