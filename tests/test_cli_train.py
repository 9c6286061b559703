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
