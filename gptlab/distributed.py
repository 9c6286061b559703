"""The trainer's loop in several processes at once, one for each device. ``torchrun`` starts them.

Each process, called a rank, computes a share of every batch, and together they take the step that one process would
have taken. Two strategies differ in what a rank holds:

- ``"ddp"``, distributed data parallel: the whole model. Gradients are averaged (Li et al. 2020).
- ``"fsdp"``, PyTorch's FSDP2: a part of every weight, gradient and moment. A block's weights are put together when the
  block is computed, and dropped again: stage 3 of Rajbhandari et al. 2020.

The loop is :func:`gptlab.training.train`, with a :class:`SharedRun` for a run.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from gptlab.data import Tokens, windows_in_order
from gptlab.generation import evaluating
from gptlab.memory.sharding import RankBytes
from gptlab.memory.timeline import Moment, Timeline
from gptlab.memory.trace import LiveBytes
from gptlab.model import GPT
from gptlab.training import IGNORE, Run, TrainingSettings, count_targets, training_loss
from gptlab.tying import is_tied


@contextmanager
def joined(timeout: float = 600) -> Iterator[torch.device]:
    """Meet the other ranks, and part at the end; gives the device of this one.

    The ranks exchange what lies on CPUs by gloo, and what lies on GPUs by NCCL. If one fails, its error goes on from
    here; the others, which then wait in vain, end without a word, or are ended by ``torchrun``.

    Args:
        timeout: how long a rank waits for another one, in seconds.

    Raises:
        ConnectionError: another rank is gone, or does not answer.
        ValueError: there are fewer GPUs than processes on this machine.
    """
    store, rank, world_size = next(dist.rendezvous("env://"))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout)
    )
    try:
        yield _device_of(int(os.environ["LOCAL_RANK"]))
    except Exception as err:
        if store.add("failed", 1) > 1:  # another was first, and this error follows from its, or is the same
            time.sleep(5)  # when one ends, torchrun ends all: let the first one say why
            raise SystemExit(1) from None
        if isinstance(err, RuntimeError) and ("gloo" in str(err) or isinstance(err, dist.DistError)):
            raise ConnectionError(f"rank {rank} of {world_size} has lost another one: {err}") from err
        raise
    dist.destroy_process_group()


def _device_of(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"this machine has {torch.cuda.device_count()} GPUs, and more processes: start as many with "
            f"--nproc-per-node {torch.cuda.device_count()}"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


class LossModel(nn.Module):
    """A model that ends with the loss.

    DDP and FSDP2 do their work when a module is called, so all that uses weights must happen inside one call: the
    head's product too, which the loss does itself.
    """

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Int[Tensor, "B T"], y: Int[Tensor, "B T"], precision: str) -> Float[Tensor, ""]:
        return training_loss(self.model, x, y, precision)


def ddp(model: GPT, device: torch.device) -> nn.Module:
    """Every rank has the whole model. After the backward pass each has the mean of all gradients."""
    loss_model = LossModel(model.to(device))
    # Gradients live in the buffers that are sent: else they would be there twice.
    return DistributedDataParallel(loss_model, gradient_as_bucket_view=True)


def fsdp(model: GPT, device: torch.device) -> nn.Module:
    """Every rank has its rows of each weight. A block is whole while it is computed.

    The rest, token table, positions, ``ln_f`` and head, is one group with the whole: the table is needed first as
    embedding and last as head, and a tied one cannot be in two groups.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    loss_model = LossModel(model)
    fully_shard(loss_model, mesh=mesh)
    return loss_model


STRATEGIES: dict[str, Callable[[GPT, torch.device], nn.Module]] = {"ddp": ddp, "fsdp": fsdp}


