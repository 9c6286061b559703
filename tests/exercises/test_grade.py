from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from gptlab.exercises import grade as grade_module
from gptlab.exercises.grade import Grade, as_json, grade, source_of

RIGHT = """
def pair_counts(ids):
    counts = {}
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts
"""
MERGE = """
def merge_pair(ids, pair, new):
    return [new] if list(ids) == list(pair) else list(ids)
"""
ONLY = ("merge_pair", "pair_counts")


def graded(tmp_path, source: str, **options) -> dict[str, object]:
    file = tmp_path / "submission.py"
    file.write_text(source)
    grades = grade(file, **{"only": ONLY, "seconds": 20.0, **options})
    assert [one.exercise for one in grades] == list(options.get("only", ONLY))
    return {one.exercise: one for one in grades}


def test_right_wrong_and_missing(tmp_path):
    found = graded(tmp_path, RIGHT, only=("merge_pair", "pair_counts"))
    assert found["pair_counts"].status == "passed"
    assert found["merge_pair"].status == "missing"
    assert graded(tmp_path, RIGHT.replace("+ 1", "* 0 + 1"))["pair_counts"].diagnosis == "presence"


def test_a_notebook_with_magics_is_graded(tmp_path):
    nb = nbformat.v4.new_notebook()
    nb.cells = [
        nbformat.v4.new_markdown_cell("# mine"),
        nbformat.v4.new_code_cell("%matplotlib inline\n!ls\nif True:\n    %time 1"),
        nbformat.v4.new_code_cell("%%bash\nexit 1"),
        nbformat.v4.new_code_cell(RIGHT),
    ]
    file = tmp_path / "submission.ipynb"
    nbformat.write(nb, file)
    (one,) = grade(file, only=("pair_counts",))
    assert one.status == "passed"


def test_the_instructors_seed_changes_the_cases_not_the_verdict(tmp_path):
    for seed in (1, 2):
        assert graded(tmp_path, RIGHT, seed=seed)["pair_counts"].status == "passed"


MISBEHAVIOUR = {
    "prints megabytes": "print('x' * 5_000_000)",
    "replaces check": "import gptlab\ngptlab.check = lambda *a: 1/0",
    "replaces the engine": "import gptlab.exercises.engine as e\ne.examine = None",
    "shadows json": "import sys\nsys.modules['json'] = None",
    "closes stdout": "import sys\nsys.stdout.close()",
    "starts a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "changes folder": "import os, tempfile\nos.chdir(tempfile.gettempdir())",
}


