"""The command ``gptlab``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

app = typer.Typer(
    help="GPT-2 built step by step: count it, weigh it, train it, let it write, check exercises.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COLOURS = {"✓": "green", "✗": "yellow", "!": "red", "○": "dim"}


@app.callback()
def main() -> None:
    """GPT-2 built step by step: count it, weigh it, train it, let it write, check exercises."""


@app.command()
def exercises() -> None:
    """List the exercises and where you stand."""
    from gptlab.exercises import progress

    try:
        _show(str(progress()))
    except (OSError, ValueError) as error:  # a progress file that cannot be read
        _fail(str(error))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="a .py file with your functions")],
) -> None:
    """Run FILE and check every function in it whose name is an exercise."""
    from gptlab.exercises import check as check_one
    from gptlab.exercises.exercise import everything

    found = _run(file)
    names = [exercise.name for exercise in everything() if exercise.name in found]
    if not names:
        known = ", ".join(exercise.name for exercise in everything())
        _fail(f"{file} defines no exercise; there are: {known}")
    reports = [check_one(name, found[name]) for name in names]
    for report in reports:
        _show(str(report))
    raise typer.Exit(0 if all(report.status == "passed" for report in reports) else 1)


@app.command()
def grade(
    submission: Annotated[Path, typer.Argument(help="a notebook or a .py file")],
    seed: Annotated[int | None, typer.Option(help="for the random cases; your own, kept to yourself")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object per exercise")] = False,
    only: Annotated[list[str] | None, typer.Option(help="this exercise only; may be repeated")] = None,
    seconds: Annotated[float, typer.Option(help="limit for the submission and for each exercise")] = 60.0,
    memory_gb: Annotated[float, typer.Option(help="limit of the process's memory")] = 8.0,
) -> None:
    """Grade a submission in a process of its own. It isolates accidents; it is no sandbox."""
    from gptlab.exercises.exercise import find
    from gptlab.exercises.grade import as_json
    from gptlab.exercises.grade import grade as grade_all

    try:
        names = tuple(find(name).name for name in only or ())
        grades = grade_all(submission, seed=seed, only=names, seconds=seconds, memory_gb=memory_gb)
    except FileNotFoundError:
        _fail(f"{submission} does not exist")
    except (OSError, ValueError) as error:
        _fail(str(error))
    if json:
        sys.stdout.write(as_json(grades) + "\n")
        return
    for one in grades:  # a report begins with its sign; what kept an exercise from being checked has none
        _show(one.text if one.text[:1] in COLOURS else f"○ {one.exercise}: {one.text}")
    passed = sum(one.status == "passed" for one in grades)
    _show(f"{passed} of {len(grades)} passed")


@app.command()
def ledger(
    source: Annotated[
        str, typer.Argument(help="gpt2, gpt2-medium, gpt2-large or gpt2-xl; a config.json; a checkpoint")
    ] = "gpt2",
    untied: Annotated[bool, typer.Option("--untied", help="as if the head had a table of its own")] = False,
    json: Annotated[bool, typer.Option("--json", help="one JSON object with every tensor")] = False,
    card: Annotated[
        Path | None, typer.Option(help="also draw the budget on a card: a .png, .svg or .pdf")
    ] = None,
) -> None:
    """Count the parameters of SOURCE, tensor by tensor. Of a checkpoint only the file's header is read."""
    from gptlab import cli_ledger

    try:
        found = cli_ledger.find(source, untied=untied)
        if card is not None:
            cli_ledger.save_card(found.config, card)
    except (OSError, ValueError) as error:
        _fail(str(error))
    if json:
        sys.stdout.write(cli_ledger.as_json(found) + "\n")
    else:
        cli_ledger.show(found, Console(highlight=False))


