"""Where a learner stands: one small JSON file, never the learner's code.

It lies in ``$GPTLAB_HOME``, or in the platform's folder for user data. Writing is atomic and under a lock, so
that two notebooks lose nothing. It keeps attempts by a hash of their source, hints seen, and mistakes' ids.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_data_path

from gptlab.exercises.report import Report
from gptlab.files import replacing

VERSION = 1
REMEDY = "set the environment variable GPTLAB_HOME to a folder of your own"


def home() -> Path:
    """The folder of the progress file."""
    chosen = os.environ.get("GPTLAB_HOME")
    return Path(chosen).expanduser() if chosen else user_data_path("gptlab", appauthor=False)


def load() -> dict[str, dict[str, Any]]:
    """The record of every exercise that was tried, by name.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file was written by a newer gptlab, or is damaged; the message says what to do.
    """
    file = home() / "progress.json"
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OSError(f"{file} cannot be read ({error.strerror}): {REMEDY}") from error
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}): move it away to start afresh") from error
    if not isinstance(found, dict) or not isinstance(found.get("exercises"), dict):
        raise ValueError(f"{file} is not a progress file: move it away to start afresh")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{file} has version {found.get('version')}, this gptlab reads version {VERSION}: upgrade gptlab"
        )
    return found["exercises"]


def of(name: str) -> dict[str, Any]:
    """The record of one exercise: status, attempts (hashes of their sources), hints, mistakes."""
    return {"status": "not_attempted", "attempts": [], "hints": 0, "mistakes": [], **load().get(name, {})}


def note(report: Report, attempt: Any) -> None:
    """Write down an attempt. One that was not begun is none."""
    if report.status == "not_attempted":
        return
    source = fingerprint(attempt)

    def change(record: dict[str, Any]) -> None:
        if source not in record["attempts"]:
            record["attempts"].append(source)
        if record["status"] != "passed":
            record["status"] = report.status
        if report.diagnosis and report.diagnosis.id not in record["mistakes"]:
            record["mistakes"].append(report.diagnosis.id)

    update(report.exercise, change)


def update(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Read, change and write one record, with no other process in between."""
    with _locked():
        records = load()
        record = of(name)
        change(record)
        _write({**records, name: record})


def forget(name: str | None = None) -> None:
    """Drop the record of one exercise, or of all."""
    with _locked():
        _write({} if name is None else {other: record for other, record in load().items() if other != name})


def fingerprint(attempt: Any) -> str:
    """A hash that is the same for the same source; of the value itself where there is no source."""
    try:
        text = inspect.getsource(attempt)
    except (OSError, TypeError):
        code = getattr(attempt, "__code__", None)
        text = repr((code.co_code, code.co_consts)) if code else repr(attempt)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes from the file.

    Raises:
        OSError: the folder cannot be written to.
    """
    try:
        home().mkdir(parents=True, exist_ok=True)
        lock = FileLock(home() / "progress.lock")
        lock.acquire()
    except OSError as error:
        raise OSError(f"{home()} cannot be written to ({error.strerror}): {REMEDY}") from error
    try:
        yield
    finally:
        lock.release()


def _write(records: dict[str, Any]) -> None:
    with replacing(home() / "progress.json") as temporary:
        temporary.write_text(json.dumps({"version": VERSION, "exercises": records}, indent=1), "utf-8")
