"""Each term of the glossary is linked where the book first uses it, and `link` changes nothing else."""

from __future__ import annotations

import copy
from pathlib import Path

import glossary
import pytest
from glossary import Term
from nbformat import NotebookNode, v4
from prose_numbers import read_notebook

PAGE = """# Glossary

| symbol | in code | shape or value | what | chapter |
|---|---|---|---|---|
| $T$ | | | tokens in a text | [1](01-a.ipynb) |

<a id="term-token"></a>**Token.** An entry of the vocabulary. [Chapter 1](01-a.ipynb).

<a id="term-token-id"></a>**Token id.** Its number. [Chapter 1](01-a.ipynb).

<a id="term-piece"></a>**Piece.** A stretch of text. [Chapter 2](02-b.ipynb).
"""
LINKED = "[token](glossary.md#term-token)"


@pytest.fixture(autouse=True)
def three_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small glossary's phrases in place of the course's; "piece" is an everyday word, too."""
    monkeypatch.setattr(glossary, "PHRASES", {"token": "tokens?", "token-id": "token ids?"})
    monkeypatch.setattr(glossary, "OTHER_SENSES", {"piece"})


def book(first: str, second: str = "", code: str = "") -> dict[str, NotebookNode]:
    """Two chapters, each of a Markdown cell and a code cell."""
    return {
        name: v4.new_notebook(cells=[v4.new_markdown_cell(text), v4.new_code_cell(code)])
        for name, text in {"01-a.ipynb": first, "02-b.ipynb": second}.items()
    }


def linked(first: str, second: str = "") -> list[str]:
    """The first cells of both chapters after linking."""
    notebooks = book(first, second)
    glossary.link(glossary.terms_of(PAGE), notebooks)
    return [nb.cells[0].source for nb in notebooks.values()]


def test_the_course_links_each_term_where_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder = glossary.ROOT / "book"
    page = (folder / glossary.PAGE).read_text("utf8")
    notebooks = {path.name: read_notebook(path) for path in glossary.in_book_order(folder)}
    assert glossary.problems(glossary.terms_of(page), notebooks, page) == []


def test_the_first_use_is_linked_and_no_other() -> None:
    assert linked("A token is a token.", "A token.") == [f"A {LINKED} is a token.", "A token."]


def test_words_in_italics_are_linked_with_their_asterisks() -> None:
    assert linked("Called *tokens*.")[0] == "Called [*tokens*](glossary.md#term-token)."
    assert linked("Called **tokens** here.")[0] == "Called **[tokens](glossary.md#term-token)** here."


def test_the_longer_term_is_meant_where_two_begin() -> None:
    assert linked("A token id.")[0] == "A [token id](glossary.md#term-token-id)."
    assert linked("Token ids, then a token.")[0] == (
        f"[Token ids](glossary.md#term-token-id), then a {LINKED}."
    )


@pytest.mark.parametrize(
    "other",
    [
        "`token`",
        "``a token``",
        "$token$",
        "$$\ntoken\n$$",
        "[a token](01-a.ipynb)",
        "![a token](a.svg)",
        "# A token",
        "### A token",
        "| token |\n|---|\n| token |",
        "**What is a token?**",
        '"A token", they say',
        "<b title='token'>",
        "```\na token\n```",
        "> ```text\n> a token\n> ```",
        "tokenizer",
        "a token-like thing",
        "token.id",
    ],
)
def test_what_is_no_running_text_is_left_alone(other: str) -> None:
    assert linked(f"{other}\n\nThen a token.")[0] == f"{other}\n\nThen a {LINKED}."


def test_exercises_and_what_folds_are_left_alone() -> None:
    notebooks = book("A text.")
    parts = [
        "## Exercises",
        "**f** (easy). A token.",
        "<details>\n\nA token.\n\n</details>",
        "## To keep\n\nA token.",
    ]
    notebooks["01-a.ipynb"].cells = [v4.new_markdown_cell(part) for part in parts]
    glossary.link(glossary.terms_of(PAGE), notebooks)
    assert [cell.source for cell in notebooks["01-a.ipynb"].cells] == [
        *parts[:3],
        f"## To keep\n\nA {LINKED}.",
    ]


def test_an_everyday_word_is_a_term_only_from_its_definition_on() -> None:
    assert linked("One piece of wood.", "In one piece. Cut into *pieces*, piece by piece.") == [
        "One piece of wood.",
        "In one piece. Cut into [*pieces*](glossary.md#term-piece), piece by piece.",
    ]


def test_a_second_run_changes_nothing() -> None:
    notebooks = book("A token is a *token*, with a token id.", "Cut into *pieces*.")
    terms = glossary.terms_of(PAGE)
    glossary.link(terms, notebooks)
    once = copy.deepcopy(notebooks)
    glossary.link(terms, notebooks)
    assert notebooks == once


def test_a_link_moves_when_the_first_use_moves() -> None:
    assert linked(f"A new token. A {LINKED}.")[0] == f"A new {LINKED}. A token."


def test_a_link_in_other_words_counts_if_it_comes_first() -> None:
    by_hand = "[such a string](glossary.md#term-token)"
    assert linked(f"{by_hand} is a token.")[0] == f"{by_hand} is a token."
    assert linked(f"A token is {by_hand}.")[0] == f"A {LINKED} is {by_hand}."


def test_nothing_but_markdown_cells_changes() -> None:
    notebooks = book("A token id, a token.", "*Pieces*.", code="token = 'a token'")
    before = copy.deepcopy(notebooks)
    glossary.link(glossary.terms_of(PAGE), notebooks)
    for name, nb in notebooks.items():
        for cell, old in zip(nb.cells, before[name].cells, strict=True):
            if cell.cell_type == "markdown":
                assert cell.source != old.source
                cell.source = old.source
    assert notebooks == before


def problems(first: str, second: str = "Cut into *pieces*.") -> list[str]:
    """What `check` says after `link`."""
    notebooks = book(first, second)
    terms = glossary.terms_of(PAGE)
    glossary.link(terms, notebooks)
    return glossary.problems(terms, notebooks, PAGE)


def test_a_book_that_uses_and_links_every_term_has_no_problems() -> None:
    assert problems("A token has a token id.") == []


def test_an_unlinked_first_use_is_named() -> None:
    found = glossary.problems(glossary.terms_of(PAGE), book("A token has a token id.", "*Pieces*."), PAGE)
    assert found[0] == (
        "01-a.ipynb: cell 1: 'token', the first use of Token, is not linked; run: python scripts/glossary.py link"
    )
    assert len(found) == 3


def test_a_term_that_nobody_uses_is_named() -> None:
    assert problems("A token.")[0].startswith("Token id: used in no chapter")


def test_a_term_that_only_a_heading_uses_needs_no_link() -> None:
    assert problems("A token.\n\n## Token ids") == []


def test_a_link_to_no_term_is_named() -> None:
    assert problems("A token, a token id, [x](glossary.md#term-x).") == [
        "01-a.ipynb: a link to term-x, which glossary.md has not"
    ]


def test_too_many_links_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary, "MAX_LINKS", 1)
    assert problems("A token, a token id.")[0].startswith("01-a.ipynb: 2 links to glossary.md, 1 at most")


def test_a_symbol_that_the_glossary_lacks_is_named() -> None:
    table = "\n\n| in formulas | in code |\n|---|---|\n| $T$ | `t` |\n| $U = W^2$ | `u` |\n| $T + 1$ | |\n"
    assert problems(f"A token, a token id.{table}") == [
        "01-a.ipynb: $U$ is in its table of symbols, and not in that of glossary.md"
    ]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (PAGE.replace(" [Chapter 2](02-b.ipynb).", ""), "Piece: end the entry with its chapter"),
        (PAGE.replace("term-token-id", "term-token"), "two entries have the id term-token"),
        (PAGE.replace("term-piece", "term-part"), "speaks of 'piece', which the glossary has not"),
    ],
)
def test_a_faulty_page_is_refused(page: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        glossary.terms_of(page)


def test_the_command_links_stores_and_then_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "glossary.md").write_text(PAGE)
    for name, nb in book("A token has a token id.", "Cut into *pieces*.").items():
        (tmp_path / "book" / name).write_text(glossary.dump(nb))
    assert glossary.main(["check"], root=tmp_path) == 1
    assert glossary.main(["link"], root=tmp_path) == 0
    assert "book/01-a.ipynb: stored" in capsys.readouterr().out
    assert glossary.main(["check"], root=tmp_path) == 0
    assert glossary.main(["link"], root=tmp_path) == 0
    assert capsys.readouterr().out == ""


def test_a_term_has_a_name_and_a_chapter() -> None:
    assert glossary.terms_of(PAGE)[0] == Term("token", "Token", "01-a.ipynb")