@app.command()
def memory(
    call: typer.Context,
    source: Annotated[
        str, typer.Argument(help="gpt2, gpt2-medium, gpt2-large or gpt2-xl; a config.json; a checkpoint")
    ] = "gpt2",
    batch: Annotated[int, typer.Option(help="windows in a step, or rows that are generated")] = 4,
    context: Annotated[
        int | None, typer.Option(help="tokens in a window; the model's longest if left out")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="fp32, amp, bf16 or master; --inference: fp32, bf16 or int8")
    ] = "fp32",
    attention: Annotated[str, typer.Option(help="sdpa, the fused kernel, or explicit")] = "sdpa",
    checkpointing: Annotated[bool, typer.Option("--checkpointing", help="compute each block twice")] = False,
    loss: Annotated[str, typer.Option(help="full, chunked or fused, which gptlab train uses")] = "full",
    optimizer: Annotated[str, typer.Option(help="AdamW's form: fused, foreach or loop")] = "fused",
    micro_batches: Annotated[int, typer.Option(help="parts in which a batch is computed")] = 1,
    dropout: Annotated[float | None, typer.Option(help="in place of the config's, 0.1 in GPT-2")] = None,
    inference: Annotated[
        bool, typer.Option("--inference", help="of generating text, not of training")
    ] = False,
    fits: Annotated[
        str | None, typer.Option(help="a size, such as 8GB: does it fit, and what would make it?")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="draw the step's timeline: a .png, .svg or .pdf")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="also run it on fake tensors, and compare")] = False,
    json: Annotated[bool, typer.Option("--json", help="one JSON object with every number")] = False,
) -> None:
    """Predict the memory of a training step of SOURCE, its peak to the byte; or of generating text with it.

    To the byte with PyTorch 2.13.0, with which it was measured.

    With --fits the exit status is 1 if it does not fit.
    """
    from gptlab import cli_memory

    console = Console(highlight=False, soft_wrap=True)
    fit = True
    try:
        config = cli_memory.config_of(source, dropout=dropout)
        limit = None if fits is None else cli_memory.parse_size(fits)
        if inference:
            _alone(call, "inference", ("source", "batch", "context", "precision"), "trains nothing")
            T, found = cli_memory.predict_inference(config, batch, context, precision)
            cli_memory.show_inference(source, batch, T, precision, found, console)
            return
        how = {
            "precision": precision,
            "attention": attention,
            "checkpointing": checkpointing,
            "loss": loss,
            "optimizer": optimizer,
            "micro_batches": micro_batches,
        }
        predicted = cli_memory.predict_training(config, batch, context, **how)
        if plot is not None:
            cli_memory.save_plot(predicted, plot)
        if json:
            allowed = [name for name in call.params if name not in ("fits", "trace")]
            _alone(call, "json", allowed, "has every number of the prediction, and nothing else")
            sys.stdout.write(cli_memory.training_json(source, predicted) + "\n")
            return
        if limit is None:
            cli_memory.show_training(source, predicted, console)
        else:
            fit = cli_memory.show_fit(predicted, limit, console)
        if trace:
            cli_memory.show_trace(predicted, console)
    except (OSError, ValueError, TypeError) as error:
        _fail(str(error))
    raise typer.Exit(0 if fit else 1)


