"""Memory, measured: what autograd keeps for the backward pass, and what the allocator handed out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile, record_function

from gptlab.memory.run import build, run_steps, step_loss, switches
from gptlab.memory.step import TrainingStep


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Kineto, the library below PyTorch's profiler, from announcing itself on the terminal.

    It reads the variable once, when a process profiles for the first time. So its own log stays quiet afterwards, too;
    the environment is as before, and a level that is set already counts.
    """
    chosen = "KINETO_LOG_LEVEL" in os.environ
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        yield
    finally:
        if not chosen:
            del os.environ["KINETO_LOG_LEVEL"]


def allocator_peaks(step: TrainingStep, count: int = 2) -> dict[str, int]:
    """Run the step on real tensors, and read in PyTorch's profiler what its CPU allocator handed out.

    Returns:
        For each phase of the last step the most bytes in use, from the building of the model on.
    """
    open_range: list[record_function] = []

    def mark(phase: str) -> None:
        if open_range:
            open_range.pop().__exit__(None, None, None)
        open_range.append(record_function(f"phase {phase}"))
        open_range[0].__enter__()

    # acc_events: without it PyTorch 2.11 warns that it will clear events which nobody asks for.
    with (
        _quiet(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler,
    ):
        run_steps(step, mark, count=count)
        open_range.pop().__exit__(None, None, None)
    events = profiler.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes(), "") for e in events if e.name() == "[memory]"]
    phases = [(e.start_ns(), 0, e.name()[6:]) for e in events if e.name().startswith("phase ")]
    live, phase = 0, "build"
    peaks: dict[str, int] = {}
    for _, nbytes, name in sorted(changes + phases, key=lambda e: (e[0], not e[2])):
        if name:
            phase = name
            if name == "step":
                peaks = {}
        live += nbytes
        peaks[phase] = max(peaks.get(phase, 0), live)
    return peaks


class SavedBytes:
    """What autograd saves for the backward pass inside ``with saved.watching():``, each storage once, without weights."""

    def __init__(self, model: nn.Module) -> None:
        self._sizes: dict[StorageWeakRef, int] = {}
        held = [*model.parameters(), *model.buffers()]
        self._weights = {StorageWeakRef(tensor.untyped_storage()) for tensor in held}

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self._sizes.values())

    def watching(self) -> saved_tensors_hooks:
        """The context in which to run the forward pass."""
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        key = StorageWeakRef(storage)
        if key not in self._weights:
            self._sizes[key] = storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its graph alive, and the graph the tensor


def saved_bytes(step: TrainingStep, *, fake: bool = True) -> int:
    """Bytes that autograd saves in the step's forward pass, on fake tensors or on real ones.

    Raises:
        ValueError: the step has micro-batches: this looks at one forward pass.
    """
    if step.micro_batches > 1:
        raise ValueError(f"micro_batches={step.micro_batches} must be 1: this looks at one forward pass")
    with FakeTensorMode() if fake else nullcontext():
        model = build(step)
        x, y = (torch.zeros(step.batch_size, step.context, dtype=torch.long) for _ in range(2))
        saved = SavedBytes(model)
        with switches(step, model), saved.watching():
            step_loss(step, model, x, y)
        return saved.total
