"""The repository's address: one place, every mention from it, and what the site shows with and without it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import repository
from repository import (
    PLACEHOLDER,
    ROOT,
    colab_cell,
    pages_url,
    read,
    set_name,
    stored_name,
    stored_version,
    validate,
)

# Files whose mentions are examples: this test, and the script that it tests.
EXAMPLES = {
    "scripts/repository.py",
    "tests/test_release.py",
    "tests/test_repository.py",
    "tests/book/test_site.py",
}
VERSION = stored_version()
BUILD = "from jupyter_book.cli.main import main; main()"
BINARY = {".png", ".gz", ".xz", ".npz", ".woff", ".safetensors"}


def tracked() -> list[Path]:
    """The files that git holds or would take; in a copy without git, all but what is made."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]
    made = re.compile(r"\.git|\.venv(-lowest)?|\..*_cache|_build|__pycache__|shared|.*\.egg-info")
    found = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in found if not any(map(made.fullmatch, path.relative_to(ROOT).parts))]


def copy_of_the_course(root: Path) -> Path:
    """What carries the address, in a folder of its own, with files that may not exist yet."""
    (root / "book").mkdir()
    for path in [*repository.files(ROOT), *ROOT.glob(repository.NOTEBOOKS)]:
        shutil.copy(path, root / path.relative_to(ROOT))
    (root / "README.md").write_text(
        "Clone https://github.com/OWNER/gptlab.git and read https://OWNER.github.io/gptlab/book/01-tokens.html.\n"
        "Open it: https://colab.research.google.com/github/OWNER/gptlab/blob/main/book/01-tokens.ipynb\n"
        "After https://github.com/openai/gpt-2. While the name is OWNER/gptlab, nothing is set.\n",
        encoding="utf-8",
    )
    for name in ("first.ipynb", "second.ipynb"):
        (root / "book" / name).write_text(notebook(colab_cell(None)), encoding="utf-8", newline="\r\n")
    set_name(PLACEHOLDER, root)
    return root


def notebook(source: str) -> str:
    """A notebook in nbformat's own layout, with text that must survive: "source": as words, and accents."""
    cells = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ['# "source": é\n', "\\n"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "id": "b",
            "metadata": {"tags": ["remove-cell"]},
            "outputs": [],
            "source": source.splitlines(keepends=True),
        },
        {"cell_type": "code", "id": "c", "metadata": {}, "outputs": [], "source": []},
    ]
    body = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_every_mention_agrees_with_pyproject() -> None:
    """In the files that the script sets."""
    wrong = [mention for mention in repository.mentions() if not mention.right]
    assert wrong == [], "run: make repository NAME=owner/repo"


def test_no_other_file_names_the_repository() -> None:
    """Else it would keep an old address: add such a file to FILES in scripts/repository.py."""
    known = {path.relative_to(ROOT).as_posix() for path in repository.files(ROOT)} | EXAMPLES
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name in known or path.suffix in BINARY:
            continue
        try:
            found += repository.text_mentions(path, ROOT, stored_name())
        except UnicodeDecodeError:
            continue
    # In a notebook the address stands in the Colab cell, which the script sets and the first test compares.
    set_by_cell = re.compile(r"git\+https://github\.com/")
    found = [
        mention
        for mention in found
        if not (
            mention.path.endswith(".ipynb")
            and set_by_cell.search(
                (ROOT / mention.path).read_text(encoding="utf-8").splitlines()[mention.line - 1]
            )
        )
    ]
    assert found == []


