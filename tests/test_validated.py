"""What the line at a page's foot says: from a fresh record, an old one, none, and a damaged one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import validated
from nbformat import v4
from notebooks import METADATA
from repository import colab_cell
from validated import ROOT, Record, hash_of, load, main, states, store

NAME = "book/01-tokens.ipynb"
RECORD = Record(
    device="cpu",
    name="",
    date="2026-11-30",
    commit="a8df6ab82e1f",
    torch="2.13.0+cpu",
    python="3.11.7",
    platform="Linux x86_64",
    notebooks={},
)


def write_notebook(path: Path, printed: str = "4\n", words: str = "# Sums", cell: str | None = None) -> None:
    """A notebook with a Colab cell and one that stores that it printed `printed`."""
    cells = [
        v4.new_markdown_cell(words),
        v4.new_code_cell(cell or colab_cell(None), execution_count=1),
        v4.new_code_cell("print(2 + 2)", execution_count=2, outputs=[v4.new_output("stream", text=printed)]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(v4.new_notebook(cells=cells, metadata=METADATA)), encoding="utf-8")


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course with one notebook, and a last run on a CPU in which it passed."""
    write_notebook(tmp_path / NAME)
    store(replace(RECORD, notebooks={NAME: hash_of(tmp_path / NAME)}), tmp_path / validated.LAST)
    return tmp_path


