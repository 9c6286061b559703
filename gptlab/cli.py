"""The command ``gptlab``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

app = typer.Typer(
    help="GPT-2 built step by step: exercises and their checker.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COLOURS = {"✓": "green", "✗": "yellow", "!": "red", "○": "dim"}


@app.callback()
def main() -> None:
    """GPT-2 built step by step: exercises and their checker."""


@app.command()
def exercises() -> None:
    """List the exercises and where you stand."""
    from gptlab.exercises import progress

    try:
        _show(str(progress()))
    except ValueError as error:  # a progress file that cannot be read
        _fail(str(error))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="a .py file with your functions")],
) -> None:
    """Run FILE and check every function in it whose name is an exercise."""
    from gptlab.exercises import check as check_one
    from gptlab.exercises.exercise import everything

    found = _run(file)
    names = [exercise.name for exercise in everything() if exercise.name in found]
    if not names:
        known = ", ".join(exercise.name for exercise in everything())
        _fail(f"{file} defines no exercise; there are: {known}")
    reports = [check_one(name, found[name]) for name in names]
    for report in reports:
        _show(str(report))
    raise typer.Exit(0 if all(report.status == "passed" for report in reports) else 1)


@app.command()
def grade(
    submission: Annotated[Path, typer.Argument(help="a notebook or a .py file")],
    seed: Annotated[int | None, typer.Option(help="for the random cases; your own, kept to yourself")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object per exercise")] = False,
    only: Annotated[list[str] | None, typer.Option(help="this exercise only; may be repeated")] = None,
    seconds: Annotated[float, typer.Option(help="limit for the submission and for each exercise")] = 60.0,
    memory_gb: Annotated[float, typer.Option(help="limit of the process's memory")] = 8.0,
) -> None:
    """Grade a submission in a process of its own. It isolates accidents; it is no sandbox."""
    from gptlab.exercises.exercise import find
    from gptlab.exercises.grade import as_json
    from gptlab.exercises.grade import grade as grade_all

    try:
        names = tuple(find(name).name for name in only or ())
        grades = grade_all(submission, seed=seed, only=names, seconds=seconds, memory_gb=memory_gb)
    except (OSError, ValueError) as error:
        _fail(str(error))
    if json:
        sys.stdout.write(as_json(grades) + "\n")
        return
    for one in grades:  # a report begins with its sign; what kept an exercise from being checked has none
        _show(one.text if one.text[:1] in COLOURS else f"○ {one.exercise}: {one.text}")
    passed = sum(one.status == "passed" for one in grades)
    _show(f"{passed} of {len(grades)} passed")


def _run(file: Path) -> dict[str, object]:
    """Execute a file and return what it defines."""
    import runpy

    try:
        return runpy.run_path(str(file))
    except FileNotFoundError:
        _fail(f"{file} does not exist")
    except SystemExit:
        _fail(f"{file} calls exit(): nothing in it was checked")
    except Exception as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        _fail(f"{file} does not run: {type(error).__name__}: {error}{where}")


def _show(text: str) -> None:
    """Print, with a coloured sign at the start of a line where the terminal has colours and wants them."""
    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        console.print(Text(line[:1], COLOURS.get(line[:1], "")) + Text(line[1:]))


def _fail(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))
    raise typer.Exit(2)