def test_setting_changes_all_mentions_and_nothing_else(tmp_path: Path) -> None:
    """Every mention of this repository turns; other projects', similar names and all else stay."""
    root = copy_of_the_course(tmp_path)
    before = contents(root)
    changed = {path.relative_to(root).as_posix() for path in set_name("Ada-L/gpt.course", root)}
    after = contents(root)
    assert changed == {name for name in before if before[name] != after[name]}
    assert {"pyproject.toml", "_config.yml", "README.md", "book/first.ipynb", "book/second.ipynb"} <= changed
    assert all(mention.right for mention in repository.mentions(root))
    assert read(root) == "Ada-L/gpt.course"
    assert (root / "README.md").read_text(encoding="utf-8") == (
        "Clone https://github.com/Ada-L/gpt.course.git and read https://ada-l.github.io/gpt.course/book/01-tokens.html.\n"
        "Open it: https://colab.research.google.com/github/Ada-L/gpt.course/blob/main/book/01-tokens.ipynb\n"
        "After https://github.com/openai/gpt-2. While the name is OWNER/gptlab, nothing is set.\n"
    )
    config = (root / "_config.yml").read_text(encoding="utf-8")
    assert "url: https://github.com/Ada-L/gpt.course\n" in config
    assert "baseurl: https://ada-l.github.io/gpt.course/\n" in config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See github.com/ada/gptlab.", "See github.com/bo/x."),
        ("git@github.com:ada/gptlab.git", "git@github.com:bo/x.git"),
        ("git+https://github.com/ada/gptlab@main", "git+https://github.com/bo/x@main"),
        ("raw.githubusercontent.com/ada/gptlab/main/a.png", "raw.githubusercontent.com/bo/x/main/a.png"),
        ("(https://ada.github.io/gptlab/)", "(https://bo.github.io/x/)"),
        ("https://ada.github.io/gptlab", "https://bo.github.io/x"),
        ("github.com/ada/gptlab-notes", None),
        ("github.com/ada/gptlab.js", None),
        ("github.com/bada/gptlab", None),
        ("docs.github.com/ada/gptlab", None),
        ("https://ada.github.io/gptlab2/", None),
        ("https://bada.github.io/gptlab/", None),
        ("ada/gptlab", None),
    ],
)
def test_addresses_turn_and_similar_ones_stay(text: str, expected: str | None) -> None:
    """Each way of writing an address, and what only looks like one."""
    assert repository.replace_address(text, "ada/gptlab", "bo/x") == (expected or text)


def test_setting_a_notebook_changes_its_first_cell_alone(tmp_path: Path) -> None:
    """Byte for byte, the line ends included."""
    root = copy_of_the_course(tmp_path)
    set_name("ada/gptlab", root)
    expected = notebook(colab_cell("ada/gptlab", VERSION)).replace("\n", "\r\n").encode()
    assert (root / "book" / "first.ipynb").read_bytes() == expected


def test_setting_twice_and_back(tmp_path: Path) -> None:
    """The same name changes nothing, another one works, and the placeholder returns to the start."""
    root = copy_of_the_course(tmp_path)
    before = contents(root)
    assert set_name("ada/gptlab", root) != []
    assert set_name("ada/gptlab", root) == []
    assert set_name("grace/grace.github.io", root) != []
    assert "baseurl: https://grace.github.io/\n" in (root / "_config.yml").read_text(encoding="utf-8")
    assert all(mention.right for mention in repository.mentions(root))
    assert set_name(PLACEHOLDER, root) != []
    assert contents(root) == before
    assert read(root) is None


def test_a_notebook_without_the_cell_is_named(tmp_path: Path) -> None:
    """The script cannot add it: it says where it is missing."""
    root = copy_of_the_course(tmp_path)
    (root / "book" / "first.ipynb").write_text(notebook("print(1)"), encoding="utf-8")
    wrong = [mention for mention in repository.mentions(root) if not mention.right]
    assert [(mention.path, mention.text) for mention in wrong] == [
        ("book/first.ipynb", "no cell that starts with '# Colab only:'")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gptlab",
        "ada/",
        "/gptlab",
        "ada/gpt lab",
        "ada/gptlab/x",
        "ada/gptlab.git",
        "ada/..",
        "-ada/gptlab",
        "ada-/gptlab",
        "a--b/gptlab",
        "a" * 40 + "/gptlab",
        "ada/" + "x" * 101,
        "https://github.com/ada/gptlab",
        "OWNER/other",
        "ada/gptlab\n",
        'ada/gpt"lab',
    ],
)
def test_malformed_names_are_rejected(name: str, tmp_path: Path) -> None:
    """With the name and the remedy, and before anything is written."""
    with pytest.raises(ValueError, match="owner/repo") as caught:
        validate(name)
    assert repr(name) in str(caught.value) or repr(name.partition("/")[0]) in str(caught.value)
    root = copy_of_the_course(tmp_path)
    before = contents(root)
    with pytest.raises(ValueError, match="owner/repo"):
        set_name(name, root)
    assert contents(root) == before


@pytest.mark.parametrize("name", ["ada/gptlab", "Ada-L/gpt.course_2", "a/b", "OWNER/gptlab", "ada/.github"])
def test_good_names_pass(name: str) -> None:
    """GitHub allows them."""
    assert validate(name) == name


