"""Which notebooks were run and agreed with what they store: the record behind the line at each page's foot.

    python scripts/validated.py                        say of each notebook when it was validated, and where
    python scripts/validated.py record                 keep the last run in book/validated/, to be committed
    python scripts/validated.py record --device cuda   the same, and fail if that run was not on CUDA

nbval runs the notebooks; as a pytest plugin (`pytest -p validated --nbval ... book`) this file writes down, in
_build/validated.json, what passed, when, and with what. Nothing else writes it, and `record` refuses a run whose
notebooks have changed since. `make test` and `make gpu` do the run; whoever wants it on the pages records and
commits it. The site shows the committed record only. A notebook that changes afterwards says so on its page: the
record holds a hash of all that nbval compared.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repository import MARKER as COLAB

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter

ROOT = Path(__file__).resolve().parents[1]
LAST = "_build/validated.json"
FOLDER = "book/validated"
DEVICES = {"cpu": "On a CPU", "cuda": "On a machine with a GPU"}


@dataclass(frozen=True)
class Record:
    """A run of notebooks that agreed with their stored outputs."""

    device: str
    """`cpu`, or `cuda` on a machine with a GPU, which cells use if they ask for it."""
    name: str
    """The device's name, where it has one."""
    date: str
    """The day of the run, UTC."""
    commit: str
    """The commit that was run; empty outside git, and with a `+` if files differed from it."""
    torch: str
    python: str
    platform: str
    notebooks: dict[str, str]
    """For each notebook that passed, by its path, the hash of what was compared."""


def hash_of(path: Path) -> str:
    """A short hash of what nbval compares: code and stored outputs. Text and the Colab cell are left out."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not source.startswith(COLAB):
            outputs = [output | {"execution_count": None, "metadata": {}} for output in cell["outputs"]]
            parts.append([source, outputs])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def load(path: Path) -> Record | None:
    """The record in a file; None if there is no such file.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        found = Record(**json.loads(path.read_text(encoding="utf-8")))
        datetime.date.fromisoformat(found.date)
        texts = [value for key, value in vars(found).items() if key != "notebooks"]
        texts += [*found.notebooks.keys(), *found.notebooks.values()]
        if not all(isinstance(text, str) for text in texts) or not found.torch or not found.python:
            raise ValueError("a field that should be text is none, or empty")
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path.name} is damaged ({error}). Restore it with git, or delete it and make a new one: "
            "make test, then make stamp"
        ) from error
    return found


