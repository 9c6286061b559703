"""What ``gptlab train`` does round the loop: data files, a progress bar, Ctrl-C, and a picture of the run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

import torch
from tqdm import tqdm

from gptlab import data
from gptlab.config import GPTConfig
from gptlab.data import Tokens
from gptlab.devices import device, is_out_of_memory
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep
from gptlab.model import GPT
from gptlab.tokenizer import get_tokenizer
from gptlab.training import STATE, LogRow, Run, TrainingSettings, read_log, resume, train

TRAIN, VALIDATION, PICTURE = "train.npy", "validation.npy", "loss.png"


@dataclass(frozen=True)
class Place:
    """Where a run goes on: here, or in several processes of which this is one."""

    make_run: Callable[[GPT, TrainingSettings, Tokens, Tokens | None], Run]
    """Makes a run of a model on the CPU, settings, and tokens to train and to measure on."""
    command: str = "gptlab train"
    """What trains in the same way."""
    processes: int = 1
    first: bool = True
    """Whether this process is the one that writes and prints."""
    wait: Callable[[], object] = lambda: None
    """Return when every process has come here."""


@contextmanager
def gathered(strategy: str | None) -> Iterator[Place]:
    """This process alone; or, where torchrun has started it, together with the others.

    Raises:
        ValueError: the strategy is unknown; or torchrun was left out, or the strategy.
    """
    processes = os.environ.get("WORLD_SIZE") if "TORCHELASTIC_RUN_ID" in os.environ else None
    torchrun = f"torchrun --standalone --nproc-per-node {processes or 2} -m gptlab train --strategy "
    if processes is None and strategy is None:
        yield Place(lambda model, *rest: Run(model.to(device()), *rest))
    elif processes is None:
        raise ValueError(f"--strategy is for several processes, which torchrun starts: {torchrun}{strategy}")
    else:
        from torch.distributed import barrier, get_rank

        from gptlab import distributed  # slow to import, and not needed by one process

        with distributed.joined() as own:
            if strategy is None:
                raise ValueError(
                    f"torchrun started {processes} processes: say how they share the work, with --strategy ddp or "
                    f"--strategy fsdp"
                )
            make_run = partial(distributed.SharedRun, strategy=strategy, device=own)
            yield Place(make_run, torchrun + strategy, int(processes), get_rank() == 0, barrier)


def begin(
    folder: Path, text: Path | None, config: GPTConfig, settings: TrainingSettings, place: Place
) -> None:
    """Start a run in a new folder. All that it needs later is put there."""
    with _explained(folder, place, config, settings):
        if place.first:
            _prepare(folder, text, config, settings)
        place.wait()
        torch.manual_seed(settings.seed)
        _train(place.make_run(GPT(config), settings, *_tokens(folder)), folder, place)


def _prepare(folder: Path, text: Path | None, config: GPTConfig, settings: TrainingSettings) -> None:
    if (folder / STATE).exists():
        raise ValueError(
            f"{folder} already holds a run: go on with gptlab train --resume {folder}, or choose another --out"
        )
    if text is None:
        parts = data.shakespeare("train"), data.shakespeare("validation")
    else:
        parts = data.split_text(data.read_text(text))
    rows = [data.encode_documents(part) for part in parts]
    for tokens in rows:
        data.check_length(tokens, settings.context)
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in zip((TRAIN, VALIDATION), rows, strict=True):
        data.save_tokens(tokens, folder / name)
    content = {"text": str(text or "shakespeare"), "config": asdict(config), "settings": asdict(settings)}
    (folder / "settings.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def go_on(folder: Path, place: Place) -> None:
    """Take up the run in a folder."""
    if not (folder / STATE).exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no {STATE}")
    with _explained(folder, place):
        run = resume(folder, *_tokens(folder), make_run=place.make_run)
    if run.step == run.settings.steps:
        raise ValueError(f"the run in {folder} is complete: all its {run.step} steps are done")
    if place.first:
        print(f"Going on after step {run.step}")
    with _explained(folder, place, run.model.config, run.settings):
        _train(run, folder, place)


@contextmanager
def _explained(
    folder: Path, place: Place, config: GPTConfig | None = None, settings: TrainingSettings | None = None
) -> Iterator[None]:
    """Say in one line, where memory runs out, what needs less, and what is left of the run.

    Raises:
        MemoryError: it has run out.
    """
    try:
        yield
    except Exception as err:
        if not is_out_of_memory(err):
            raise
        words = ["out of memory."]
        if config and settings:
            words += [what_needs_less(config, settings, place.processes)]
        if (folder / STATE).exists():
            words += [
                f"The last checkpoint is whole: where there is more memory, go on with {place.command} --resume "
                f"{folder}; with other settings, begin anew with another --out"
            ]
        raise MemoryError(" ".join(words)) from err


def what_needs_less(config: GPTConfig, settings: TrainingSettings, processes: int = 1) -> str:
    """What a step needs by prediction, and what it needs if the batch goes through the model in more parts.

    Of several processes each is taken to hold the whole model.
    """
    share = settings.batch_size // processes

    def peak(parts: int) -> str:
        loss: Literal["fused", "full"] = "fused" if settings.precision == "fp32" else "full"
        precision: Literal["fp32", "amp"] = "fp32" if settings.precision == "fp32" else "amp"
        step = TrainingStep(config, share, settings.context, precision, loss=loss, micro_batches=parts)
        return f"{replay(step).peak.live / 1e9:.3g} GB"

    finer = [parts for parts in range(settings.micro_batches + 1, share + 1) if share % parts == 0]
    ways = [f"--micro-batches {parts}: {peak(parts)}" for parts in dict.fromkeys([*finer[:1], *finer[-1:]])]
    less = ", ".join(ways) or "less with a shorter --context, or a smaller model"
    return f"A step is predicted to need {peak(settings.micro_batches)}; {less}."


def _tokens(folder: Path) -> tuple[Tokens, Tokens]:
    """What to train on and what is held out, in GPT-2's vocabulary, which every run here has."""
    vocab_size = get_tokenizer().vocab_size
    return data.load_tokens(folder / TRAIN, vocab_size), data.load_tokens(folder / VALIDATION, vocab_size)


