"""The lowest versions that pyproject.toml allows, as pins: `make lowest` installs what scripts/lowest.py prints."""

from __future__ import annotations

import re
import subprocess
import tomllib
from contextlib import nullcontext
from pathlib import Path

import lowest
import pytest
from lowest import ROOT, main, tools

from tests import conftest

REQUIREMENTS = "".join(f"{tool}==1.{number}\n" for number, tool in enumerate(lowest.TOOLS))


def course(root: Path, dependencies: list[str], requirements: str = REQUIREMENTS) -> Path:
    (root / "pyproject.toml").write_text(f"[project]\ndependencies = {dependencies}\n", "utf8")
    (root / "requirements.txt").write_text(requirements, "utf8")
    return root


def test_each_minimum_is_an_exact_pin_in_the_order_of_the_file(tmp_path: Path) -> None:
    root = course(tmp_path, ["torch>=2.8", "huggingface_hub>=0.30", "regex>=2024.4.16", "rich>=13"])
    pins = ["torch==2.8", "huggingface_hub==0.30", "regex==2024.4.16", "rich==13"]
    assert lowest.lowest(root) == pins


@pytest.mark.parametrize(
    "dependency",
    [
        "torch",
        "torch>2.8",
        "torch~=2.8",
        "torch>=2.8,<3",
        "torch>=2.8; python_version<'3.12'",
        "torch[opt]>=2.8",
    ],
)
def test_a_dependency_whose_minimum_cannot_be_read_is_named(dependency: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pyproject.toml: .*: write it as name>=version") as error:
        lowest.lowest(course(tmp_path, ["regex>=1", dependency]))
    assert dependency in str(error.value)


def test_all_dependencies_of_the_package_have_a_minimum_at_or_below_the_pin() -> None:
    """Above the pin, the environment of the book would not satisfy its own package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    minima = dict(pin.split("==") for pin in lowest.lowest())
    assert len(minima) == len(project["dependencies"])
    for name, minimum in minima.items():
        assert numbers(minimum) <= numbers(lowest.pinned()[name]), name


def numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def test_a_tool_has_the_version_of_requirements_txt(tmp_path: Path) -> None:
    first, *others = tools(course(tmp_path, []))
    assert first == f"{lowest.TOOLS[0]}==1.0"
    assert len(others) == len(lowest.TOOLS) - 1


def test_a_tool_that_is_pinned_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"requirements.txt pins no PyYAML"):
        tools(course(tmp_path, [], REQUIREMENTS.replace("PyYAML==", "# PyYAML==")))


def test_the_tools_are_printed_only_if_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = course(tmp_path, ["torch>=2.8"])
    assert main([], root) == 0
    assert capsys.readouterr().out == "torch==2.8\n"
    assert main(["--tools"], root) == 0
    assert capsys.readouterr().out == "torch==2.8\n" + REQUIREMENTS


def test_make_lowest_installs_the_pins_in_a_folder_of_its_own_and_runs_the_quick_tests_there() -> None:
    command = [
        "make",
        "--dry-run",
        "--always-make",
        "--no-print-directory",
        "lowest",
    ]  # also inside another make
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "python3 scripts/lowest.py --tools > .venv-lowest/requirements.txt" in shown
    install, run = [line for line in shown if ".venv-lowest/bin/python -m pip" in line], " ".join(shown[-2:])
    assert len(install) == 1
    assert install[0].endswith("--requirement .venv-lowest/requirements.txt --editable .")
    assert ".venv-lowest/bin/python -m pytest" in run
    assert '-m "not slow" --ignore tests/book --ignore tests/parity ' in run
    assert not [line for line in shown if ".venv/" in line], "the environment of the book is not touched"


@pytest.mark.parametrize(
    ("installed", "skipped"), [("2.8.0", True), ("2.13.0", False), ("2.13.0+cpu", False)]
)
def test_bytes_that_belong_to_a_version_are_compared_with_that_one_alone(
    installed: str, skipped: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowest, "pinned", lambda: {"torch": "2.13.0"})
    monkeypatch.setattr(conftest, "version", {"torch": installed}.__getitem__)
    request.node.add_marker(pytest.mark.pinned("torch"))
    reason = "^holds with torch 2.13.0, and torch 2.8.0 is installed$"
    with pytest.raises(pytest.skip.Exception, match=reason) if skipped else nullcontext():
        conftest.pytest_runtest_setup(request.node)


def test_the_folder_is_ignored_by_git_and_by_the_site() -> None:
    assert ".venv-lowest/" in (ROOT / ".gitignore").read_text("utf8").splitlines()
    assert ".venv-lowest," in (ROOT / "_config.yml").read_text("utf8")