def nbval(course: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the notebooks with the plugin, as `make test` does."""
    command = [sys.executable, "-m", "pytest", "-p", "validated", "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [*command, "--nbval", "--nbval-current-env", *options, "book"],
        cwd=course,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )


# The state of a page


def test_a_recorded_run_is_shown_with_its_versions(course: Path) -> None:
    assert main(["record", "--device", "cpu"], course) == 0
    assert states(NAME, course) == {"cpu": "2026-11-30, torch 2.13.0, Python 3.11", "cuda": "not yet"}


def test_a_gpu_is_shown_with_its_name(course: Path) -> None:
    run = load(course / validated.LAST)
    assert run is not None
    store(replace(run, device="cuda", name="NVIDIA H200", torch="2.13.0+cu130"), course / validated.LAST)
    assert main(["record", "--device", "cuda"], course) == 0
    assert states(NAME, course) == {
        "cpu": "not yet",
        "cuda": "2026-11-30, torch 2.13.0, Python 3.11, NVIDIA H200",
    }


def test_without_a_record_nothing_is_validated(course: Path) -> None:
    assert states(NAME, course) == {"cpu": "not yet", "cuda": "not yet"}


def test_a_notebook_that_is_not_in_the_record_is_not_validated(course: Path) -> None:
    main(["record"], course)
    write_notebook(course / "book" / "02-new.ipynb")
    assert states("book/02-new.ipynb", course)["cpu"] == "not yet"


def test_another_output_makes_the_stamp_say_changed(course: Path) -> None:
    main(["record"], course)
    write_notebook(course / NAME, printed="5\n")
    assert states(NAME, course)["cpu"] == "changed since the last validation, 2026-11-30"


def test_other_words_and_another_release_change_nothing(course: Path) -> None:
    """nbval compares neither."""
    main(["record"], course)
    write_notebook(course / NAME, words="# Addition", cell=colab_cell("ada/gptlab", "0.2.0"))
    assert states(NAME, course)["cpu"].startswith("2026-11-30, ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(vars(RECORD) | {"date": "yesterday"}),
        json.dumps(vars(RECORD) | {"notebooks": [NAME]}),
        json.dumps(vars(RECORD) | {"notebooks": {NAME: None}}),
        json.dumps(vars(RECORD) | {"torch": ""}),
        json.dumps(vars(RECORD) | {"machine": "x"}),
    ],
)
def test_a_damaged_record_is_named_with_the_remedy(
    course: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = course / validated.FOLDER / "cpu.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"cpu\.json is damaged .*make stamp"):
        states(NAME, course)
    assert main([], course) == 1
    assert "cpu.json is damaged" in capsys.readouterr().err


def test_the_committed_records_are_whole() -> None:
    for path in (ROOT / validated.FOLDER).glob("*.json"):
        record = load(path)
        assert record is not None
        assert record.device == path.stem


# Recording a run


def test_record_says_what_it_kept(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_notebook(course / "book" / "02-new.ipynb")
    assert main(["record"], course) == 0
    assert capsys.readouterr().out == (
        "book/validated/cpu.json: 1 of 2 notebooks, 2026-11-30; "
        "not in that run, or not passed: book/02-new.ipynb\n"
    )
    assert main([], course) == 0
    assert capsys.readouterr().out == (
        f"{NAME}: cpu: 2026-11-30, torch 2.13.0, Python 3.11; cuda: not yet\n"
        "book/02-new.ipynb: cpu: not yet; cuda: not yet\n"
    )


def test_record_refuses_what_was_not_run(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another device, a notebook changed since, no notebook, no run at all: nothing is kept."""
    assert main(["record", "--device", "cuda"], course) == 1
    assert "the last run was on 'cpu', not on 'cuda'" in capsys.readouterr().err
    write_notebook(course / NAME, printed="5\n")
    assert main(["record"], course) == 1
    assert f"{NAME} has changed since it was run" in capsys.readouterr().err
    store(replace(RECORD, device="mps"), course / validated.LAST)
    assert main(["record"], course) == 1
    assert "the last run was on 'mps'" in capsys.readouterr().err
    store(RECORD, course / validated.LAST)
    assert main(["record"], course) == 1
    assert "no notebook passed" in capsys.readouterr().err
    (course / validated.LAST).unlink()
    assert main(["record"], course) == 1
    assert "Run: make test" in capsys.readouterr().err
    assert not (course / validated.FOLDER).exists()


def test_a_run_of_nbval_writes_down_what_passed(course: Path) -> None:
    """Of three notebooks one passes, one prints something else, and one is run in part."""
    (course / validated.LAST).unlink()
    write_notebook(course / "book" / "02-wrong.ipynb", printed="5\n")
    result = nbval(course)
    assert "1 failed, 3 passed" in result.stdout, result.stdout
    run = load(course / validated.LAST)
    assert run is not None
    assert run.notebooks == {NAME: hash_of(course / NAME)}
    assert run.python == ".".join(map(str, sys.version_info[:3]))
    assert run.device in {"cpu", "cuda", "mps"}
    nbval(course, "--deselect", f"{NAME}::Cell 1")
    assert load(course / validated.LAST) == replace(run, notebooks={})


def test_a_notebook_edited_during_the_run_was_not_run(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last cell of the course edits the first notebook, which has passed by then."""
    path = course / "book" / "02-edits.ipynb"
    write_notebook(path)
    first = str(course / NAME)
    edit = f"import pathlib\np = pathlib.Path({first!r})\np.write_text(p.read_text().replace('2 + 2', '4'))\n"
    path.write_text(
        path.read_text().replace("print(2 + 2)", json.dumps(edit + "print(4)")[1:-1]), encoding="utf-8"
    )
    result = nbval(course)
    assert "4 passed" in result.stdout, result.stdout
    assert main(["record"], course) == 1
    assert f"{NAME} has changed since it was run" in capsys.readouterr().err


def test_the_commit_is_marked_when_files_differ_from_it(course: Path) -> None:
    assert validated.commit(course) == ""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", NAME], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], cwd=course, check=True)
    clean = validated.commit(course)
    assert len(clean) == 12
    write_notebook(course / NAME, words="# Addition")
    assert validated.commit(course) == clean + "+"


# On the page


@pytest.mark.parametrize("state", ["fresh", "damaged"])
def test_the_page_of_a_notebook_carries_the_line(course: Path, state: str) -> None:
    """Pages in Markdown do not; a damaged record fails the build."""
    for part in ("_config.yml", "book/_ext", "book/_static", "book/references.bib", "scripts"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, course / part)
    (course / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: book/01-tokens\n", encoding="utf-8"
    )
    (course / "book" / "index.md").write_text("# Home\n\nText.\n", encoding="utf-8")
    main(["record"], course)
    if state == "damaged":
        (course / validated.FOLDER / "cpu.json").write_text("{", encoding="utf-8")
    build = "from jupyter_book.cli.main import main; main()"
    built = subprocess.run(
        [sys.executable, "-c", build, "build", ".", "-W", "-n", "--keep-going"],
        cwd=course,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    pages = course / "_build" / "html" / "book"
    if state == "damaged":
        assert built.returncode != 0
        assert "cpu.json is damaged" in built.stdout + built.stderr
        return
    assert built.returncode == 0, built.stdout + built.stderr
    assert (
        '<p class="validated">Last validated (every cell run again, every output compared). '
        "On a CPU: 2026-11-30, torch 2.13.0, Python 3.11. On a machine with a GPU: not yet.</p>"
    ) in (pages / "01-tokens.html").read_text(encoding="utf-8")
    assert "validated" not in (pages / "index.html").read_text(encoding="utf-8")