@app.command()
def train(
    call: typer.Context,
    text: Annotated[
        Path | None, typer.Option(help="a UTF-8 text to train on; its last tenth is held out")
    ] = None,
    out: Annotated[Path, typer.Option(help="a new folder for log and checkpoints")] = Path("run"),
    resume: Annotated[
        Path | None, typer.Option(help="go on with the run in this folder; nothing else is needed")
    ] = None,
    steps: Annotated[int, typer.Option(help="changes of the weights")] = 3200,
    batch_size: Annotated[int, typer.Option(help="windows in a step")] = 8,
    context: Annotated[int, typer.Option(help="tokens in a window, and the model's longest")] = 256,
    micro_batches: Annotated[int, typer.Option(help="parts in which a batch is computed")] = 1,
    learning_rate: Annotated[float, typer.Option(help="the largest, after the warm-up")] = 2e-3,
    warmup: Annotated[int, typer.Option(help="steps in which it rises")] = 100,
    n_layer: Annotated[int, typer.Option(help="blocks")] = 6,
    n_embd: Annotated[int, typer.Option(help="width")] = 128,
    n_head: Annotated[int, typer.Option(help="attention heads in a block")] = 4,
    dropout: Annotated[float, typer.Option(help="on the input and on what sublayers add")] = 0.1,
    precision: Annotated[str, typer.Option(help="fp32, or amp for matrix products in bfloat16")] = "fp32",
    seed: Annotated[int, typer.Option(help="of the weights, the batches and dropout")] = 0,
    evaluate_every: Annotated[
        int, typer.Option(help="steps from one measurement on held-out text to the next")
    ] = 400,
    save_every: Annotated[int, typer.Option(help="steps from one checkpoint to the next")] = 100,
    strategy: Annotated[
        str | None, typer.Option(help="ddp or fsdp: how the processes that torchrun started share the work")
    ] = None,
) -> None:
    """Train a small GPT with GPT-2's vocabulary: on Shakespeare, which ships with the package, or on --text.

    Ctrl-C stops after the step, with a checkpoint. Whatever else happens, --resume goes on from the last one.

    On several devices, here two: torchrun --standalone --nproc-per-node 2 -m gptlab train --strategy ddp
    """
    from gptlab import cli_train
    from gptlab.config import GPTConfig
    from gptlab.training import TrainingSettings

    try:
        with cli_train.gathered(strategy) as place:
            if resume is not None:
                _alone(call, "resume", ("strategy",), "goes on with the settings of the run")
                cli_train.go_on(resume, place)
                return
            config = GPTConfig(
                n_positions=context,
                n_embd=n_embd,
                n_layer=n_layer,
                n_head=n_head,
                embd_pdrop=dropout,
                attn_pdrop=0.0,  # dropout inside attention would cost its fast form on CPUs
                resid_pdrop=dropout,
            )
            settings = TrainingSettings(
                steps=steps,
                batch_size=batch_size,
                context=context,
                micro_batches=micro_batches,
                learning_rate=learning_rate,
                warmup=warmup,
                precision=precision,
                seed=seed,
                evaluate_every=evaluate_every,
                save_every=save_every,
            )
            cli_train.begin(out, text, config, settings, place)
    except (OSError, ValueError, FloatingPointError) as error:
        _fail(str(error))


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="how the text begins")] = "",
    model: Annotated[
        str, typer.Option(help="a run's folder, a checkpoint, gpt2 (downloaded), or shakespeare (shipped)")
    ] = "shakespeare",
    tokens: Annotated[int, typer.Option(help="at most this many new ones")] = 200,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="draw from the k likeliest only")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="draw from the likeliest up to this probability")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed writes the same text")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="show the text while it is made")] = False,
) -> None:
    """Continue PROMPT. The model that ships with the package has read Shakespeare and nothing else."""
    import torch

    from gptlab import generation
    from gptlab.checkpoint import from_pretrained
    from gptlab.devices import device
    from gptlab.tokenizer import get_tokenizer

    tokenizer = get_tokenizer()
    try:
        gpt = from_pretrained(model).to(device())
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
        ids = tokenizer.encode(prompt) or [tokenizer.end_of_text]
        new = generation.stream(
            gpt,
            torch.tensor([ids], device=device()),
            tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            eos_token_id=tokenizer.end_of_text,
            generator=generator,
        )
        written = tokenizer.stream_decode(token for token in map(int, new) if token != tokenizer.end_of_text)
        pieces = chain([prompt], written, ["\n"])
        for piece in pieces if stream else ["".join(pieces)]:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough: no fault to report
        raise
    except (OSError, ValueError) as error:
        _fail(str(error))


def _alone(call: typer.Context, option: str, allowed: Iterable[str], why: str) -> None:
    """Raise if options were given that have no effect beside this one."""
    source = call.get_parameter_source
    given = [name for name in call.params if getattr(source(name), "name", "") == "COMMANDLINE"]
    if others := [name.replace("_", "-") for name in given if name not in (option, *allowed)]:
        raise ValueError(f"--{option} {why}: leave out --{' and --'.join(others)}")


def _run(file: Path) -> dict[str, object]:
    """Execute a file and return what it defines."""
    import runpy

    if not file.exists():
        _fail(f"{file} does not exist")
    if file.suffix == ".ipynb":
        _fail(f"{file} is a notebook: check it in its cells with gptlab.check, or with gptlab grade {file}")
    try:
        return runpy.run_path(str(file))
    except SystemExit:
        _fail(f"{file} calls exit(): nothing in it was checked")
    except Exception as error:
        _fail(f"{file} does not run: {type(error).__name__}: {error}")


def _show(text: str) -> None:
    """Print, with a coloured sign at the start of a line where the terminal has colours and wants them."""
    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        console.print(Text(line[:1], COLOURS.get(line[:1], "")) + Text(line[1:]))


def _fail(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))
    raise typer.Exit(2)
