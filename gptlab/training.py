"""Training: one readable loop, whose state can be saved at any step and taken up again, bit for bit."""

from __future__ import annotations

import csv
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gptlab.checkpoint import save_checkpoint
from gptlab.config import GPTConfig
from gptlab.data import Batches, Tokens, check_length, fingerprint, windows_in_order
from gptlab.devices import is_out_of_memory
from gptlab.files import remove_leftovers, replacing
from gptlab.fused_loss import fused_token_loss
from gptlab.generation import evaluating
from gptlab.model import GPT
from gptlab.unembedding import chunked_token_loss, token_loss

IGNORE = -100
STATE, LOG = "state.pt", "log.csv"


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train. A step is one change of the weights, by the gradient of ``batch_size`` windows.

    Raises:
        TypeError: a count is not an integer.
        ValueError: a value is out of range.
    """

    steps: int
    batch_size: int = 8
    """Windows in a step."""
    context: int = 256
    """Tokens in a window."""
    micro_batches: int = 1
    """Parts in which the batch goes through the model, one after the other: more parts, less memory."""
    learning_rate: float = 2e-3
    """The largest one, at the end of the warm-up."""
    final_share: float = 0.1
    """The share of it that is left in the last step."""
    warmup: int | None = None  # until __post_init__ knows the steps; then an integer
    """Steps in which the learning rate rises; unless given, a tenth of all, and 100 at most."""
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_norm: float = 1.0
    """A gradient that is longer is shortened to this length."""
    precision: str = "fp32"
    """``"fp32"``, or ``"amp"``: matrix products in bfloat16, weights in float32."""
    seed: int = 0
    evaluate_every: int = 400
    """Steps from one measurement on held-out text to the next."""
    save_every: int = 100
    """Steps from one checkpoint to the next."""

    def __post_init__(self) -> None:
        counts = ("steps", "batch_size", "context", "micro_batches", "evaluate_every", "save_every")
        if self.warmup is None and isinstance(self.steps, int):
            object.__setattr__(self, "warmup", min(100, self.steps // 10))
        for name in (*counts, "warmup", "seed"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r} must be an integer")
            if name in counts and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size={self.batch_size} must be divisible by micro_batches={self.micro_batches}"
            )
        if self.warmup is None or not 0 <= self.warmup <= self.steps:
            raise ValueError(
                f"warmup={self.warmup} must be 0 to steps={self.steps}: shorten it, or train longer"
            )
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed={self.seed} must be 0 to 2^63 - 1")
        for name in ("learning_rate", "max_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be positive and finite")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay={self.weight_decay} must be at least 0 and finite")
        if not 0 <= self.final_share <= 1:
            raise ValueError(f"final_share={self.final_share} must be 0 to 1")
        if self.precision not in ("fp32", "amp"):
            raise ValueError(f"precision={self.precision!r} must be 'fp32' or 'amp'")


@dataclass(frozen=True)
class LogRow:
    """What is known after a step; a line of ``log.csv``."""

    step: int
    """Steps done, this one included."""
    loss: float
    """The mean loss of the batch, before the step, in nats per token."""
    learning_rate: float
    gradient_norm: float
    """The length of the gradient before it was shortened."""
    validation_loss: float | None
    """The mean loss on held-out text, after the step, if it was measured."""
    seconds: float
    """Time that the step took, without measuring and saving."""


class Run:
    """A model in training, with all that decides how it goes on.

    What a step does with it stands in the methods, because :class:`gptlab.distributed.SharedRun`, a run in several
    processes at once, does it in another way.
    """

    writes = True
    """Whether this process writes log and checkpoints; of several, one does."""

    def __init__(
        self,
        model: GPT,
        settings: TrainingSettings,
        tokens: Tokens,
        validation: Tokens | None = None,
    ) -> None:
        """
        Args:
            model: the model, on the device to train on, with float32 weights.
            settings: how to train it.
            tokens: token ids to train on, from :func:`gptlab.data.load_tokens` for instance.
            validation: token ids to measure on.

        Raises:
            ValueError: the context is longer than the model's, or than one of the two rows of tokens.
        """
        if settings.context > model.config.n_positions:
            raise ValueError(
                f"context={settings.context} is more than the model's n_positions={model.config.n_positions}"
            )
        if validation is not None:
            check_length(validation, settings.context)
        self.model, self.settings, self.validation = model, settings, validation
        self.batches = Batches(tokens, settings.batch_size, settings.context, settings.seed)
        self.optimizer: torch.optim.Optimizer = make_optimizer(model, settings)
        self.fingerprint = fingerprint(tokens)
        self.step = 0

    @property
    def device(self) -> torch.device:
        return self.model.wte.weight.device

    def backward(self, x: Int[Tensor, "B T"], y: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Give the parameters the gradient of the batch's mean loss, and return that loss."""
        return backward(self.model, x, y, self.settings.micro_batches, self.settings.precision)

    def clip_gradient(self) -> Float[Tensor, ""]:
        """Shorten the gradient to ``max_norm`` if it is longer, and return the length that it had."""
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_norm)

    def evaluate(self, tokens: Tokens) -> float:
        """The mean loss over a row of tokens, of which as much goes through the model at once as in training."""
        rows = self.settings.batch_size // self.settings.micro_batches
        return evaluate(self.model, tokens, rows, self.settings.context)

    def agree(self, stop: bool) -> bool:
        """Whether to stop: if any process wants to, all do."""
        return stop

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain containers."""
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "config": asdict(self.model.config),
            "settings": {**asdict(self.settings), "betas": list(self.settings.betas)},
            "tokens": self.fingerprint,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
            "random": random,  # dropout draws from it
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken. Config and settings must be those that it was taken with.

        Raises:
            ValueError: the tokens are others than those that the run began with.
        """
        if state["tokens"] != self.fingerprint:
            raise ValueError(
                f"the run began with other tokens (mark {state['tokens']}, here {self.fingerprint}): resume it with "
                f"the file that it was started with"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        self.step = state["step"]
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.device)