@pytest.mark.parametrize("extra", MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_misbehaviour_does_not_cost_the_right_answer(tmp_path, extra):
    assert graded(tmp_path, RIGHT + extra, only=("pair_counts",))["pair_counts"].status == "passed"


def test_a_module_beside_the_submission_shadows_nothing_but_can_be_imported(tmp_path):
    (tmp_path / "random.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "my_helpers.py").write_text("ONE = 1")
    source = "import random\nrandom.random()\nfrom my_helpers import ONE\n" + RIGHT.replace("+ 1", "+ ONE")
    assert graded(tmp_path, source, only=("pair_counts",))["pair_counts"].status == "passed"


@pytest.mark.parametrize("end", ["raise SystemExit", "exit()", "1 / 0", "raise KeyboardInterrupt"])
def test_what_was_defined_before_the_end_is_graded(tmp_path, end):
    found = graded(tmp_path, f"{RIGHT}\n{end}\n{MERGE}")
    assert found["pair_counts"].status == "passed"
    assert found["merge_pair"].status == "missing"
    assert "the submission" in found["merge_pair"].text


def test_a_function_that_ends_the_process_costs_only_itself(tmp_path):
    source = "import os\ndef merge_pair(ids, pair, new):\n    os._exit(0)\n" + RIGHT
    found = graded(tmp_path, source)
    assert found["merge_pair"].status == "error"
    assert "ended the process" in found["merge_pair"].text
    assert found["pair_counts"].status == "passed"


def test_an_endless_loop_costs_only_itself_and_its_time(tmp_path):
    source = "def merge_pair(ids, pair, new):\n    while True:\n        pass\n" + RIGHT
    start = time.monotonic()
    found = graded(tmp_path, source, seconds=6.0)
    assert found["merge_pair"].status == "error"
    assert "endless loop" in found["merge_pair"].text
    assert found["pair_counts"].status == "passed"
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("source", "trouble"),
    [("while True: pass", "no result within 6 s"), ("import os\nos._exit(3)", "ended the process")],
    ids=["loops", "exits"],
)
def test_a_submission_that_never_reaches_its_end_is_run_once_not_once_for_each_exercise(
    tmp_path, source, trouble
):
    names = ("decode", "encode", "merge_pair", "pair_counts")
    start = time.monotonic()
    found = graded(tmp_path, source, only=names, seconds=6.0)
    assert time.monotonic() - start < 12
    assert {one.status for one in found.values()} == {"error"}
    assert all(trouble in one.text for one in found.values())
    assert all("before any function could be checked" in one.text for one in found.values())


def test_too_much_memory_costs_only_itself(tmp_path):
    source = "def merge_pair(ids, pair, new):\n    return bytearray(10**12)\n" + RIGHT
    found = graded(tmp_path, source)
    assert found["merge_pair"].status == "error"
    assert "MemoryError" in found["merge_pair"].text
    assert found["pair_counts"].status == "passed"


def test_a_submission_that_does_not_compile_says_where(tmp_path):
    found = graded(tmp_path, "def pair_counts(ids:\n", only=("pair_counts",))
    assert found["pair_counts"].status == "missing"
    assert "SyntaxError" in found["pair_counts"].text


MESSAGES = {
    "line separator": '"a\\u2028b"',
    "paragraph separator": '"a\\u2029b"',
    "next line": '"a\\x85b"',
    "carriage return": '"a\\rb"',
    "half a pair": '"a\\ud800b"',
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_no_character_in_a_message_costs_more_than_its_exercise(tmp_path, message):
    source = f"def merge_pair(ids, pair, new):\n    raise ValueError({message})\n" + RIGHT
    found = graded(tmp_path, source)
    assert found["merge_pair"].status == "error"
    assert "ValueError: a" in found["merge_pair"].text
    assert found["pair_counts"].status == "passed"
    text = as_json(list(found.values()))
    assert [json.loads(line)["exercise"] for line in text.splitlines()] == list(ONLY)
    text.encode()


def test_an_error_that_cannot_be_printed_costs_only_what_comes_after_it(tmp_path):
    odd = "class Odd(Exception):\n    def __str__(self):\n        return 3\nraise Odd\n"
    found = graded(tmp_path, RIGHT + odd + MERGE)
    assert found["pair_counts"].status == "passed"
    assert found["merge_pair"].status == "missing"
    assert found["merge_pair"].text == "the submission stops with Odd: its message cannot be shown"


def test_a_line_that_was_cut_off_is_no_result(tmp_path):
    results = tmp_path / "results"
    whole = json.dumps({"exercise": "encode", "status": "passed"})
    results.write_text(f'{{"executed": true}}\n{whole}\n{whole[:20]}')
    assert grade_module._delivered(results) == (True, [Grade("encode", "passed")])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # a dead one that nobody has asked after is there, too
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] not in "ZX"


def waits_for(condition) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


GRANDCHILD = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open({file!r}, "a") as opened:
    print(os.getpid(), child.pid, file=opened)
"""
ENDS = {"comes to its end": "", "loops": "while True: pass", "is killed": "os.kill(os.getpid(), 9)"}


@pytest.fixture
def started(tmp_path):
    """Where a submission writes what it has started, which ends at the latest with the test."""
    file = tmp_path / "pids"
    yield file
    for pid in file.read_text().split():
        if is_alive(int(pid)):
            os.kill(int(pid), signal.SIGKILL)


def nobody_is_left(file: Path) -> bool:
    return waits_for(lambda: not any(is_alive(int(pid)) for pid in file.read_text().split()))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no process groups")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_a_submission_has_started_ends_with_it(tmp_path, started, end):
    source = GRANDCHILD.format(file=str(started)) + RIGHT + end
    graded(tmp_path, source, only=("pair_counts",), seconds=6.0)
    assert nobody_is_left(started)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whoever_ends_the_command_ends_the_submission(tmp_path, started, number):
    submission = tmp_path / "s.py"
    submission.write_text(GRANDCHILD.format(file=str(started)) + "while True: pass")
    command = subprocess.Popen(
        [sys.executable, "-m", "gptlab", "grade", str(submission)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waits_for(lambda: started.exists() and len(started.read_text().split()) == 2)
    command.send_signal(number)
    command.communicate(timeout=20)
    assert command.returncode != 0
    assert nobody_is_left(started)


def test_nesting_that_is_too_deep_is_an_error_of_the_submission(tmp_path):
    notebook = tmp_path / "s.ipynb"
    nb = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell("x = " + "(" * 100_000)]
    nbformat.write(nb, notebook)
    (one,) = grade(notebook, only=("pair_counts",))
    assert one.status == "missing"
    notebook.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"s\.ipynb is not a notebook"):
        source_of(notebook)


def test_json_is_one_record_a_line(tmp_path):
    file = tmp_path / "s.py"
    file.write_text(RIGHT)
    (line,) = as_json(grade(file, only=("pair_counts",))).splitlines()
    record = json.loads(line)
    assert record["exercise"] == "pair_counts"
    assert record["status"] == "passed"
    assert record["diagnosis"] is None


def test_a_byte_order_mark_is_no_part_of_the_source(tmp_path):
    script, notebook = tmp_path / "x.py", tmp_path / "x.ipynb"
    script.write_text("a = 1\n", "utf-8-sig")
    assert source_of(script) == "a = 1\n"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["a = 1"]}]}), "utf-8-sig")
    assert source_of(notebook) == "a = 1"


def test_a_script_in_another_encoding_is_refused_by_name(tmp_path):
    (tmp_path / "x.py").write_text("a = 'é'\n", "latin-1")
    with pytest.raises(ValueError, match=r"x\.py cannot be read: .*save it as UTF-8"):
        source_of(tmp_path / "x.py")


@pytest.mark.parametrize(
    ("cell", "source"),
    [
        ("len?\na = 1", "pass\na = 1"),
        ("?len\ntorch.nn??", "pass\npass"),
        ("if a:\n    %time a", "if a:\n    pass"),
        ("a = (7\n    % 3\n)", "a = (7\n    % 3\n)"),
        ('a = """\nwhy?\n!\n"""', 'a = """\nwhy?\n!\n"""'),
    ],
)
def test_only_what_python_does_not_understand_is_left_out(tmp_path, cell, source):
    file = tmp_path / "x.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell}]}), "utf-8")
    assert source_of(file) == source


def test_files_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ValueError, match="neither a .py file nor a notebook"):
        source_of(tmp_path / "x.txt")
    (tmp_path / "x.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="is not a notebook"):
        source_of(tmp_path / "x.ipynb")
