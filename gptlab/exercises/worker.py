"""The process in which a submission is graded: ``python -I -m gptlab.exercises.worker TASK RESULTS``."""

from __future__ import annotations

import json
import linecache
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gptlab.exercises.engine import examine
from gptlab.exercises.exercise import find
from gptlab.exercises.grade import Grade


def main(task_file: str, results_file: str) -> None:
    task = json.loads(Path(task_file).read_text("utf-8"))
    channel = os.fdopen(os.open(results_file, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8", buffering=1)
    check, wanted = examine, [(name, find(name)) for name in task["names"]]  # ours, whatever gets replaced
    Path(task_file).unlink()
    _limit_memory(task["memory"])
    sys.argv = [task["file"]]
    sys.path.append(task["folder"])  # last, so that random.py beside the submission shadows nothing
    names, trouble = _execute(task["source"], task["file"])
    channel.write(json.dumps({"executed": True}) + "\n")
    for name, exercise in wanted:
        start = time.perf_counter()
        attempt = names.get(name)
        if attempt is None:
            result = Grade(name, "missing", text=trouble or f"the submission does not define {name}")
        else:
            report = check(exercise, attempt, task["seed"])
            found = report.diagnosis.id if report.diagnosis else None
            result = Grade(name, report.status, found, str(report))
        # A learner's text may hold half a surrogate pair, which no file and no terminal takes.
        text = result.text.encode("utf-8", "backslashreplace").decode()
        record = {**vars(result), "text": text, "seconds": round(time.perf_counter() - start, 3)}
        channel.write(json.dumps(record) + "\n")
    os._exit(0)  # threads that the submission started must not keep the process alive


def _execute(source: str, file: str) -> tuple[dict[str, Any], str]:
    """Run a submission; return what it defined up to its end or its first error, and that error."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": file}
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        exec(compile(source, file, "exec"), names)
    except SystemExit:
        return names, "the submission calls exit()"
    except BaseException as error:  # the submission's, KeyboardInterrupt included
        return names, f"the submission stops with {type(error).__name__}: {_message(error)}"
    return names, ""


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error of the submission's own making, whose __str__ fails
        return "its message cannot be shown"


def _limit_memory(limit: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit, macOS ignores it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
