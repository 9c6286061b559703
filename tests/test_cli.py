from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gptlab.cli import app

RIGHT = "def pair_counts(ids):\n    from collections import Counter\n    return Counter(zip(ids, ids[1:]))\n"
UNORDERED = (
    "def pair_counts(ids):\n"
    "    counts = {}\n"
    "    for pair in zip(ids, ids[1:]):\n"
    "        pair = tuple(sorted(pair))\n"
    "        counts[pair] = counts.get(pair, 0) + 1\n"
    "    return counts\n"
)


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("GPTLAB_HOME", str(tmp_path / "home"))


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_list_names_every_exercise():
    result = run("exercises")
    assert result.exit_code == 0
    assert "○ pair_counts" in result.stdout
    assert "○ InputEmbedding" in result.stdout


def test_checking_a_file_names_the_mistake_and_fails(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(UNORDERED)
    result = run("check", file)
    assert result.exit_code == 1
    assert "(a, b) and (b, a) are counted as one pair" in result.stdout
    file.write_text(RIGHT)
    assert run("check", file).exit_code == 0
    assert "✓ pair_counts" in run("exercises").stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = 1\n", "defines no exercise; there are: decode"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def f(:\n", "SyntaxError"),
        ("exit()\n", "calls exit(): nothing in it was checked"),
        ("open('data.txt')\n", "mine.py does not run: FileNotFoundError"),
    ],
)
def test_files_that_cannot_be_checked_say_why(tmp_path, content, words):
    file = tmp_path / "mine.py"
    file.write_text(content)
    result = run("check", file)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_damaged_progress_file_is_said(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "progress.json").write_text("{")
    result = run("exercises")
    assert result.exit_code == 2
    assert "is damaged" in result.output
    assert "Traceback" not in result.output


def test_a_progress_file_that_cannot_be_reached_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPTLAB_HOME", str(tmp_path / "file"))
    result = run("exercises")
    assert result.exit_code == 2
    assert "set the environment variable GPTLAB_HOME to a folder of your own" in result.stderr


def test_a_notebook_is_sent_to_where_it_can_be_checked(tmp_path):
    (tmp_path / "mine.ipynb").write_text('{"cells": []}')
    result = run("check", tmp_path / "mine.ipynb")
    assert result.exit_code == 2
    assert "is a notebook: check it in its cells with gptlab.check, or with gptlab grade" in result.stderr


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize("option", ["--seconds", "--memory-gb"])
def test_a_limit_for_grading_that_is_none_is_refused(tmp_path, option, limit):
    (tmp_path / "mine.py").write_text(RIGHT)
    result = run("grade", tmp_path / "mine.py", option, limit)
    assert result.exit_code == 2
    assert "must be positive and finite" in result.stderr


def test_a_missing_file_is_said():
    assert "does not exist" in run("check", "nowhere.py").output
    result = run("grade", "nowhere.py")
    assert result.exit_code == 2
    assert "nowhere.py does not exist" in result.stderr


def test_grading_prints_json(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(UNORDERED)
    result = run("grade", file, "--only", "pair_counts", "--seed", 3, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["diagnosis"] == "unordered"


def test_grading_prints_text_and_a_total(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    result = run("grade", file, "--only", "pair_counts", "--only", "merge_pair")
    assert "1 of 2 passed" in result.stdout
    assert "does not define merge_pair" in result.stdout


def test_no_color_is_honoured_and_80_columns_suffice(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(UNORDERED)
    env = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "", "COLUMNS": "80", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "gptlab", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
