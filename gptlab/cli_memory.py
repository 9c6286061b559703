"""What ``gptlab memory`` predicts and prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gptlab.cli_ledger import find, save_figure
from gptlab.config import GPTConfig
from gptlab.memory.forms import (
    MEASURED_WITH,
    InferenceMemory,
    TrainingMemory,
    inference_memory,
    other_pytorch,
    training_memory,
    without_dropout,
)
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

# What can be changed to make a step fit, from what costs nothing to what changes the training.
SWITCHES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--attention sdpa", {"attention": "sdpa"}),
    ("--loss fused", {"loss": "fused"}),
    ("--loss chunked", {"loss": "chunked"}),
    ("--checkpointing", {"checkpointing": True}),
    ("--precision amp", {"precision": "amp"}),
    ("--dropout 0", {"dropout": 0.0}),
)


def config_of(source: str, *, dropout: float | None) -> GPTConfig:
    """The config of a preset, a ``config.json`` or a checkpoint, with another dropout if one is given."""
    config = find(source).config
    if dropout is None:
        return config
    return replace(config, embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout)


def parse_size(text: str) -> int:
    """``8GB``, ``7.5 GiB`` or ``8000000000`` in bytes.

    Raises:
        ValueError: it is no size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B|B|)\s*", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise ValueError(
            f"--fits {text!r}: give a number and a unit, such as 8GB (10^9 bytes) or 8GiB (2^30)"
        )
    return int(float(found[1]) * UNITS[found[2].upper() or "B"])


def both_units(size: int) -> str:
    """Bytes, and the same in decimal and in binary units, which are never mixed up."""
    if size >= 10**9:
        return f"{size:,} B = {size / 1e9:.3f} GB = {size / 2**30:.3f} GiB"
    return f"{size:,} B = {size / 1e6:.2f} MB = {size / 2**20:.2f} MiB"


def show_training(source: str, memory: TrainingMemory, console: Console) -> None:
    """Print the table of a training step."""
    step, peak = memory.step, memory.timeline.peak
    how = [step.precision, step.attention, f"{step.loss} loss", f"AdamW {step.optimizer}"]
    how += ["blocks checkpointed"] * step.checkpointing
    how += [f"{step.micro_batches} micro-batches"] * (step.micro_batches > 1)
    rates = {step.config.embd_pdrop, step.config.attn_pdrop, step.config.resid_pdrop}
    how += [f"dropout {'/'.join(map(str, sorted(rates)))}"] if any(rates) else ["no dropout"]
    title = f"{source}, a training step, batch {step.batch_size}, context {step.context}: {', '.join(how)}"
    console.print(Text(title))
    console.print()
    table = _table()
    _row(table, "weights", memory.weights)
    _row(table, "gradients", memory.gradients)
    for name, size in memory.optimizer.items():
        _row(table, f"AdamW: {name}", size)
    _row(table, "state", memory.state, bold=True)
    for name, size in memory.activations.items():
        _row(table, f"kept: {name}", size)
    _row(table, "activations", sum(memory.activations.values()), bold=True)
    _row(table, "peak of the step", peak.live, bold=True)
    _print(table, console)
    console.print()
    console.print(Text(f"The peak is in the {peak.phase} pass, at {peak.operation}: {both_units(peak.live)}"))
    shares = ", ".join(f"{name} {size / 1e9:.3f}" for name, size in memory.at_the_peak.items())
    console.print(Text(f"  of these, in GB: {shares}"))
    for phase, size in memory.timeline.phases.items():
        console.print(Text(f"  {phase:10} {size / 1e9:>9.3f} GB at most"))
    _not_counted(memory.not_counted, console)


def show_inference(
    source: str, batch_size: int, context: int, precision: str, memory: InferenceMemory, console: Console
) -> None:
    """Print the table of generating text."""
    console.print(
        Text(f"{source}, generating, batch {batch_size}, {context} tokens with a KV cache: {precision}")
    )
    console.print()
    table = _table()
    _row(table, "weights", memory.weights)
    _row(table, "keys and values", memory.cache)
    _row(table, "logits of the last position", memory.logits)
    if memory.peak is not None:
        _row(table, "peak, reading a prompt that long", memory.peak, bold=True)
    _print(table, console)
    _not_counted(memory.not_counted, console)


