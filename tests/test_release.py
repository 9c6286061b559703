"""The version: one place, every mention from it, and what a release changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import notebooks
import pytest
import release
import repository
from release import ROOT, close, latest, main, mentions, notes, set_version
from repository import Mention, colab_source, read_exactly, set_name, stored_version

CHANGELOG = """\
# Changelog

## [Unreleased]

### Added

- A chapter.

## [0.1.0] - 2026-11-30

The first version.
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """The files that carry the version, all notebooks, an address, and something unreleased."""
    names = [*release.PLACES, *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("book/*.ipynb"))]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = CHANGELOG.replace("0.1.0", stored_version(ROOT))
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    set_name("ada/gptlab", tmp_path)
    release.set_version(next_version(1), tmp_path, "2026-12-01")
    text = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    text = text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- A number.\n")
    (tmp_path / "CHANGELOG.md").write_text(text, encoding="utf-8")
    return tmp_path


def next_version(steps: int) -> str:
    """A version after that of the course: it stays so when the course has another one."""
    first, second, _ = release.numbers(stored_version(ROOT))
    return f"{first}.{second + steps}.0"


def contents(root: Path) -> dict[str, str]:
    """Every file of a folder."""
    return {
        path.relative_to(root).as_posix(): read_exactly(path) for path in root.rglob("*") if path.is_file()
    }


def test_every_mention_of_the_version_agrees_with_pyproject() -> None:
    assert [mention for mention in mentions(ROOT) if not mention.right] == []


