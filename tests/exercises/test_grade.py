from __future__ import annotations

import json
import time

import nbformat
import pytest

from gptlab.exercises.grade import as_json, grade, source_of

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
