"""What the pages "Running it" and "For instructors" say about times, counts, commands and messages is so."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from prose_numbers import read_notebook

from gptlab.cli import app
from gptlab.exercises.engine import examine
from gptlab.exercises.exercise import Exercise, NumericExercise, everything

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "book"
INSTRUCTORS = (BOOK / "instructors.md").read_text("utf-8")
RUNNING = (BOOK / "running-it.md").read_text("utf-8")
PAGES = {
    "README.md": (ROOT / "README.md").read_text("utf-8"),
    "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text("utf-8"),
    **{path.name: path.read_text("utf-8") for path in sorted(BOOK.glob("*.md"))},
}
each_page = pytest.mark.parametrize("text", PAGES.values(), ids=PAGES)

Question = Exercise | NumericExercise
BY_NAME = {exercise.name: exercise for exercise in everything()}


def recognised(exercises: list[Question]) -> int:
    return sum(len(e.wrong if isinstance(e, NumericExercise) else e.mistakes) for e in exercises)


def reading_minutes(notebook: str) -> int:
    """What the "Time" row of a chapter's first cell says."""
    found = re.search(r"^\| Time \| (\d+) minutes", read_notebook(BOOK / notebook).cells[0].source, re.M)
    assert found, notebook
    return int(found[1])


def rows(text: str) -> list[list[str]]:
    """The cells of each line of a table that links to notebooks."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in lines if any(".ipynb)" in cell for cell in cells)]


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the instructors' page."""
    return rows(re.split(r"^#+ ", INSTRUCTORS.split(f"# {heading}\n")[1], flags=re.M)[0])


def linked(cell: str) -> list[str]:
    return re.findall(r"\]\((\S+\.ipynb)\)", cell)


def of_chapters(notebooks: list[str]) -> list[Question]:
    chapters = {int(name[:2]) for name in notebooks}
    return [exercise for exercise in everything() if exercise.chapter in chapters]


def minutes(exercises: list[Question]) -> str:
    return f"{sum(exercise.minutes for exercise in exercises)} minutes"


# ----------------------------------------------------------------------------------------------------
# Times and counts


def test_the_table_of_times_has_every_chapter_with_its_own_minutes_exercises_and_mistakes():
    expected = []
    for path in sorted(BOOK.glob("[0-9][0-9]-*.ipynb")):
        exercises = of_chapters([path.name])
        chapter = f"{int(path.name[:2])} {read_notebook(path).cells[0].source.splitlines()[0].strip('# ')}"
        row = [f"{reading_minutes(path.name)} minutes", str(len(exercises)), minutes(exercises)]
        expected.append([f"[{chapter}]({path.name})", *row, str(recognised(exercises))])
    assert [cells[:5] for cells in table("The time it takes")] == expected


def test_the_exercise_to_do_together_is_one_of_its_chapter():
    for cells in table("The time it takes"):
        assert BY_NAME[cells[5].strip("`")] in of_chapters(linked(cells[0]))


def test_the_totals_are_the_sums():
    reading = sum(reading_minutes(path.name) for path in BOOK.glob("[0-9][0-9]-*.ipynb"))
    exercises = list(everything())
    assert (
        f"| Together | {reading} minutes | {len(exercises)} | {minutes(exercises)} | {recognised(exercises)} "
    ) in INSTRUCTORS


def test_six_weeks_have_every_chapter_once_with_the_sums_of_its_minutes():
    weeks = table("Six weeks")
    notebooks = [name for cells in weeks for name in linked(cells[1])]
    assert notebooks == sorted(path.name for path in BOOK.glob("[0-9][0-9]-*.ipynb"))
    for i, (week, chapters, reading, exercises) in enumerate(weeks, start=1):
        assert week == str(i)
        assert reading == f"{sum(map(reading_minutes, linked(chapters)))} minutes"
        assert exercises == minutes(of_chapters(linked(chapters)))


def test_the_workshop_has_exercises_of_its_days_chapters_and_the_sums_of_the_minutes():
    for _, chapters, reading, names, time in table("A workshop of two days"):
        assert reading == f"{sum(map(reading_minutes, linked(chapters)))} minutes"
        chosen = [BY_NAME[name] for name in re.findall(r"`(\w+)`", names)]
        assert all(exercise in of_chapters(linked(chapters)) for exercise in chosen)
        assert time == minutes(chosen)


def test_the_twelfth_week_takes_the_minutes_that_its_page_states():
    (stated,) = re.findall(r"\(claims-checked\.ipynb\), (\d+) minutes", INSTRUCTORS)
    assert int(stated) == reading_minutes("claims-checked.ipynb")


def test_the_page_on_pytorch_takes_the_minutes_that_instructors_are_told():
    (stated,) = re.findall(r"\(pytorch\.ipynb\), (\d+) minutes", INSTRUCTORS)
    assert int(stated) == reading_minutes("pytorch.ipynb")


def test_counts_of_exercises_and_mistakes_in_sentences_are_the_catalogues():
    exercises = re.findall(r"(\d+) exercises", INSTRUCTORS)
    mistakes = re.findall(r"(\d+) mistakes", INSTRUCTORS)
    assert set(exercises) == {str(len(everything()))}
    assert set(mistakes) == {str(recognised(list(everything())))}


