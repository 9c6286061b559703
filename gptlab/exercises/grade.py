"""Grade a submission: run it in a process of its own, check every exercise in it, and lose nothing if it misbehaves.

A submission may loop, exit, print megabytes, shadow a standard module or replace ``gptlab.check``: that costs only
itself. The results come back through a file that the submission is not told of, not through its output. This
isolates accidents. It is no sandbox: a submission can read and write whatever the account that runs it can, and a
process that it starts can get away, by making itself a session of its own; on Windows, by outliving it. To
grade code that you do not trust, run this in a container without network, for example::

    docker run --rm --network none -v "$PWD:/home/grade" IMAGE gptlab grade /home/grade/submission.ipynb --json
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gptlab.exercises.exercise import everything


@dataclass(frozen=True)
class Grade:
    """The result of one exercise in a submission.

    Attributes:
        exercise: its name.
        status: as in a report, or ``"missing"`` when the submission does not define it.
        diagnosis: the id of the recognised mistake, or None.
        text: the report as the learner would see it, or what went wrong.
        seconds: how long the check took; 0 if there was none, or if it never ended.
    """

    exercise: str
    status: str
    diagnosis: str | None = None
    text: str = ""
    seconds: float = 0.0


def source_of(path: Path) -> str:
    """The Python source of a submission, a ``.py`` file or the code cells of a notebook.

    In cells that Python does not understand, the lines that only IPython does are left out: magics, shell
    commands and questions such as ``len?``.

    Raises:
        ValueError: the file is neither, or damaged.
    """
    if path.suffix == ".py":
        try:  # as Python reads it: a byte-order mark, for example, is no part of the source
            with tokenize.open(path) as opened:
                return opened.read()
        except (SyntaxError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {error}; save it as UTF-8") from error
    if path.suffix != ".ipynb":
        raise ValueError(f"{path} is neither a .py file nor a notebook (.ipynb)")
    try:
        cells = json.loads(path.read_text("utf-8-sig"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a notebook: {error}") from error
    return "\n\n".join(_plain_python(source) for source in sources if not source.startswith("%%"))


# At the start of a line %magic, !command and ?name; name? alone on a line.
IPYTHON = re.compile(r"^([ \t]*)(?:[%!?].*|[\w.]+\?{1,2}[ \t]*$)", re.MULTILINE)


def _plain_python(cell: str) -> str:
    try:
        ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return IPYTHON.sub(r"\1pass", cell)
    return cell


def grade(
    path: str | os.PathLike[str],
    *,
    seed: int | None = None,
    only: tuple[str, ...] = (),
    seconds: float = 60.0,
    memory_gb: float = 8.0,
) -> list[Grade]:
    """Grade every exercise of the catalogue, in a fresh process.

    If the process dies or its time is up, the exercise that it was busy with gets the blame, and a new process
    goes on with the next one. If that happens before the submission itself has run to its end, no exercise can be
    checked, and none is waited for.

    Args:
        path: the submission.
        seed: the instructor's own, for the random cases.
        only: names of exercises; all unless given.
        seconds: the limit for running the submission, and again for each exercise.
        memory_gb: the limit of the process's address space, in GB of 10⁹ bytes, where the system has one.

    Raises:
        FileNotFoundError: there is no such submission.
        ValueError: it is no Python and no notebook, or a limit is not positive.
    """
    for name, limit in (("seconds", seconds), ("memory_gb", memory_gb)):
        if not 0 < limit < math.inf:
            raise ValueError(f"{name}={limit} must be positive and finite")
    source = source_of(Path(path))
    names = list(only or (exercise.name for exercise in everything()))
    grades: list[Grade] = []
    while len(grades) < len(names):
        left = names[len(grades) :]
        executed, found, trouble = _run_worker(source, Path(path), left, seed, seconds, memory_gb)
        grades += found
        blamed = left[len(found) :][: 1 if executed else None]
        grades += [Grade(name, "error", text=trouble) for name in blamed]
    return grades


def _run_worker(
    source: str, path: Path, names: list[str], seed: int | None, seconds: float, memory_gb: float
) -> tuple[bool, list[Grade], str]:
    """Run one process; return whether the submission ran to its end, the grades, and why there are no more."""
    with tempfile.TemporaryDirectory(prefix="gptlab-grade-") as folder:
        task, results = Path(folder, "task.json"), Path(folder, "results.jsonl")
        order = {"source": source, "names": names, "seed": seed, "memory": int(memory_gb * 1e9)}
        order |= {"folder": str(path.resolve().parent), "file": str(path)}
        task.write_text(json.dumps(order), "utf-8")
        results.touch()
        # -I: neither the submission's folder nor PYTHONPATH comes before the standard library.
        command = [sys.executable, "-I", "-m", "gptlab.exercises.worker", str(task), str(results)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "GPTLAB_HOME": folder},
            start_new_session=True,  # so that it ends with all that it has started (not on Windows)
        )
        try:
            trouble = _watch(process, results, seconds)
        finally:
            _end(process)
        return *_delivered(results), trouble


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and those that it has started. It may have ended, and they not."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):  # nobody is left; on macOS, only the dead are
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
    process.kill()
    process.wait()


def _watch(process: subprocess.Popen[bytes], results: Path, seconds: float) -> str:
    """Wait for the process to end; give up when nothing has come for ``seconds``."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = results.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > seconds:
            if size:
                return f"no result within {seconds:g} s: an endless loop?"
            return (
                f"no result within {seconds:g} s, before any function could be checked: an endless loop, "
                f"or cells that need longer? --seconds sets the limit"
            )
        time.sleep(0.05)
    where = "" if results.stat().st_size else ", before any function could be checked"
    return f"the submission ended the process{where} (exit status {process.returncode})"


def _delivered(results: Path) -> tuple[bool, list[Grade]]:
    """Whether the submission ran to its end or its first error, and the grades after that.

    A line is what ends with a line feed: no other character ends one, and the last may be half written.
    """
    records = [json.loads(line) for line in results.read_bytes().split(b"\n")[:-1]]
    return bool(records), [Grade(**record) for record in records if "exercise" in record]


def as_json(grades: list[Grade]) -> str:
    """One JSON object a line, in ASCII, where nothing but a line's end looks like one."""
    return "\n".join(json.dumps(asdict(one)) for one in grades)
