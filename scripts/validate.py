"""Every notebook against its stored outputs on this machine, and every stored line that would differ.

    python scripts/validate.py --gpu          needs CUDA: the tests marked `gpu`, then every notebook (`make gpu`)
    python scripts/validate.py [NOTEBOOK ...]  the notebooks alone, on any machine

Neither stops at the first difference. Exit status 0: all agrees; 1: something differs or failed; 2: nothing was
validated. Under GitHub Actions the report also goes into the job's summary.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).resolve().parent
CELL_TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class Difference:
    """One stored line that this machine prints otherwise."""

    notebook: str
    cell: int
    """Counted from 1, Markdown cells included."""
    name: str
    message: str
    """nbval's."""
    stored: str | None
    new: str | None

    def __str__(self) -> str:
        place = f"{self.notebook}, cell {self.cell}" + (f" ({self.name})" if self.name else "")
        if self.stored is None and self.new is None:
            return f"{place}\n  {self.message}"
        return f"{place}\n  stored  {shown(self.stored)}\n  new     {shown(self.new)}"


@dataclass(frozen=True)
class Result:
    """What came of a run over notebooks."""

    notebooks: int
    cells: int
    differences: list[Difference]
    status: int
    """pytest's exit status."""

    def __str__(self) -> str:
        ran = f"{count(self.notebooks, 'notebook')}, {count(self.cells, 'code cell')}"
        if self.cells == 0:
            return "No notebook was run: see the messages above."
        if self.differences:
            where = len({difference.notebook for difference in self.differences})
            head = (
                f"{count(len(self.differences), 'stored line')} would differ, in {where} of {ran}.\n"
                "If a number depends on the machine, print it with gptlab.reporting.report. If it is wrong here, mend "
                "the code."
            )
            return "\n\n".join([head, *map(str, self.differences)])
        if self.status:
            return f"{ran}: pytest ended with status {self.status}, though no line differs; see the messages above."
        return f"{ran}: every stored line was printed again."


def shown(line: str | None) -> str:
    return "(no such line)" if line is None else line


def count(n: int, thing: str) -> str:
    return f"{n} {thing}" + ("" if n == 1 else "s")


def read(report: str, status: int) -> Result:
    """The result that scripts/nbval_differences.py wrote in JSON, with one `Difference` for each line."""
    found = json.loads(report)
    differences = [
        Difference(each["notebook"], each["cell"], each["name"], each["message"], stored, new)
        for each in found["differences"]
        for stored, new in each["lines"] or [(None, None)]
    ]
    return Result(found["notebooks"], found["cells"], differences, status)


def validate(notebooks: list[Path], root: Path = ROOT) -> Result:
    """Run notebooks (or folders of them) under nbval, and collect every stored line that differs."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "differences.json"
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider"]
        command += ["-q", "--tb=no"]
        command += ["--rootdir", str(root), "-p", "nbval_differences", "--differences", str(report)]
        command += ["-p", "validated", "--nbval", "--nbval-current-env"]
        command += ["--nbval-cell-timeout", str(CELL_TIMEOUT), *map(str, notebooks)]
        path = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        # As under `make test`: one thread, because sums then round alike, and an empty record of exercises.
        environment = os.environ | {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "GPTLAB_HOME": f"{folder}/home",
        }
        status = subprocess.run(command, cwd=root, env=environment, check=False).returncode
        if not report.exists():
            return Result(0, 0, [], status)
        return read(report.read_text(encoding="utf-8"), status)


def cuda() -> str:
    """The name of this machine's GPU, as PyTorch sees it.

    Raises:
        RuntimeError: there is none, and why.
    """
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    why = (
        f"PyTorch {torch.__version__} is built without CUDA. Install a build with it: see pytorch.org, Get Started."
        if torch.version.cuda is None
        else f"PyTorch {torch.__version__} (CUDA {torch.version.cuda}) finds no device. Look at what nvidia-smi says."
    )
    raise RuntimeError(f"Not validated on GPU: this machine has no CUDA device for PyTorch. {why}")


def gpu_tests() -> int:
    """Run the tests that need CUDA; pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rs", "tests"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def publish(text: str) -> None:
    """Print a report; under GitHub Actions, append it to the job's summary too."""
    print(f"\n{text}", flush=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(f"```\n{text}\n```\n")


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 0 if all of it agrees."""
    parser = argparse.ArgumentParser(description="Every notebook against its stored outputs.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of book/")
    parser.add_argument("--gpu", action="store_true", help="need CUDA, and run the tests marked gpu first")
    options = parser.parse_args(arguments)
    tests = 0
    if options.gpu:
        try:
            print(cuda(), flush=True)
        except RuntimeError as error:
            publish(str(error))
            return 2
        tests = gpu_tests()
    result = validate(options.notebooks or [ROOT / "book"])
    report = [str(result)]
    if options.gpu:
        outcome = "passed" if tests == 0 else f"failed: pytest ended with status {tests}"
        report = [cuda(), f"Tests marked gpu: {outcome}.", *report]
    publish("\n\n".join(report))
    if result.cells == 0:
        return 2
    return 1 if tests or result.status or result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
