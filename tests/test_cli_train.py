from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gptlab.cli import app
from gptlab.training import read_log

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
