"""Live bytes along a training step: every tensor that is born, and every one that dies.

With fake tensors, which have a shape and a type but no values, nothing is allocated: a step of GPT-2 XL can be
followed on a laptop.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gptlab import fused_loss
from gptlab.memory.run import run_steps
from gptlab.memory.step import TrainingStep
from gptlab.memory.timeline import Moment, Timeline


class LiveBytes(TorchDispatchMode):
    """Follow every tensor that is made inside ``with LiveBytes() as live:``, in ``live.timeline``.

    Set ``live.phase`` to name what happens next. What an operation allocates inside itself and frees before it
    returns is not seen; :func:`gptlab.memory.measure.allocator_peaks` sees that, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.live, self.timeline = "", 0, Timeline()
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.add.Tensor and self._sums_gradients(*args):
            func = torch.ops.aten.add_.Tensor
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, result)):  # a Python number may have become a tensor
            if isinstance(tensor, Tensor):
                self._born(tensor.untyped_storage())
        self.timeline.moments.append(Moment(self.phase, func.overloadpacket.__name__, self.live))
        return result

    @staticmethod
    def _sums_gradients(a: Any, *_: Any) -> bool:
        """Whether this is autograd's sum of two gradients, for which it has ``a`` to itself. It would add in place, if
        it were not watched.

        Inside ``backward()``, where no graph is built, two references to the storage are this call's own.
        """
        inside = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
        return inside and not a._is_view() and torch._C._storage_Use_Count(a.untyped_storage()._cdata) == 2

    def _born(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            weakref.finalize(storage, self._died, key)

    def _died(self, key: int) -> None:
        self.live -= self._sizes.pop(key)


def trace_step(step: TrainingStep, *, fake: bool = True) -> Timeline:
    """Run two steps on the CPU and return the second one's trace: AdamW's moments are there from the first.

    Args:
        step: what to run.
        fake: on fake tensors, which take no memory; or on real ones.

    """
    live = LiveBytes()

    def mark(phase: str) -> None:
        if phase == "step":
            live.timeline = Timeline()
        live.phase = phase

    with _fake_tensors(step) if fake else nullcontext(), live:
        run_steps(step, mark)
    return live.timeline


@contextmanager
def _fake_tensors(step: TrainingStep) -> Iterator[None]:
    """Tensors without values. The one value that memory depends on, in the fused loss, is what it is in the step."""
    look = fused_loss.is_one
    fused_loss.is_one = lambda gradient: step.micro_batches == 1  # else the loss was divided
    try:
        with FakeTensorMode():
            yield
    finally:
        fused_loss.is_one = look