# ----------------------------------------------------------------------------------------------------
# Commands


FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INDENTED = re.compile(r"(?<=\n)\n((?: {4}.*\n)+)")


def code(text: str) -> list[str]:
    """Every command-like text on a page, comments aside: the lines of its shell blocks, and inline code."""
    blocks = [block for language, block in FENCE.findall(text) if language in ("", "bash")]
    text = FENCE.sub("", text)
    blocks += INDENTED.findall(text)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`([^`]+)`", INDENTED.sub("\n", text))
    return [re.sub(r"\s#.*", "", line).strip() for line in lines + inline]


def gptlab_commands(text: str) -> list[list[str]]:
    """The words after `gptlab`, where it is run."""
    found = [
        re.match(r"(?:.*(?<!:)\s)?(?:\S*[/\\])?(?:-m )?gptlab ((?:[a-z]).*)", line) for line in code(text)
    ]
    return [shlex.split(re.split(r" [>|] ", match[1])[0]) for match in found if match]


@each_page
def test_every_gptlab_command_and_option_exists(text):
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, *arguments in gptlab_commands(text):
        assert name in commands, f"gptlab {name}"
        options = {option for parameter in commands[name].params for option in parameter.opts}
        given = {word.split("=")[0] for word in arguments if word.startswith("--")}
        assert given <= options, f"gptlab {name} {' '.join(sorted(given - options))}"


def test_the_commands_are_found_at_all():
    names = {name for text in (RUNNING, INSTRUCTORS) for name, *_ in gptlab_commands(text)}
    assert names >= {"check", "exercises", "grade", "ledger", "memory", "train", "generate"}


@each_page
def test_every_make_target_and_variable_exists(text):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    variables = set(re.findall(r"\$\((\w+)\)", makefile))
    for line in code(text):
        if found := re.match(r"(?:\w+=\S+ )*make( .*)?$", line):
            for word in (found[1] or "").split():
                name, equals, _ = word.partition("=")
                assert name in (variables if equals else targets), line


def test_make_serve_takes_another_port():
    command = ["make", "-n", "serve", "PORT=8001", "READY="]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "http.server 8001 " in shown
    assert "http://127.0.0.1:8001 " in shown


def test_the_notebooks_record_may_lie_in_a_folder_with_a_space():
    assert "GPTLAB_HOME='$(CURDIR)/" in (ROOT / "Makefile").read_text("utf-8")


# ----------------------------------------------------------------------------------------------------
# Messages

OTHERS = (
    "No matching distribution found",
    "ModuleNotFoundError: No module named 'gptlab'",
    "Address already in use",
    "GPTLAB_CHROMIUM",
)


def test_every_message_in_the_table_of_troubles_is_one_that_the_course_can_print():
    files = [*(ROOT / "gptlab").rglob("*.py"), *(ROOT / "scripts").glob("*.py"), ROOT / "Makefile"]
    source = "".join(path.read_text("utf-8") for path in [*files, ROOT / "tests/book/test_site.py"])
    lines = RUNNING.split("| What you see |")[1].splitlines()[2:]
    for line in lines:
        first = line.split(" | ")[0]
        for message in re.findall(r"`([^`]+)`", first):
            if message in OTHERS or message.startswith(("make ", "gptlab ", "book/")):
                continue
            for piece in message.removeprefix("ModuleNotFoundError: ").split("…"):
                assert piece.strip() in source, message


# ----------------------------------------------------------------------------------------------------
# Versions


def test_every_pin_installs_on_the_oldest_python_that_the_course_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = re.sub(r"[^\d.]", "", project["requires-python"]) + ".0"
    looked_at = 0
    for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines():
        if not (plain := line.split("#")[0].strip()):
            continue
        pin = Requirement(plain)
        try:
            installed = distribution(pin.name)
        except PackageNotFoundError:
            continue
        if pin.specifier.contains(installed.version, prereleases=True):
            looked_at += 1
            needs = SpecifierSet(installed.metadata.get("Requires-Python") or "")
            assert oldest in needs, f"{pin} needs Python {needs}"
    assert looked_at > 80


# ----------------------------------------------------------------------------------------------------
# The exercise that the instructors' page adds


def test_the_exercise_on_the_page_recognises_what_it_says_and_passes_right_answers():
    (source,) = [
        block for block in re.findall(r"```python\n(.*?)```", INSTRUCTORS, re.S) if "EXERCISE" in block
    ]
    names: dict = {}
    exec(source, names)
    exercise = names["EXERCISE"]
    assert exercise.name not in BY_NAME
    for answer in (exercise.solution, *exercise.also_correct):
        defined: dict = {}
        exec(answer, defined)
        assert examine(exercise, defined[exercise.name]).status == "passed", answer
    for mistake in exercise.mistakes:
        report = examine(exercise, lambda loss, on=frozenset({mistake.id}): exercise.reference(loss, on=on))
        assert report.diagnosis, mistake.id
        assert report.diagnosis.id == mistake.id


def test_running_it_stands_before_the_exercises_and_instructors_last():
    files = re.findall(r"file: book/(\S+)", (ROOT / "_toc.yml").read_text("utf-8"))
    assert files.index("running-it") == files.index("exercises") - 1
    assert files[-1] == "instructors"