def train(
    run: Run,
    folder: str | PathLike[str] | None = None,
    *,
    after_step: Callable[[LogRow], object] = lambda row: None,
) -> list[LogRow]:
    """Train until ``settings.steps`` steps are done.

    Args:
        run: the model, its data and its settings; it is changed, and may have begun before.
        folder: where the log and the checkpoints go; unless given, nothing is written.
        after_step: called after each step, to show progress. If it returns ``"stop"``, training ends there, with a
            checkpoint.

    Returns:
        A row for each step that was taken.

    Raises:
        FloatingPointError: the loss or the gradient is no longer a number.
        OSError: a checkpoint cannot be written; the one before it is whole.
    """
    settings, model, rows = run.settings, run.model, []
    if folder is not None:
        start_log(Path(folder), run)
    while run.step < settings.steps:
        started = time.perf_counter()
        model.train()
        rate = learning_rate(run.step, settings)
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        x, y = (part.to(run.device) for part in run.batches.next())
        loss = run.backward(x, y)
        norm = run.clip_gradient()
        check_finite(loss, norm, run.step)
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.step += 1
        seconds = time.perf_counter() - started

        last = run.step == settings.steps
        measured = None
        if run.validation is not None and (last or run.step % settings.evaluate_every == 0):
            measured = run.evaluate(run.validation)
        row = LogRow(run.step, loss.item(), rate, norm.item(), measured, seconds)
        rows.append(row)
        stop = run.agree(after_step(row) == "stop")
        if folder is not None:
            if run.writes:
                append_log(Path(folder), row)
            if last or stop or run.step % settings.save_every == 0:
                save_run(run, folder)
        if stop:
            break
    model.eval()
    return rows


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """The learning rate of a step, counted from 0: a straight rise, then half a cosine down.

    The first step's is not 0, which would waste it: it is 1 / (warmup + 1) of the largest. Radford et al. 2018,
    section 4.1, warm up and follow a cosine to 0; Brown et al. 2020, appendix B, stop at a tenth, as the default here.
    """
    warmup = cast("int", settings.warmup)
    if step < warmup:
        return settings.learning_rate * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, settings.steps - 1 - warmup)
    share = settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
    return settings.learning_rate * share


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay towards 0, and the rest, which does not: biases, and LayerNorm's gains.

    GPT-2 small: 50 tensors with 124,318,464 parameters, and 98 with 121,344. A tied head is there once.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def make_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) over :func:`parameter_groups`, in PyTorch's fused form."""
    if any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters()):
        warnings.warn(
            "the weights are in half precision: a step smaller than a weight's last digit is rounded away, and the "
            "weight never moves. Train in float32, with precision='amp' for speed",
            stacklevel=2,
        )
    groups = parameter_groups(model, settings.weight_decay)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)


