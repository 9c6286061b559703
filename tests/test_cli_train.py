from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from gptlab import GPTConfig
from gptlab.cli import app
from gptlab.cli_train import what_needs_less
from gptlab.memory.forms import training_memory
from gptlab.training import Run, TrainingSettings, load_state, read_log

pytestmark = pytest.mark.usefixtures("as_a_user")  # typer's context is of another class than the annotation's


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


SMALL = [
    "--n-layer",
    "1",
    "--n-embd",
    "8",
    "--n-head",
    "2",
    "--context",
    "8",
    "--batch-size",
    "2",
    "--warmup",
    "1",
]


@pytest.fixture
def text(tmp_path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("To be, or not to be: that is the question.\n" * 30, "utf-8")
    return file


def test_a_newcomer_trains_interrupts_resumes_and_samples(text, tmp_path):
    out, other = tmp_path / "run", tmp_path / "unbroken"
    command = [sys.executable, "-m", "gptlab"]
    options = ["--text", str(text), *SMALL, "--steps", "40", "--evaluate-every", "20", "--save-every", "7"]
    running = subprocess.Popen(
        [*command, "train", "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "log.csv").exists() or len((out / "log.csv").read_text().splitlines()) < 5:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert re.search(r"Stopped after step \d+ of 40, saved. To go on: gptlab train --resume", output)
    for arguments in (["--resume", str(out)], ["--out", str(other), *options]):
        done = subprocess.run([*command, "train", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Done. Let it write: gptlab generate" in done.stdout
        assert "Traceback" not in done.stderr
    logs = [[row.split(",")[:-1] for row in (f / "log.csv").read_text().splitlines()] for f in (out, other)]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 41
    assert (out / "loss.png").stat().st_size > 1000
    sampled = run("generate", "To be", "--model", out, "--tokens", 5, "--seed", 1)
    assert sampled.exit_code == 0
    assert sampled.stdout.startswith("To be")


def test_what_was_shown_while_it_was_made_is_what_is_shown_at_once(text, tmp_path):
    trained = run("train", "--text", text, "--out", tmp_path / "run", *SMALL, "--steps", 2)
    assert trained.exit_code == 0, trained.stderr or trained.exception
    arguments = ["generate", "é", "--model", tmp_path / "run", "--tokens", 30, "--seed", 3]
    whole, streamed = run(*arguments), run(*arguments, "--stream")
    assert whole.exit_code == streamed.exit_code == 0, whole.stderr
    assert whole.stdout == streamed.stdout
    assert whole.stdout.startswith("é")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "steps=0 must be at least 1"),
        (["--n-embd", "7"], "n_embd=7 must be divisible by n_head=2"),
        (["--context", "100000"], "tokens are too few for a window of 100000"),
        (["--precision", "fp8"], "precision='fp8' must be"),
        (["--text", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_settings_of_a_run_are_named_without_a_traceback(text, tmp_path, arguments, message):
    result = run("train", "--out", tmp_path / "run", "--text", text, *SMALL, "--steps", 2, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "run" / "state.pt").exists()


def test_every_default_fits_a_short_run_and_the_warmup_is_said(text, tmp_path):
    short = [option for option in SMALL if option not in ("--warmup", "1")]
    short[1:1] = ["1"]  # of --n-layer
    result = run("train", "--out", tmp_path / "run", "--text", text, *short, "--steps", 10)
    assert result.exit_code == 0, result.stderr
    assert "The learning rate rises for 1 of 10 steps: --warmup sets it\n" in result.stdout
    assert (
        "rises for" not in run("train", "--out", tmp_path / "2", "--text", text, *SMALL, "--steps", 2).stdout
    )


CHOSEN = {"steps": 3, "batch_size": 6, "context": 8, "warmup": 1}
LARGE = GPTConfig(n_positions=8, n_embd=8, n_layer=1, n_head=2)


def test_what_a_smaller_share_of_the_batch_would_need_is_the_prediction():
    def predicted(parts):
        memory = training_memory(LARGE, batch_size=6, context=8, loss="fused", micro_batches=parts)
        return f"{memory.peak / 1e9:.3g} GB"

    said = what_needs_less(LARGE, TrainingSettings(**CHOSEN))
    assert said == (
        f"A step is predicted to need {predicted(1)}; --micro-batches 2: {predicted(2)}, "
        f"--micro-batches 6: {predicted(6)}."
    )
    finest = what_needs_less(LARGE, TrainingSettings(**CHOSEN, micro_batches=6, precision="amp"))
    assert finest.endswith("; less with a shorter --context, or a smaller model.")
    assert "--micro-batches 3: " in what_needs_less(LARGE, TrainingSettings(**CHOSEN), processes=2)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        MemoryError(),
    ],
    ids=["CPU", "CUDA", "Python"],
)
@pytest.mark.parametrize("part", ["clip_gradient", "evaluate", "state_dict"])
def test_a_lack_of_memory_is_one_line_and_the_checkpoint_goes_on(text, tmp_path, monkeypatch, error, part):
    options = ["--steps", 6, "--save-every", 2, "--evaluate-every", 5]
    work, calls = getattr(Run, part), []

    def fails(*arguments):
        calls.append(part)
        if len(calls) == {"clip_gradient": 4, "evaluate": 1, "state_dict": 3}[part]:
            raise error
        return work(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Run, part, fails)
        out = tmp_path / "run"
        result = run("train", "--out", out, "--text", text, *SMALL, *options)
    assert result.exit_code == 2
    (line,) = [
        line for line in result.stderr.splitlines() if line and "step/s" not in line and "it/s" not in line
    ]
    assert re.match(
        r"out of memory\. A step is predicted to need [\d.]+ GB; --micro-batches 2: [\d.]+ GB\. ", line
    )
    assert line.endswith(
        f"The last checkpoint is whole: where there is more memory, go on with gptlab train --resume {out}; with "
        f"other settings, begin anew with another --out"
    )
    assert run("train", "--resume", out).exit_code == 0
    whole = run("train", "--out", tmp_path / "whole", "--text", text, *SMALL, *options)
    assert whole.exit_code == 0
    logs = [[row.loss for row in read_log(folder)] for folder in (out, tmp_path / "whole")]
    assert logs[0] == logs[1]


def test_a_lack_of_memory_when_going_on_is_one_line(text, tmp_path, monkeypatch):
    out = tmp_path / "run"
    assert run("train", "--out", out, "--text", text, *SMALL, "--steps", 2).exit_code == 0
    monkeypatch.setattr(torch, "load", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    result = run("train", "--resume", out)
    assert result.exit_code == 2
    assert result.stderr.startswith("out of memory. The last checkpoint is whole: ")


def test_another_error_while_training_is_not_hidden(text, tmp_path, monkeypatch):
    def fails(_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(Run, "clip_gradient", fails)
    result = run("train", "--out", tmp_path / "run", "--text", text, *SMALL, "--steps", 2)
    assert str(result.exception) == "mat1 and mat2 shapes cannot be multiplied"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_a_process_that_really_gets_no_more_memory_says_so_in_one_line(tmp_path):
    limited = (
        "import resource, sys, torch, gptlab.cli_train\n"
        "from gptlab.cli import app\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + 400 * 10**6\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "app(sys.argv[1:])"
    )
    options = [*SMALL, "--batch-size", "4096", "--context", "64", "--n-embd", "64", "--steps", "2"]
    done = subprocess.run(
        [sys.executable, "-c", limited, "train", "--out", str(tmp_path / "run"), *options],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("out of memory. A step is predicted to need ")
    assert load_state(tmp_path / "run")["step"] == 0


def test_a_run_is_never_overwritten_and_a_finished_one_says_so(text, tmp_path):
    command = ["train", "--text", text, "--out", tmp_path / "run", *SMALL, "--steps", 2]
    assert run(*command).exit_code == 0
    again = run(*command)
    assert again.exit_code == 2
    assert "already holds a run: go on with gptlab train --resume" in again.stderr
    finished = run("train", "--resume", tmp_path / "run")
    assert finished.exit_code == 2
    assert "is complete: all its 2 steps are done" in finished.stderr


def test_options_that_resume_would_ignore_are_refused(tmp_path):
    result = run("train", "--resume", tmp_path, "--steps", 5, "--n-layer", 2)
    assert result.exit_code == 2
    assert "leave out --steps and --n-layer" in result.stderr


# Several processes


TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "gptlab",
]


@pytest.mark.parametrize("options", [["--strategy", "ddp"], ["--resume", "run", "--strategy", "fsdp"]])
def test_a_strategy_without_torchrun_shows_the_command(options, tmp_path):
    result = run("train", "--out", tmp_path / "run", *options)
    assert result.exit_code == 2
    command = f"torchrun --standalone --nproc-per-node 2 -m gptlab train --strategy {options[-1]}"
    assert command in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            [],
            "torchrun started 2 processes: say how they share the work, with --strategy ddp or --strategy fsdp",
        ),
        (["--strategy", "zero"], "strategy='zero' must be 'ddp' or 'fsdp'"),
        (["--strategy", "ddp", "--batch-size", "3"], "batch_size=3 must be divisible by 2 processes"),
    ],
)
def test_in_two_processes_an_error_is_said_once(text, tmp_path, options, message):
    command = [*TORCHRUN, "train", "--text", str(text), "--out", str(tmp_path / "run"), *SMALL, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.count(message) == 1, done.stderr
    assert "gptlab/cli" not in done.stderr  # torchrun's own traceback is there, none of ours
    assert not (tmp_path / "run" / "state.pt").exists()


@pytest.mark.slow
def test_two_processes_are_interrupted_two_others_go_on_and_the_log_is_that_of_one(text, tmp_path):
    out, other = tmp_path / "run", tmp_path / "unbroken"
    options = ["--text", str(text), *SMALL, "--steps", "60", "--dropout", "0", "--evaluate-every", "30"]
    running = subprocess.Popen(
        [*TORCHRUN, "train", "--strategy", "ddp", "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "log.csv").exists() or len((out / "log.csv").read_text().splitlines()) < 5:
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=300)
    assert re.fullmatch(
        r"403,008 parameters on 2 processes, cpu, \d+ tokens to train on\n"
        r"Stopped after step \d+ of 60, saved. To go on: torchrun --standalone --nproc-per-node 2 -m gptlab train "
        r"--strategy ddp --resume .*\n",
        output,
    ), (output, errors)
    commands = (
        [*TORCHRUN, "train", "--resume", str(out), "--strategy", "fsdp"],
        [sys.executable, "-m", "gptlab", "train", "--out", str(other), *options],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Done. Let it write") == 1
    rows, expected = read_log(out), read_log(other)
    assert [row.step for row in rows] == [row.step for row in expected] == [*range(1, 61)]
    assert [row.loss for row in rows] == pytest.approx([row.loss for row in expected], rel=0, abs=1e-5)
    # The length of 400,000 numbers in float32 is right to about five digits, and in halves another one than in one.
    lengths, others = ([row.gradient_norm for row in each] for each in (rows, expected))
    assert lengths == pytest.approx(others, rel=2e-4)
    assert rows[-1].validation_loss == pytest.approx(expected[-1].validation_loss, rel=0, abs=1e-5)
    assert (out / "loss.png").stat().st_size > 1000


def test_a_folder_without_a_run_says_so(tmp_path):
    result = run("train", "--resume", tmp_path)
    assert result.exit_code == 2
    assert "holds no run" in result.stderr


@pytest.mark.parametrize("name", ["train.npy", "state.pt"])
def test_a_damaged_run_is_a_clear_error(text, tmp_path, name):
    out = tmp_path / "run"
    trained = run("train", "--text", text, "--out", out, *SMALL, "--steps", 2)
    assert trained.exit_code == 0, trained.stderr or trained.exception
    (out / name).write_bytes((out / name).read_bytes()[:-40])
    result = run("train", "--resume", out)
    assert result.exit_code == 2
    assert name in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gpt5"], "'gpt5' is none of shakespeare, gpt2"),
        (["--temperature", "-1"], "temperature=-1.0 must be 0"),
        (["--top-k", "0"], "top_k=0 must be at least 1"),
    ],
)
def test_bad_settings_of_generation_are_named_without_a_traceback(arguments, message):
    result = run("generate", "To be", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [
        sys.executable,
        "-m",
        "gptlab",
        "generate",
        "To be",
        "--seed",
        "1",
        "--tokens",
        "60",
        "--stream",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(5) == b"To be"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1  # it stopped early
