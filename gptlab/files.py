"""Writing files so that an interruption leaves the old one whole."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A temporary name to write to, which takes the place of ``file`` once it is complete, and not before.

    After a power failure too, ``file`` is the old one or the new one. If the process is killed on the way, the
    temporary file stays: :func:`remove_leftovers` finds it. No two writers, threads included, get the same name.

    A symbolic link stays one: the file that it points to is replaced. A file that was there keeps its permissions; a
    new one has those of any new file.

    Raises:
        OSError: the file cannot be written, or links lead in a circle.
    """
    target = Path(os.path.realpath(file))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        with suppress(FileNotFoundError):  # there was none
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes left half written: in a folder, and where links in it point to.

    A writer that is still at work loses its file, too: call this where nobody else writes.
    """
    for file in folder.glob(".*.partial"):
        file.unlink(missing_ok=True)
    for link in folder.iterdir():
        if link.is_symlink():
            target = Path(os.path.realpath(link))
            for file in target.parent.glob(f".{glob.escape(target.name)}.[0-9]*-*.partial"):
                file.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself permanent, where the system lets folders be opened (not on Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