def backward(
    model: GPT,
    x: Int[Tensor, "B T"],
    y: Int[Tensor, "B T"],
    micro_batches: int = 1,
    precision: str = "fp32",
) -> Float[Tensor, ""]:
    """Add the gradient of the batch's mean loss to the parameters' gradients, and return that loss.

    The batch goes through the model in parts. Each part's mean counts by its share of the targets, so that any
    number of parts gives the same gradient: a mean of means would not, where parts have unequally many targets.

    Raises:
        ValueError: no position has a target.
    """
    total = count_targets(y)
    sum_of_parts = torch.zeros((), device=x.device)
    for inputs, targets in zip(x.chunk(micro_batches), y.chunk(micro_batches), strict=True):
        share = (targets != IGNORE).sum() / total
        if share > 0:
            loss = share * training_loss(model, inputs, targets, precision)
            loss.backward()
            sum_of_parts += loss.detach()
    return sum_of_parts


def count_targets(y: Int[Tensor, "B T"]) -> Int[Tensor, ""]:
    """The number of positions that have a target.

    Raises:
        ValueError: none has.
    """
    total = (y != IGNORE).sum()
    if not total:
        raise ValueError(f"every one of the {y.numel()} targets is {IGNORE}: nothing is left to learn from")
    return total


def training_loss(
    model: GPT, x: Int[Tensor, "B T"], y: Int[Tensor, "B T"], precision: str
) -> Float[Tensor, ""]:
    """``token_loss(model(x), y)``, by the form that is fast in this precision.

    Raises:
        ValueError: an unknown precision.
    """
    if precision == "amp":
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return token_loss(model(x), y, IGNORE)
    if precision != "fp32":
        raise ValueError(f"precision={precision!r} must be 'fp32' or 'amp'")
    if not is_bare(model.lm_head):
        return token_loss(model(x), y, IGNORE)
    return fused_token_loss(model.hidden(x), model.lm_head.weight.T, y, IGNORE)


def is_bare(head: nn.Module) -> bool:
    """Whether a head is its weight and no more, so that the weight can do its work: no bias, and nothing hooked to it.

    What stands in the place of GPT-2's head, such as an adapter, is called as a module.
    """
    hooks = head._forward_pre_hooks, head._forward_hooks, head._backward_pre_hooks, head._backward_hooks
    return type(head) is nn.Linear and head.bias is None and not any(hooks)


@torch.no_grad()
def evaluate(model: GPT, tokens: Tokens, batch_size: int, context: int) -> float:
    """The mean loss over a row of tokens, in nats per token, without a trace on training.

    Every window counts once and by its number of tokens. Dropout is off; no random number is drawn; the model
    is afterwards in the mode that it was in.
    """
    device, bare = model.wte.weight.device, is_bare(model.lm_head)
    total, count = 0.0, 0
    with evaluating(model):
        for x, y in windows_in_order(tokens, batch_size, context):
            x, y = x.to(device), y.to(device)
            # In half precision a sum over many positions loses digits: the chunked form takes it in float32.
            if not bare:
                loss = token_loss(model(x).float(), y)
            elif model.lm_head.weight.dtype == torch.float32:
                loss = fused_token_loss(model.hidden(x), model.lm_head.weight.T, y)
            else:
                loss = chunked_token_loss(model.hidden(x), model.lm_head.weight.T, y)
            total, count = total + loss.item() * y.numel(), count + y.numel()
    return total / count


def check_finite(loss: Tensor, norm: Tensor, step: int) -> None:
    """Stop before a step that would spoil every weight."""
    if not (loss.isfinite() and norm.isfinite()):
        raise FloatingPointError(
            f"in step {step + 1} the loss is {loss.item():.4g} and the gradient's norm {norm.item():.4g}: training "
            f"has diverged. The weights are those of step {step}; try a lower learning rate, or a longer warm-up"
        )


def save_run(run: Run, folder: str | PathLike[str]) -> None:
    """Write a checkpoint: all that a run needs to go on, and the weights as a model of their own beside it.

    ``state.pt`` is one file, replaced at once or not at all.

    Raises:
        OSError: it could not be written. The checkpoint before it is whole.
    """
    folder = Path(folder)
    state = run.state_dict()  # of several processes, each takes part in putting it together
    if not run.writes:
        return
    try:
        with replacing(folder / STATE) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
        save_checkpoint(model_of(state), folder)
    except (OSError, RuntimeError) as err:
        if is_out_of_memory(err):
            raise
        raise OSError(
            f"the checkpoint of step {run.step} could not be written to {folder}: {err}. The last complete one is "
            f"still there. Make room, then resume"
        ) from err