def test_pyproject_without_an_address_is_an_error(tmp_path: Path) -> None:
    """It says what to add, or how to write it."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"Add: Repository = "):
        stored_name(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        "[project.urls]\nRepository = 'github.com/x'\n", encoding="utf-8"
    )
    with pytest.raises(ValueError, match="Write it as https://github.com/owner/repo"):
        stored_name(tmp_path)


def test_the_command_prints_sets_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 0 when all agrees, 1 when something differs, 2 for a name that is none."""
    root = copy_of_the_course(tmp_path)
    monkeypatch.setattr(repository, "ROOT", root)
    for function in (
        repository.set_name,
        repository.mentions,
        repository.read,
        repository.stored_name,
        repository.stored_version,
    ):
        monkeypatch.setattr(function, "__defaults__", (root,))
    assert repository.main([]) == 0
    assert "not set yet (make repository NAME=owner/repo)" in capsys.readouterr().out
    assert repository.main(["ada/gptlab"]) == 0
    shown = capsys.readouterr().out
    assert "changed  README.md" in shown
    assert "https://github.com/ada/gptlab\n" in shown
    assert f"git tag v{VERSION} and git push origin main v{VERSION}" in shown
    assert repository.main(["no name"]) == 2
    assert "'no name' is not of the form owner/repo" in capsys.readouterr().err
    with (root / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("https://github.com/grace/gptlab\n")
    assert repository.main([]) == 1
    assert "DIFFERS  README.md:4  github.com/grace/gptlab" in capsys.readouterr().out


def test_the_colab_cell_in_both_states() -> None:
    """With an address it installs from there; without, it says why it cannot, and what to do."""
    with_address = colab_cell("ada/course", "0.10.2")
    assert with_address.endswith('    %pip install -q "gptlab @ git+https://github.com/ada/course@v0.10.2"')
    without = colab_cell(None)
    assert without.startswith("# Colab only: ")
    # The cell does nothing where gptlab is installed; run it where nothing is.
    code = without.replace('find_spec("gptlab")', "find_spec('no_such_package')")
    with pytest.raises(ModuleNotFoundError, match=r"no repository address yet .*`make repository NAME="):
        exec(compile(code, "cell", "exec"), {})
    exec(compile(without, "cell", "exec"), {})


def test_pages_addresses() -> None:
    """Host names have no capitals; a repository named like the host has the root."""
    assert pages_url("Ada/GPTlab") == "https://ada.github.io/GPTlab"
    assert pages_url("Ada/ada.github.io") == "https://ada.github.io"


@pytest.mark.parametrize("name", [PLACEHOLDER, "Ada/course"])
def test_buttons_follow_the_address(name: str, tmp_path: Path) -> None:
    """A page of each kind, built in both states: no button leads nowhere, and Colab only opens notebooks."""
    for part in (
        "_config.yml",
        "pyproject.toml",
        "book/_ext",
        "book/_static",
        "book/references.bib",
        "scripts",
    ):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (tmp_path / part).parent.mkdir(exist_ok=True)
        copy(ROOT / part, tmp_path / part)
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: book/a\n", encoding="utf-8"
    )
    (tmp_path / "book" / "index.md").write_text("# Home\n\nText.\n", encoding="utf-8")
    (tmp_path / "book" / "a.ipynb").write_text(notebook(colab_cell(None)), encoding="utf-8")
    set_name(PLACEHOLDER, tmp_path)
    set_name(name, tmp_path)
    built = subprocess.run(
        [sys.executable, "-c", BUILD, "build", ".", "-W", "-n", "--keep-going"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    home = (tmp_path / "_build" / "html" / "book" / "index.html").read_text(encoding="utf-8")
    chapter = (tmp_path / "_build" / "html" / "book" / "a.html").read_text(encoding="utf-8")
    for page in (home, chapter):
        assert ("make repository NAME=owner/repo" in page) == (name == PLACEHOLDER)
        assert 'href="https://github.com/OWNER' not in page
        assert "OWNER.github.io" not in page
        assert ('href="https://github.com/Ada/course"' in page) == (name != PLACEHOLDER)
        assert ("https://github.com/Ada/course/issues/new?" in page) == (name != PLACEHOLDER)
    colab = f"https://colab.research.google.com/github/Ada/course/blob/v{VERSION}/book/a.ipynb"
    assert (colab in chapter) == (name != PLACEHOLDER)
    assert "colab.research" not in home
    if name != PLACEHOLDER:
        assert f"https://github.com/Ada/course/blob/v{VERSION}/book/a.ipynb?plain=1" in chapter
        assert '<link rel="canonical" href="https://ada.github.io/course/book/a.html"' in chapter