def test_a_release_sets_every_mention_and_the_day(course: Path) -> None:
    changed = {
        path.relative_to(course).as_posix() for path in set_version(next_version(2), course, "2027-01-31")
    }
    assert {"CHANGELOG.md", *release.PLACES} < changed
    assert all(mention.right for mention in mentions(course))
    assert stored_version(course) == next_version(2)
    assert "date-released: 2027-01-31\n" in (course / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n  branch: v{next_version(2)}\n" in (course / "_config.yml").read_text(encoding="utf-8")
    found = colab_source(read_exactly(course / "book" / "01-tokens.ipynb"))
    assert found is not None
    assert found[2].endswith(f'"gptlab @ git+https://github.com/ada/gptlab@v{next_version(2)}"')


def test_a_release_changes_nothing_else(course: Path) -> None:
    """Put the old version and day back into the new files: they are the old ones, but for the changelog."""
    before = contents(course)
    set_version(next_version(2), course, "2026-12-02")
    after = contents(course)
    assert before.keys() == after.keys()
    for name in before.keys() - {"CHANGELOG.md"}:
        old = after[name].replace(next_version(2), next_version(1)).replace("2026-12-02", "2026-12-01")
        assert old == before[name], name


def test_no_notebook_needs_to_run_after_a_release(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stored hash does not see the Colab cell, and only that one changes."""
    for module in ("config.py", "ledger.py", "memory", "plots"):
        copy = shutil.copytree if (ROOT / "gptlab" / module).is_dir() else shutil.copy
        copy(ROOT / "gptlab" / module, course / "gptlab" / module)
    path = course / "book" / "01-tokens.ipynb"
    before = path.read_bytes()
    complaints = notebooks.work_on_notebook("check", path, course)
    set_version(next_version(2), course)
    assert path.read_bytes() != before
    assert notebooks.work_on_notebook("check", path, course) == complaints
    if notebooks.work_on_notebook("check", ROOT / "book" / "01-tokens.ipynb", ROOT) == []:
        assert complaints == []


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("", "no version"),
        ("v9.0.0", "no version"),
        ("9.0", "no version"),
        ("9.0.0rc1", "no version"),
        ("9.00.0", "no version"),
        ("9.0.0\n", "no version"),
        ("0.0.9", "does not come after"),
        ("same", "does not come after"),
    ],
)
def test_bad_and_lower_versions_are_refused(
    course: Path, version: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written, and with the remedy."""
    before = contents(course)
    assert main([stored_version(course) if version == "same" else version], course) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "Give" in message
    assert contents(course) == before


def test_versions_compare_as_numbers(course: Path) -> None:
    """0.10.0 comes after 0.9.0."""
    set_version("8.9.0", course)
    text = (course / "CHANGELOG.md").read_text(encoding="utf-8")
    (course / "CHANGELOG.md").write_text(
        text.replace("## [Unreleased]\n", "## [Unreleased]\n\n- More.\n"), encoding="utf-8"
    )
    set_version("8.10.0", course)
    assert stored_version(course) == "8.10.0"


def test_a_tag_that_exists_is_refused(course: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v9.0.0"]):
        subprocess.run([*git, *command], cwd=course, check=True)
    with pytest.raises(ValueError, match=r"has the tag v9\.0\.0 already\. Give a higher version"):
        set_version("9.0.0", course)


def test_a_release_of_nothing_is_refused(course: Path) -> None:
    (course / "CHANGELOG.md").write_text(
        CHANGELOG.replace("### Added\n\n- A chapter.\n\n", ""), encoding="utf-8"
    )
    before = contents(course)
    with pytest.raises(ValueError, match="Write first what has changed"):
        set_version("9.0.0", course)
    assert contents(course) == before


@pytest.mark.parametrize("name", [*release.PLACES, "book/03-attention.ipynb"])
def test_a_place_that_is_missing_is_named_and_nothing_is_written(course: Path, name: str) -> None:
    text = read_exactly(course / name)
    for old, new in (("version", "edition"), ("branch", "bough"), ("# Colab only:", "# In Colab:")):
        text = text.replace(old, new)
    if name == "pyproject.toml":
        text = text.replace("edition =", "version  =")  # two spaces: TOML reads it, the pattern does not
    (course / name).write_text(text, encoding="utf-8")
    before = contents(course)
    with pytest.raises(ValueError, match=name):
        set_version("9.0.0", course)
    assert contents(course) == before


def test_a_release_that_stopped_half_way_is_finished_by_a_second_run(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes
    written = []

    def full_disk(path: Path, data: bytes) -> int:
        written.append(path)
        if len(written) == len(list(course.glob("book/*.ipynb"))) + 3:
            raise OSError("No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        set_version("9.0.0", course, "2027-01-31")
    monkeypatch.undo()
    assert not all(mention.right for mention in mentions(course))
    set_version("9.0.0", course, "2027-01-31")
    assert all(mention.right for mention in mentions(course))
    assert (course / "CHANGELOG.md").read_text(encoding="utf-8").count("[9.0.0]") == 1


def test_the_changelog_keeps_every_line() -> None:
    new = close(CHANGELOG, "0.2.0", "2027-01-31")
    assert new == CHANGELOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0] - 2027-01-31\n")
    assert latest(new) == ("0.2.0", "2027-01-31")
    assert notes(new, "0.2.0") == "### Added\n\n- A chapter."
    assert notes(new, "0.1.0") == "The first version."
    assert notes(new, "Unreleased") == ""


def test_release_notes_come_from_the_changelog(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--notes"], course) == 0
    assert capsys.readouterr().out == "### Added\n\n- A chapter.\n"
    assert main(["--notes", "7.0.0"], course) == 2
    assert "no version '7.0.0'; it has: Unreleased, " in capsys.readouterr().err


def test_the_command_prints_sets_and_reports(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0 when all agrees, 1 when something differs."""
    assert main([], course) == 0
    assert capsys.readouterr().out.startswith(f"{next_version(1)}\nagrees   CHANGELOG.md:1")
    assert main(["9.0.0"], course) == 0
    shown = capsys.readouterr().out
    assert "changed  book/01-tokens.ipynb\n" in shown
    assert "its page says of a CPU 'not yet'  book/01-tokens.ipynb" in shown
    assert "    git tag v9.0.0\n    git push origin main v9.0.0\n" in shown
    citation = course / "CITATION.cff"
    citation.write_text(citation.read_text(encoding="utf-8").replace("9.0.0", "9.0.1"), encoding="utf-8")
    assert main([], course) == 1
    assert "DIFFERS  CITATION.cff:7  version: 9.0.1" in capsys.readouterr().out
    wrong = [mention for mention in mentions(course) if not mention.right]
    assert wrong == [Mention("CITATION.cff", 7, "version: 9.0.1", False)]


def test_the_colab_cell_keeps_the_placeholder_without_an_address(course: Path) -> None:
    """A copy without an address has no release to install; the version is set all the same."""
    set_name(repository.PLACEHOLDER, course)
    set_version("9.0.0", course)
    found = colab_source(read_exactly(course / "book" / "01-tokens.ipynb"))
    assert found is not None
    assert found[2] == repository.colab_cell(None)
    assert all(mention.right for mention in mentions(course))