class SharedRun(Run):
    """A run in several processes, each of which makes one, of an equal model, with the same arguments.

    Batches, losses, gradients and checkpoints are those of a run in one process, up to rounding; dropout draws other
    masks. A checkpoint may be taken up by any number of processes, and by one.
    """

    def __init__(
        self,
        model: GPT,
        settings: TrainingSettings,
        tokens: Tokens,
        validation: Tokens | None = None,
        *,
        strategy: str,
        device: torch.device,
    ) -> None:
        """
        Args:
            model: the model, on the CPU, the same on every rank.
            settings: how to train it.
            tokens: token ids to train on.
            validation: token ids to measure on.
            strategy: ``"ddp"`` or ``"fsdp"``.
            device: where this rank computes, from :func:`joined`.

        Raises:
            ValueError: an unknown strategy, or a batch that cannot be shared out evenly.
        """
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.writes = self.rank == 0
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy={strategy!r} must be 'ddp' or 'fsdp'")
        if settings.batch_size % (self.world_size * settings.micro_batches):
            raise ValueError(
                f"batch_size={settings.batch_size} must be divisible by {self.world_size} processes × "
                f"micro_batches={settings.micro_batches}"
            )
        self.loss_model = STRATEGIES[strategy](model, device)
        super().__init__(model, settings, tokens, validation)
        if self.rank > 0:
            self._draw_for_itself()

    def backward(self, x: Int[Tensor, "B T"], y: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """As :func:`gptlab.training.backward`, of this rank's rows; loss and gradient are the whole batch's.

        Every rank draws the whole batch, so each knows how many targets it has.
        """
        total = count_targets(y)
        x, y = x.chunk(self.world_size)[self.rank], y.chunk(self.world_size)[self.rank]
        n = self.settings.micro_batches
        sum_of_parts = torch.zeros((), device=x.device)
        for i, (inputs, targets) in enumerate(zip(x.chunk(n), y.chunk(n), strict=True)):
            share = (targets != IGNORE).sum() / total
            if share == 0:  # the other ranks wait for this one: it computes something, and counts nothing
                targets = torch.zeros_like(targets)
            with self._without_exchange() if i < n - 1 else nullcontext():
                loss = share * self.loss_model(inputs, targets, self.settings.precision)
                # Both strategies take the mean of the ranks' gradients; the whole batch's is their sum.
                (loss * self.world_size).backward()
            sum_of_parts += loss.detach()
        dist.all_reduce(sum_of_parts)
        return sum_of_parts

    def _without_exchange(self) -> AbstractContextManager[None]:
        """DDP exchanges gradients once a step, after the last part; FSDP2 after each.

        FSDP2 could wait, too, but would have to keep the whole gradient until then.
        """
        if isinstance(self.loss_model, DistributedDataParallel):
            return self.loss_model.no_sync()
        return nullcontext()

    def clip_gradient(self) -> Float[Tensor, ""]:
        """As :meth:`gptlab.training.Run.clip_gradient`; the length is that of all ranks' parts together."""
        norm = super().clip_gradient()
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @torch.no_grad()
    def evaluate(self, tokens: Tokens) -> float:
        """As :func:`gptlab.training.evaluate`, each rank taking its share of every batch of windows."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        rows = self.settings.batch_size // self.settings.micro_batches
        with evaluating(self.model):
            for x, y in windows_in_order(tokens, rows, self.settings.context):
                own = slice(self.rank, None, self.world_size)
                count = y[own].numel()
                if (
                    count == 0
                ):  # no window is left for this rank: it computes one uncounted, as the others wait
                    own = slice(0, 1)
                loss = self.loss_model(x[own].to(self.device), y[own].to(self.device), "fp32")
                sums += torch.tensor([loss.item() * count, count], dtype=sums.dtype, device=sums.device)
        if isinstance(self.loss_model, FSDPModule):
            self.loss_model.reshard()  # the outer group stays whole for a backward pass, which does not come
        dist.all_reduce(sums)
        total, counted = sums.tolist()
        return total / counted

    def agree(self, stop: bool) -> bool:
        """Whether any rank wants to stop."""
        wanted = torch.tensor(int(stop), device=self.device)
        dist.all_reduce(wanted, dist.ReduceOp.MAX)
        return bool(wanted)

    def state_dict(self) -> dict[str, Any]:
        """Everything, whole, as a run in one process has it; only rank 0's is complete. Every rank must ask."""
        state = super().state_dict()
        if is_tied(self.model):
            del state["model"]["lm_head.weight"]  # put together once
        state = _whole(state)
        if is_tied(self.model):
            state["model"]["lm_head.weight"] = state["model"]["wte.weight"]
        random = {name: _from_all(value) for name, value in state["random"].items()}
        state["random_of_ranks"] = [
            dict(zip(random, one, strict=True)) for one in zip(*random.values(), strict=True)
        ]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As :meth:`gptlab.training.Run.load_state_dict`, from a state that one process or any number have saved."""
        weights = {name: _like(state["model"][name], p) for name, p in self.model.named_parameters()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        moments = {
            i: {name: _like(value, parameters[i]) for name, value in values.items()}
            for i, values in state["optimizer"]["state"].items()
        }
        randoms = state.get("random_of_ranks", [state["random"]])
        own = self.rank < len(randoms)
        super().load_state_dict(
            {
                **state,
                "model": weights,
                "optimizer": {**state["optimizer"], "state": moments},
                "random": randoms[self.rank if own else 0],
            }
        )
        if not own:
            self._draw_for_itself()

    def _draw_for_itself(self) -> None:
        """Let dropout draw what no other rank draws."""
        torch.manual_seed(self.settings.seed + self.step * self.world_size + self.rank)


def rank_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> RankBytes:
    """What this process holds of a model in training, measured on the memory behind its tensors.

    To be called between the backward pass and ``zero_grad``; moments are there after the first step. With FSDP2 what
    pads a part is counted, for it is held. Adam's step counters are not.
    """
    parameters = list(model.parameters())
    local = getattr(optimizer, "optim", optimizer)  # what ZeroRedundancyOptimizer wraps
    moments = [values[name] for values in local.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return RankBytes(
        parameters=_held(parameters),
        gradients=_held(p.grad for p in parameters if p.grad is not None),
        moments=_held(moments),
    )


def _held(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind the tensors, each once."""
    storages = (_local(t).untyped_storage() for t in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that is split, or the tensor."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def trace_rank(run: SharedRun) -> Timeline:
    """Take two steps with a run that has taken none, and watch: what this rank has alive along the second one.

    After each operation of the forward and the backward pass. Whole weights of FSDP2 count while their memory is there;
    what gloo takes to send them does not.
    """
    live = _LiveOnRank()
    live.watch(run.model.parameters())
    for _ in range(2):
        live.timeline = Timeline()
        x, y = run.batches.next()
        live.watch([x, y])
        with live:
            run.backward(x, y)
        run.optimizer.step()
        run.optimizer.zero_grad()
        live.watch(tree_leaves([list(values.values()) for values in run.optimizer.state.values()]))
    return live.timeline


class _LiveOnRank(LiveBytes):
    """As :class:`LiveBytes`, for storages that are emptied and filled again, as FSDP2 does with whole weights.

    Born is what is watched, and results. An argument that was neither is gloo's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def watch(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._born(_local(tensor).untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.add.Tensor and self._sums_gradients(*args):
            func = torch.ops.aten.add_.Tensor
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given:
                self._born(tensor.untyped_storage())
        there = [storage for ref in list(self._storages.values()) if (storage := ref()) is not None]
        live = sum(storage.nbytes() for storage in there)
        self.timeline.moments.append(Moment(self.phase, func.overloadpacket.__name__, live))
        return result

    def _born(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._storages:
            self._storages[key] = weakref.ref(storage, lambda _: self._storages.pop(key))


def _whole(value: Any) -> Any:
    """The same containers, with what is split among the ranks put together, on rank 0, in the CPU's memory."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, DTensor):
        whole = value.full_tensor()  # one after the other, so that no rank has to hold them all
        return whole.cpu() if dist.get_rank() == 0 else whole.new_empty(0)
    return value


def _like(value: Tensor, parameter: Tensor) -> Tensor:
    """What of a whole tensor belongs to this rank, split as the parameter is; a step counter belongs to all."""
    if not isinstance(parameter, DTensor) or not value.ndim:
        return value
    value = value.to(parameter.device)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _from_all(value: Tensor) -> list[Tensor]:
    """The tensors of this name and shape that the ranks have, rank 0's first."""
    found = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(found, value)
    return found