def _train(run: Run, folder: Path, place: Place) -> None:
    parameters = sum(p.numel() for p in run.model.parameters())
    where = run.device.type if place.processes == 1 else f"{place.processes} processes, {run.device.type}"
    if place.first:
        print(f"{parameters:,} parameters on {where}, {len(run.batches.tokens):,} tokens to train on")
    total, done = run.settings.steps, run.step
    with (
        _first_interrupt() as interrupted,
        tqdm(total=total, initial=done, unit="step", dynamic_ncols=True, disable=not place.first) as bar,
    ):

        def show(row: LogRow) -> str | None:
            bar.update()
            bar.set_postfix_str(f"loss {row.loss:.3f}")
            if row.validation_loss is not None and place.first:
                bar.write(f"step {row.step:>6}  loss {row.loss:.4f}  held-out text {row.validation_loss:.4f}")
            return "stop" if interrupted() else None

        train(run, folder, after_step=show)
    if not place.first:
        return
    _draw(folder)
    if run.step < total:
        print(f"Stopped after step {run.step} of {total}, saved. To go on: {place.command} --resume {folder}")
    else:
        print(f'Done. Let it write: gptlab generate "To be" --model {folder} --stream')


@contextmanager
def _first_interrupt() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C, so that the step can be finished; a second one interrupts as always."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _draw(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    from gptlab.plots import course_style
    from gptlab.plots.training import loss_curve

    rows = read_log(folder)
    if not rows:
        return
    course_style()
    figure, ax = plt.subplots()
    measured = [(row.step, row.validation_loss) for row in rows if row.validation_loss is not None]
    loss_curve(ax, [row.step for row in rows], [row.loss for row in rows], measured)
    figure.savefig(folder / PICTURE)
    plt.close(figure)
