"""scripts/notebooks.py: what `run` stores, what `norm` mends, and each problem that `check` finds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import notebooks
import pytest
from nbformat import NotebookNode, v4

Edit = Callable[[str, Callable[[NotebookNode], None]], None]
NAME = "book/01-sample.ipynb"


def cell_of(book: Path, cell_id: str) -> NotebookNode:
    return next(cell for cell in notebooks.read_notebook(book / NAME).cells if cell.id == cell_id)


def check(book: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that `check` prints; it must exit 1 exactly when it prints any."""
    capsys.readouterr()
    status = notebooks.main(["check"], root=book)
    lines = capsys.readouterr().out.splitlines()
    assert status == (1 if lines else 0)
    return lines


# Run


def test_run_stores_a_notebook_that_passes_check(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(book, capsys) == []
    assert [cell.execution_count for cell in notebooks.code_cells(notebooks.read_notebook(book / NAME))] == [
        *range(1, 7)
    ]
    assert cell_of(book, "env").outputs[0].text == "1 book\n"  # one thread, and the notebook's folder
    assert "image/png" in cell_of(book, "figure").outputs[1].data
    assert cell_of(book, "trap").outputs[0].traceback == [
        "ValueError: n_embd=768 must be divisible by n_head=13"
    ]


def test_two_runs_store_the_same_bytes(book: Path) -> None:
    before = (book / NAME).read_bytes()
    assert notebooks.main(["run", str(book / NAME)], root=book) == 0
    assert (book / NAME).read_bytes() == before


def test_the_kernel_is_the_python_that_runs_the_script() -> None:
    assert notebooks.ThisPython().kernel_spec.argv[0] == sys.executable


def test_a_failing_cell_is_named_and_leaves_the_file_as_it_was(
    book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("count", lambda cell: cell.update(source="# A comment\n1 / 0"))
    before = (book / NAME).read_bytes()
    assert notebooks.main(["run"], root=book) == 1
    assert (book / NAME).read_bytes() == before
    assert capsys.readouterr().out == (
        f"{NAME}: cell 3 (count): failed with ZeroDivisionError: division by zero; the cell begins: "
        "# A comment; the file is as it was: fix the cell, then run: make notebooks\n"
    )
    assert list(book.glob("book/*")) == [book / NAME]


# Normal form


def test_norm_removes_what_an_editor_adds(book: Path) -> None:
    before = (book / NAME).read_text()
    nb = notebooks.read_notebook(book / NAME)
    nb.metadata["toc"] = {"base": 1}
    nb.cells[2].metadata.update({"collapsed": True, "tags": []})
    nb.cells[2].source += "   \n\n"
    stream = nb.cells[2].outputs[0]
    first, second = stream.text.splitlines(keepends=True)
    nb.cells[2].outputs = [v4.new_output("stream", text=first), v4.new_output("stream", text=second)]
    (book / NAME).write_text(json.dumps(nb))
    assert notebooks.main(["norm"], root=book) == 0
    assert (book / NAME).read_text() == before


def test_norm_gives_ids_and_keeps_the_good_ones(book: Path) -> None:
    nb = notebooks.read_notebook(book / NAME)
    del nb.cells[0]["id"]
    nb.cells[3]["id"] = "count"  # a copy of cell 3
    (book / NAME).write_text(json.dumps(nb))
    notebooks.main(["norm"], root=book)
    first = [cell.id for cell in notebooks.read_notebook(book / NAME).cells]
    assert len(set(first)) == len(first)
    assert first[1:3] == ["colab", "count"]
    (book / NAME).write_text(json.dumps(nb))
    notebooks.main(["norm"], root=book)
    assert [cell.id for cell in notebooks.read_notebook(book / NAME).cells] == first


def test_norm_does_not_renumber(book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit("count", lambda cell: cell.update(execution_count=9))
    notebooks.main(["norm"], root=book)
    assert check(book, capsys) == [
        f"{NAME}: cell 3 (count): execution count 9 where 2 belongs, so it was executed out of order; "
        "run: make notebooks"
    ]


# Check


def source(text: str) -> Callable[[NotebookNode], None]:
    return lambda cell: cell.update(source=text)


def tags(*names: str) -> Callable[[NotebookNode], None]:
    return lambda cell: cell.metadata.update(tags=list(names))


def output(kind: str, **fields: object) -> Callable[[NotebookNode], None]:
    return lambda cell: cell.outputs.append(v4.new_output(kind, **fields))


def without(part: str) -> Callable[[NotebookNode], None]:
    return lambda cell: cell.metadata.mystnb.pop(part)


def markdown(text: str) -> Callable[[NotebookNode], None]:
    return source("One row per token:\n\n" + text)


@pytest.mark.parametrize(
    ("cell", "change", "message"),
    [
        ("colab", source("import gptlab"), 'the first code cell must start with "# Colab only:"'),
        ("colab", tags(), "the Colab cell needs the tag remove-cell; add it"),
        ("count", tags("nbval-ignore-output"), "cell 3 (count): unknown tags ['nbval-ignore-output']"),
        ("count", tags("raises-exception"), "tagged raises-exception, but stores no error; remove the tag"),
        ("count", source("\n" * 40 + "print(1)" + "\n1" * 30), "31 lines of code, 30 at most"),
        ("count", source(""), "an empty code cell; delete it"),
        (
            "count",
            source("# NBVAL_IGNORE_OUTPUT\n1"),
            "a comment that changes what nbval compares; delete it",
        ),
        ("count", source("clear_output()"), "clear_output makes outputs that cannot be compared"),
        ("count", lambda cell: cell.update(execution_count=None), "cell 3 (count): never executed"),
        ("share", lambda cell: cell.outputs[0].update(execution_count=7), "executed out of order"),
        ("count", lambda cell: cell.update(cell_type="raw"), "a raw cell, which the book shows as it is"),
        ("trap", tags(), "stores an error; fix the code, or tag the cell raises-exception"),
        ("count", output("stream", name="stderr", text="UserWarning\n"), "stores stderr ('UserWarning')"),
        (
            "count",
            output("stream", text="<object at 0x7f3a2b4c>"),
            "an address or a local path in the output",
        ),
        (
            "count",
            output("stream", text="/home/ada/x.py"),
            "an address or a local path in the output ('/home/')",
        ),
        ("count", output("stream", text=f"{notebooks.ROOT}/x"), "local path in the output"),
        ("count", output("stream", text="\r 50%|#####     | 1/2"), "a progress bar in the output"),
        ("count", output("display_data", data={"application/json": {}}), "stores ['application/json']"),
        ("count", output("display_data", data={"text/plain": "<Figure size 1x1>"}), "text without its image"),
        ("figure", without("image"), "cell 6 (figure): a figure without alt text; set mystnb.image.alt"),
        ("figure", without("figure"), "cell 6 (figure): a figure without caption; set mystnb.figure.caption"),
        (
            "figure",
            lambda cell: cell.outputs[1].data.update({"image/png": "AAAA"}),
            "the stored image is no PNG",
        ),
        ("maths", source(""), "an empty Markdown cell; delete it"),
        (
            "maths",
            source("As in\n$$x = y \\tag{1.1}$$\n\nhere"),
            "$$ without a blank line or with text beside it",
        ),
        ("maths", source("$$x = y$$\nhere"), "$$ without a blank line or with text beside it"),
        ("maths", source("$$\nx = y\n$$ (label)"), "$$ without a blank line or with text beside it"),
        ("maths", source("So $$x = y$$ holds"), "$$ without a blank line or with text beside it"),
        ("maths", source("$$\nx\n\n= y\n$$"), "a blank line inside display maths"),
        ("maths", source("$$\nx = y"), "a $$ that is never closed"),
        ("maths", markdown("$$\nx \\\\ y \\tag{1.2}\n$$"), "\\\\ together with \\tag"),
        ("maths", markdown("\\begin{align}x\\end{align}"), "a bare maths environment"),
        ("maths", markdown("$$\n\\label{a} x\n$$"), "a labelled equation"),
        ("maths", markdown(":::{note}\nx\n:::"), "a MyST directive"),
        ("maths", markdown("```{note}\nx\n```"), "a MyST directive"),
        ("maths", markdown("See {eq}`a` there"), "a MyST role ('{eq}`')"),
        ("maths", markdown("(here)=\n# There"), "a MyST target"),
        ("maths", markdown("> [!NOTE]\n> x"), "a GitHub alert"),
        ("maths", markdown('<div class="admonition">'), "an HTML admonition"),
        ("maths", markdown("Read this.[^1]"), "a footnote ('[^1]')"),
        ("maths", markdown("Two ` ticks, Read this.[^1]\n\nand two more ` ticks"), "a footnote ('[^1]')"),
        ("maths", markdown("> ~~~~ {note}\n> x\n> ~~~~"), "a MyST directive"),
        ("maths", markdown("````\n```\n````\n\n:::{note}\n\n````\n```\n````"), "a MyST directive"),
        ("maths", markdown("- [ ] do it"), "a task list"),
        ("maths", markdown("It costs \\$5"), "an escaped dollar"),
        ("maths", markdown("[there](02-next.ipynb#part)"), "an anchor into another notebook"),
        ("maths", markdown("![](images/x.svg)"), "an image without alt text"),
    ],
)
def test_check_finds(
    book: Path,
    edit: Edit,
    capsys: pytest.CaptureFixture[str],
    cell: str,
    change: Callable[[NotebookNode], None],
    message: str,
) -> None:
    edit(cell, change)
    assert any(message in line for line in check(book, capsys)), message


FOLD = '<details class="answer"><summary><b>Open when you have guessed</b></summary>\n\nTwo.\n\n</details>'


def guess_of(*cells: NotebookNode) -> list[str]:
    """What is wrong with the guesses of a notebook, without the names of its cells."""
    return [line.partition(": ")[2] for line in notebooks.guess_problems(v4.new_notebook(cells=list(cells)))]


def tagged(tag: str) -> NotebookNode:
    return v4.new_code_cell("print(1 + 1)", metadata={"tags": [tag]})


def test_a_guess_is_a_hidden_output_its_figures_and_one_fold() -> None:
    fold = v4.new_markdown_cell(FOLD)
    assert guess_of(tagged("hide-output"), fold) == []
    assert guess_of(tagged("hide-output"), tagged("hide-input"), fold) == []
    assert guess_of(v4.new_code_cell("1"), v4.new_markdown_cell("<details><summary>Solution</summary>")) == []


@pytest.mark.parametrize("then", [[], [v4.new_markdown_cell("It is two.")], [v4.new_code_cell("1")]])
def test_a_hidden_output_that_text_answers_in_the_open_is_found(then: list[NotebookNode]) -> None:
    (problem,) = guess_of(tagged("hide-output"), *then)
    assert problem.startswith(
        "a hidden output without its answer; let a Markdown cell follow: <details class="
    )


def test_an_answer_without_a_guess_is_found() -> None:
    (problem,) = guess_of(v4.new_code_cell("1"), v4.new_markdown_cell(FOLD))
    assert problem.startswith("an answer without its guess")


@pytest.mark.parametrize(
    "text",
    [
        FOLD.replace("Open when you have guessed", "Why"),
        FOLD + "\n\nAnd on.",
        FOLD.replace("\n\n</details>", "\n</details>"),  # Markdown would go on as HTML
        FOLD + "\n\n" + FOLD,
    ],
)
def test_an_answer_that_is_not_one_fold_is_found(text: str) -> None:
    (problem,) = guess_of(tagged("hide-output"), v4.new_markdown_cell(text))
    assert problem.startswith("an answer is one fold")


def test_code_that_is_shown_fits_the_page_and_reports_nothing() -> None:
    def found(source: str, tag: str = "hide-output") -> list[str]:
        cell = v4.new_code_cell(source, metadata={"tags": [tag]})
        return [line.partition(": ")[2] for line in notebooks.shown_problems(v4.new_notebook(cells=[cell]))]

    assert found("x" * 76) == found("x" * 99, "hide-input") == []
    assert found("x" * 77) == ["a line of 77 characters, 76 at most; break it"]
    assert found('report("loss", 1, "1")')[0].startswith("report in code that is shown")
    assert found("self.report(1)") == found('report("loss", 1, "1")', "remove-cell") == []


@pytest.mark.parametrize(
    "text",
    [
        "> **Common trap.** It is not $x$.",
        "<details><summary><b>Solution</b></summary>\n\n$$\nx = y\n$$\n\n</details>",
        "> Quoted:\n>\n> $$\n> x = y\n> $$\n>\n> so",
        "$$\n\\begin{aligned} x &= y \\cr z &= 1 \\end{aligned} \\tag{1.2}\n$$",
        "`$$`, `{eq}` and `:::` are not for us, nor is `[^1]`, but $W[^{-1}]$ is maths.",
        "```text\n- [ ] :::\n$$\n```",
        "~~~\n```\n- [ ] :::\n~~~\n\n    :::{note} [^1]",
        "`` {eq}`a` `` is code, <!-- as [^1] is a comment --> and \\[^1] is none.",
        "[Next](02-next.ipynb), ([Vaswani et al., 2017](bibliography.md)), ![two bars](images/x.svg)",
        "| a | b |\n|---|---|\n| 1 | 2 |",
    ],
)
def test_check_lets_portable_markdown_pass(
    book: Path, edit: Edit, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    edit("maths", source(text))
    assert check(book, capsys) == []


def test_check_asks_for_the_normal_form(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (book / NAME).write_text(json.dumps(notebooks.read_notebook(book / NAME)))
    assert check(book, capsys) == [f"{NAME}: not in normal form; run: python scripts/notebooks.py norm"]


def test_check_asks_for_outputs_stored_by_run(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nb = notebooks.read_notebook(book / NAME)
    del nb.metadata["stored_from"]
    (book / NAME).write_text(notebooks.dump(nb))
    assert check(book, capsys) == [f"{NAME}: its outputs were not stored by this script; run: make notebooks"]


def test_check_names_a_file_that_is_no_notebook(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (book / NAME).write_text("{")
    (line,) = check(book, capsys)
    assert line.startswith(f"{NAME}: not a notebook (")
    assert line.endswith("restore it with git")


def test_another_repository_address_makes_nothing_stale(
    book: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("colab", lambda cell: cell.update(source=cell.source.replace("pip install -e .", "pip install x")))
    assert check(book, capsys) == []


def test_a_page_is_checked_against_all_notebooks(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = book / "book" / "glossary.md"
    page.write_text("# Glossary\n\nThe table has 38,597,376 entries.\n")
    assert check(book, capsys) == []
    page.write_text("# Glossary\n\nThe table has 38,597,377 entries.\n")
    assert check(book, capsys) == [
        'book/glossary.md: line 3: "38,597,377" is not printed by any notebook '
        f"(nearest: 38,597,376 in {NAME}, cell 3); "
        'print it in a cell, correct the prose, or mark it "(not computed here)"'
    ]


def test_check_without_notebooks_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["check"], root=tmp_path) == 0
    assert capsys.readouterr().out == "no notebooks under book/ yet: nothing to check\n"


def test_a_wrong_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["check", "book/99-none.ipynb"]) == 1
    assert capsys.readouterr().out.startswith("book/99-none.ipynb: no such notebook or .md page")