def store(record: Record, path: Path) -> None:
    """Write a record, one line for each fact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8", newline="\n")


def state(record: Record | None, notebook: str, now: str) -> str:
    """What a record says of a notebook, `now` its hash: validated with what, changed since, or not yet."""
    if record is None or notebook not in record.notebooks:
        return "not yet"
    if record.notebooks[notebook] != now:
        return f"changed since the last validation, {record.date}"
    torch = record.torch.partition("+")[0]
    python = ".".join(record.python.split(".")[:2])
    name = f", {record.name}" if record.name else ""
    return f"{record.date}, torch {torch}, Python {python}{name}"


def states(notebook: str, root: Path) -> dict[str, str]:
    """The state of a notebook for each device, from the committed records.

    Raises:
        ValueError: a record is damaged.
    """
    now = hash_of(root / notebook)
    return {device: state(load(root / FOLDER / f"{device}.json"), notebook, now) for device in DEVICES}


# ----------------------------------------------------------------------------------------------------
# The run


begun: dict[str, Any] = {}
"""What stood there when the run began: the commit, and the hash of each notebook."""


def pytest_configure(config: pytest.Config) -> None:
    """Before nbval runs notebooks, remember what they are: somebody may edit one meanwhile."""
    if config.getoption("nbval", default=False):
        root = config.invocation_params.dir
        begun["commit"] = commit(root)
        begun["hashes"] = {
            path.relative_to(root).as_posix(): found
            for path in sorted(root.glob("book/*.ipynb"))
            if (found := hash_or_none(path)) is not None
        }


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """After nbval has run notebooks, write down which of them passed whole."""
    if not begun:
        return
    root = terminalreporter.config.invocation_params.dir
    stats = terminalreporter.stats
    bad = {report.nodeid.partition("::")[0] for kind in ("failed", "error") for report in stats.get(kind, [])}
    passed: dict[str, set[str]] = {}
    for report in stats.get("passed", []):
        passed.setdefault(report.nodeid.partition("::")[0], set()).add(report.nodeid)
    whole = {
        name: found
        for name, found in begun["hashes"].items()
        if name in passed and name not in bad and len(passed[name]) == code_cells(root / name)
    }
    store(this_run(begun["commit"], whole), root / LAST)


def hash_or_none(path: Path) -> str | None:
    """The hash; None for a file that is no notebook, about which nbval will say more."""
    try:
        return hash_of(path)
    except (ValueError, TypeError, KeyError):
        return None


def code_cells(path: Path) -> int:
    """How many code cells a notebook has."""
    return sum(cell["cell_type"] == "code" for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


def this_run(commit: str, notebooks: dict[str, str]) -> Record:
    """A record of notebooks that have just passed here."""
    import torch

    from gptlab.devices import device

    kind = device().type
    return Record(
        device=kind,
        name=torch.cuda.get_device_name() if kind == "cuda" else "",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=commit,
        torch=importlib.metadata.version("torch"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        notebooks=notebooks,
    )


def commit(root: Path) -> str:
    """The commit in a folder, shortened, with a + if tracked files differ from it; empty without git."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else ""

    try:
        name = git("rev-parse", "--short=12", "HEAD")
        return name + ("+" if name and git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:  # no git on this machine
        return ""


# ----------------------------------------------------------------------------------------------------
# Command line


def record(root: Path, device: str | None) -> str:
    """Keep the last run for the site; what was kept.

    Raises:
        ValueError: there is no run to keep, it was on another device, or a notebook has changed since.
    """
    last = load(root / LAST)
    if last is None:
        raise ValueError(f"no run to record: {LAST} does not exist. Run: make test (on a GPU: make gpu)")
    if device is not None and last.device != device:
        raise ValueError(
            f"the last run was on {last.device!r}, not on {device!r}. Run the notebooks there first"
        )
    if last.device not in DEVICES:
        raise ValueError(f"the last run was on {last.device!r}; the pages speak of {', '.join(DEVICES)} only")
    if not last.notebooks:
        raise ValueError("in the last run no notebook passed: nothing is recorded. See what make test says")
    changed = [
        name
        for name, was in last.notebooks.items()
        if not (root / name).is_file() or hash_of(root / name) != was
    ]
    if changed:
        raise ValueError(f"{changed[0]} has changed since it was run. Run the notebooks again: make test")
    store(last, root / FOLDER / f"{last.device}.json")
    every = [path.relative_to(root).as_posix() for path in sorted(root.glob("book/*.ipynb"))]
    left_out = [name for name in every if name not in last.notebooks]
    told = f"{FOLDER}/{last.device}.json: {len(every) - len(left_out)} of {len(every)} notebooks, {last.date}"
    return told + (f"; not in that run, or not passed: {', '.join(left_out)}" if left_out else "")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Record or report; 0 if it could."""
    parser = argparse.ArgumentParser(description="When was each notebook validated, and with what?")
    parser.add_argument("action", nargs="?", choices=["record"], help="keep the last run; without it, report")
    parser.add_argument("--device", choices=[*DEVICES], help="fail unless the last run was on this one")
    options: Any = parser.parse_args(arguments)
    try:
        if options.action:
            print(record(root, options.device))
            return 0
        for path in sorted(root.glob("book/*.ipynb")):
            name = path.relative_to(root).as_posix()
            print(f"{name}: " + "; ".join(f"{key}: {value}" for key, value in states(name, root).items()))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