def training_json(source: str, memory: TrainingMemory) -> str:
    """Everything that the table says, for a program to read."""
    peak = memory.timeline.peak
    step = {key: value for key, value in asdict(memory.step).items() if key != "config"}
    content = {
        "source": source,
        "config": asdict(memory.step.config),
        "step": step,
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "state": memory.state,
        "activations": memory.activations,
        "peak": {"bytes": peak.live, "phase": peak.phase, "operation": peak.operation},
        "at_the_peak": memory.at_the_peak,
        "phases": memory.timeline.phases,
        "not_counted": memory.not_counted,
        "pytorch": {"measured_with": MEASURED_WITH, "other_installed": other_pytorch()},
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def show_fit(memory: TrainingMemory, limit: int, console: Console) -> bool:
    """Print whether a step fits, and what would make it fit. Returns whether it does."""
    step, peak = memory.step, memory.peak
    fits = peak <= limit
    verdict = "fits" if fits else "does not fit"
    console.print(Text(f"{both_units(peak)}: {verdict} in {both_units(limit)}"))
    largest = largest_batch(step, limit)
    if fits:
        console.print(
            Text(f"  {(limit - peak) / 1e9:.3f} GB are left; the largest batch that fits is {largest}")
        )
    else:
        _show_ways(memory, limit, largest, console)
    _not_counted(memory.not_counted, console)
    return fits


def _show_ways(memory: TrainingMemory, limit: int, largest: int, console: Console) -> None:
    """Print what would make the step fit."""
    step, found = memory.step, False
    for names, size in what_would_fit(step, limit):
        found = True
        console.print(Text(f"  with {' '.join(names)}: {size / 1e9:.3f} GB fits"))
    if step.batch_size > 1 and (parts := _micro_batches(step, limit)):
        found = True
        console.print(Text(f"  with --micro-batches {parts}: the same batch in parts fits"))
    if largest:
        console.print(Text(f"  as it is, with --batch {largest}"))
    elif not found:
        console.print(Text(f"  no switch makes it fit: the state alone is {memory.state / 1e9:.3f} GB"))


def what_would_fit(step: TrainingStep, limit: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The smallest sets of switches with which a step fits, and its peak with them."""
    useful = [(name, how) for name, how in SWITCHES if _changed(step, how) not in (None, step)]
    found: list[frozenset[str]] = []
    for count in range(1, len(useful) + 1):
        for chosen in combinations(useful, count):
            names = frozenset(name for name, _ in chosen)
            how = {key: value for _, each in chosen for key, value in each.items()}
            changed = _changed(step, how)
            twice = len({key for _, each in chosen for key in each}) < count
            if twice or changed is None or any(smaller <= names for smaller in found):
                continue
            peak = replay(changed).peak.live
            if peak <= limit:
                found.append(names)
                yield tuple(name for name, _ in chosen), peak


def _changed(step: TrainingStep, how: dict[str, Any]) -> TrainingStep | None:
    how = dict(how)
    if how.pop("dropout", None) is not None:
        how["config"] = without_dropout(step.config)
    try:
        return replace(step, **how)
    except ValueError:  # the fused loss is for float32 alone
        return None


def largest_batch(step: TrainingStep, limit: int) -> int:
    """The most windows with which the step, otherwise the same, fits; 0 if not even one does."""

    def fits(batch_size: int) -> bool:
        return replay(replace(step, batch_size=batch_size, micro_batches=1)).peak.live <= limit

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _micro_batches(step: TrainingStep, limit: int) -> int | None:
    """The fewest parts in which the batch fits."""
    for parts in range(step.micro_batches + 1, step.batch_size + 1):
        if step.batch_size % parts == 0 and replay(replace(step, micro_batches=parts)).peak.live <= limit:
            return parts
    return None


def save_plot(memory: TrainingMemory, file: Path) -> None:
    """Draw the step's timeline and write it.

    Raises:
        ValueError: a format that is not offered.
        OSError: the file cannot be written.
    """

    def draw(figure: Figure) -> None:
        from gptlab.plots.memory import memory_timeline

        memory_timeline(figure.add_subplot(), memory.timeline)

    save_figure(draw, file, "--plot", (7.2, 4.2))


def show_trace(memory: TrainingMemory, console: Console) -> None:
    """Run the step on fake tensors and print its peak beside the predicted one."""
    from gptlab.memory.trace import trace_step

    peak = trace_step(memory.step).peak
    console.print(
        Text(
            f"Traced on fake tensors: {peak.live:,} B at {peak.operation}, predicted {memory.peak:,} B, "
            f"difference {peak.live - memory.peak:,} B"
        )
    )


def predict_training(config: GPTConfig, batch_size: int, context: int | None, **how: Any) -> TrainingMemory:
    """The memory of a step; the context is the model's longest unless given."""
    return training_memory(
        config, batch_size=batch_size, context=config.n_positions if context is None else context, **how
    )


def predict_inference(
    config: GPTConfig, batch_size: int, context: int | None, precision: Any
) -> tuple[int, InferenceMemory]:
    """The context, and the memory of generating that many tokens."""
    T = config.n_positions if context is None else context
    return T, inference_memory(config, batch_size=batch_size, context=T, precision=precision)


def _table() -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for unit in ("bytes", "MB", "MiB"):
        table.add_column(unit, justify="right", no_wrap=True)
    return table


def _row(table: Table, name: str, size: int, *, bold: bool = False) -> None:
    table.add_row(
        name, f"{size:,}", f"{size / 1e6:,.2f}", f"{size / 2**20:,.2f}", style="bold" if bold else ""
    )


def _print(table: Table, console: Console) -> None:
    needed = console.measure(table, options=console.options.update(width=1000)).maximum
    console.width = max(needed, console.width)  # a cut number would be a wrong one
    console.print(table)


def _not_counted(lines: tuple[str, ...], console: Console) -> None:
    console.print()
    console.print(Text("For PyTorch's kernels on the CPU. Not counted:"))
    for line in lines:
        console.print(Text(f"  {line}"))
    if installed := other_pytorch():
        how = "nothing was measured with it; --trace compares a training step"
        console.print(Text(f"Installed is PyTorch {installed}: {how}"))
