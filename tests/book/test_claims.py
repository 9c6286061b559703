"""Claims, checked: the verdict that a section gives is the verdict of the table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

PAGE = Path(__file__).parents[2] / "book" / "claims-checked.ipynb"
VERDICTS = ("right", "wrong", "misleading", "an inference")
Claims = dict[int, tuple[str, str]]


@pytest.fixture(scope="module")
def cells() -> list[nbformat.NotebookNode]:
    return nbformat.read(PAGE, as_version=4).cells


def table(cells: list[nbformat.NotebookNode]) -> Claims:
    """What is said and the verdict, by number, as the shown table has them."""
    (shown,) = [
        output.data["text/markdown"]
        for cell in cells
        for output in cell.get("outputs", [])
        if "| no. | what is said |" in output.get("data", {}).get("text/markdown", "")
    ]
    rows = (line.strip("| ").split(" | ") for line in shown.splitlines()[2:])
    return {int(n): (said, verdict) for n, said, verdict in rows}


def sections(cells: list[nbformat.NotebookNode]) -> Claims:
    """What is said, from the heading, and how the text under it begins, by number."""
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = re.findall(r'^### (\d+)\. "(.+)"\n\n(.+)$', text, re.MULTILINE)
    return {int(n): (said.replace("'", '"'), opening(first)) for n, said, first in found}


def opening(paragraph: str) -> str:
    """The verdict with which a paragraph begins, or its first words."""
    return next((v for v in VERDICTS if re.match(rf"{v}\b", paragraph, re.IGNORECASE)), paragraph[:30])


def disagreements(one: Claims, other: Claims) -> list[int]:
    """The numbers of claims that are not the same in both."""
    plain = [
        {n: (said.replace("'", '"'), verdict) for n, (said, verdict) in claims.items()}
        for claims in (one, other)
    ]
    return [n for n in sorted(one.keys() | other.keys()) if plain[0].get(n) != plain[1].get(n)]


def test_each_section_says_what_the_table_says(cells):
    assert disagreements(table(cells), sections(cells)) == []


def test_the_claims_are_numbered_from_1_and_each_verdict_is_one_of_the_four(cells):
    claims = table(cells)
    assert list(claims) == list(range(1, len(claims) + 1))
    assert {verdict for _, verdict in claims.values()} == set(VERDICTS)


def test_a_verdict_that_is_turned_over_in_the_table_is_noticed(cells):
    claims = table(cells)
    for n, turned in (1, "wrong"), (40, "right"):
        claims[n] = (claims[n][0], turned)
    assert disagreements(claims, sections(cells)) == [1, 40]


def test_a_section_that_begins_with_no_verdict_is_noticed():
    page = [
        nbformat.v4.new_markdown_cell('### 1. "So it is"'),
        nbformat.v4.new_markdown_cell("It may be so."),
    ]
    assert disagreements({1: ("So it is", "right")}, sections(page)) == [1]


def test_every_executed_claim_has_evidence_that_is_computed(cells):
    """One call of ``holds`` under each heading but those of the last part, and never with a constant."""
    number, executed, history = 0, [], False
    for cell in cells:
        if cell.cell_type == "markdown":
            history = history or "not executed\n" in cell.source
            if numbers := re.findall(r"^### (\d+)\. ", cell.source, re.MULTILINE):
                number = int(numbers[-1])
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "holds":
                claimed, evidence = node.args
                assert isinstance(claimed, ast.Constant)
                assert claimed.value == number
                assert any(isinstance(part, ast.Name) for part in ast.walk(evidence)), ast.unparse(node)
                executed.append(number)
    assert history
    assert executed == list(range(1, 34))
