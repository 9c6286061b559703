"""Writing files so that an interruption leaves the old one whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A temporary name to write to, which takes the place of ``file`` once it is complete, and not before.

    After a power failure too, ``file`` is the old one or the new one. If the process is killed on the way, the
    temporary file stays: :func:`remove_leftovers` finds it.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, file)
        _sync_folder(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes left half written."""
    for file in folder.glob(".*.partial"):
        file.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself permanent, where the system lets folders be opened (not on Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