def model_of(state: dict[str, Any]) -> GPT:
    """The model in a run's state. It shares the state's tensors."""
    with torch.device("meta"):  # shapes only
        model = GPT(GPTConfig(**state["config"]))
    model.load_state_dict(state["model"], assign=True)
    return model


def load_state(folder: str | PathLike[str]) -> dict[str, Any]:
    """What :func:`save_run` wrote: plain containers and tensors; nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no checkpoint in the folder.
        MemoryError, RuntimeError: it does not fit in memory, as :func:`gptlab.devices.is_out_of_memory` knows.
        ValueError: it is damaged.
    """
    file = Path(folder) / STATE
    if not file.exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no {STATE}")
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as err:  # torch raises a different type for each way to be damaged
        if is_out_of_memory(err):
            raise
        raise ValueError(f"{file} is damaged or no checkpoint of a run: {err}") from err


def resume(
    folder: str | PathLike[str],
    tokens: Tokens,
    validation: Tokens | None = None,
    device: torch.device | str = "cpu",
    make_run: Callable[[GPT, TrainingSettings, Tokens, Tokens | None], Run] = Run,
) -> Run:
    """The run that was saved in a folder, ready to go on, with the same tokens.

    On the machine it was saved on, it goes on as if it had never stopped: the same losses, bit for bit.

    Args:
        folder: where the run was saved.
        tokens: those that it began with.
        validation: token ids to measure on.
        device: where to train.
        make_run: makes a run of model, settings and tokens: :class:`Run`, or one in several processes, see
            :mod:`gptlab.distributed`.
    """
    state = load_state(folder)
    try:
        settings = {**state["settings"], "betas": tuple(state["settings"]["betas"])}
        model = GPT(GPTConfig(**state["config"])).to(device)
        run = make_run(model, TrainingSettings(**settings), tokens, validation)
        run.load_state_dict(state)
    except KeyError as err:
        raise ValueError(f"{folder}/{STATE} has no entry {err}: it is no checkpoint of a run") from err
    except TypeError as err:
        raise ValueError(f"{folder}/{STATE} is from another version of gptlab: {err}") from err
    return run


def start_log(folder: Path, run: Run) -> None:
    """Begin the log, or cut off what was written after the checkpoint from which the run goes on.

    Raises:
        ValueError: the run is new, but the folder holds one that has begun.
    """
    if run.writes:
        folder.mkdir(parents=True, exist_ok=True)
        if not run.step and (folder / STATE).exists() and load_state(folder)["step"]:
            raise ValueError(f"{folder} holds a run that has begun: resume it, or choose another folder")
        remove_leftovers(folder)
        kept = [row for row in read_log(folder) if row.step <= run.step] if run.step else []
        with replacing(folder / LOG) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(LogRow.__dataclass_fields__)
            writer.writerows(_cells(row) for row in kept)
    if not run.step:
        save_run(run, folder)  # from the first step on there is something to go back to


def append_log(folder: Path, row: LogRow) -> None:
    """Add a line. Numbers are written with all their digits."""
    with (folder / LOG).open("a", newline="") as file:
        csv.writer(file).writerow(_cells(row))


def read_log(folder: str | PathLike[str]) -> list[LogRow]:
    """The rows of a run's log; a last line that was cut off is left out.

    Raises:
        ValueError: a line is no row of a log.
    """
    with (Path(folder) / LOG).open(newline="") as file:
        lines = file.read().splitlines(keepends=True)[1:]
    try:
        return [_row(line) for line in lines if line.endswith("\n")]
    except ValueError as err:
        raise ValueError(f"{folder}/{LOG} is damaged: {err}") from err


def _cells(row: LogRow) -> Iterator[object]:
    for value in asdict(row).values():
        yield "" if value is None else value


def _row(line: str) -> LogRow:
    step, loss, rate, norm, validation, seconds = next(csv.reader([line]))
    measured = float(validation) if validation else None
    return LogRow(int(step), float(loss), float(rate), float(norm), measured, float(seconds))
