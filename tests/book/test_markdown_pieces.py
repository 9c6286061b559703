"""scripts/markdown_pieces.py: what is code, mathematics, link and text, and that no text hides from a check."""

from __future__ import annotations

import doctest
from pathlib import Path

import glossary
import markdown_pieces
import notebooks
import prose_numbers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_pieces import pieces
from nbformat import v4

MARKS = [
    *(
        "`",
        "``",
        "```",
        "~~~",
        "$",
        "$$",
        "[",
        "](x)",
        "]",
        "![",
        "(",
        ")",
        "<b>",
        "<!--",
        "-->",
        "|",
        "|---|",
    ),
    *(
        "# ",
        "> ",
        "- ",
        "1. ",
        "    ",
        "\t",
        "===\n",
        "\n",
        "\n\n",
        "---\n",
        "[a]: b\n",
        "\\",
        "*",
        "&amp;",
        "a1 ",
    ),
]


def has_footnote(text: str) -> bool:
    """Whether `notebooks.py check` finds one."""
    return any("a footnote" in problem for problem in notebooks.markdown_problems(v4.new_markdown_cell(text)))


def has_number(text: str) -> bool:
    """Whether `prose_numbers.py` asks who printed the 1,234 in it."""
    return "1,234" in [number.text for number in prose_numbers.claims(text, ["f(1,234)"])]


def is_running(text: str) -> bool:
    """Whether `glossary.py` looks for terms at the word token."""
    return "token" in glossary.blank(text)


# Each hides, or does not hide, what stands at the X. (text, whether a reader sees X as text)
TAMPERED = [
    ("Read X.", True),
    # ticks
    ("Two ` stray X\n\nticks `.", True),
    ("Two ` stray X ticks `.", False),  # in one paragraph they are a pair, for readers as well
    ("One `` and X one `.", True),
    ("A `` `b` X `` c", False),
    ("A ``b`` X ``c``", True),
    ("A `b \\` X `c`", True),  # a backslash is no escape in code
    ("A \\` X \\`", True),
    ("- a `b\n- X `c`", True),
    ("| a ` | X |\n|---|---|\n| b ` | c |", True),
    ("# A ` b\nX `", True),
    # fences
    ("```\nX\n```", False),
    ("~~~\nX\n~~~", False),
    ("```\na\n~~~\nX\n```", False),
    ("```\na\n~~~\n```\n\nX\n\n~~~\nb\n~~~", True),
    ("````\n```\nX\n```\n````", False),
    ("````\na\n```\n````\n\nX\n\n```\nb\n```", True),
    ("> ```\n> a\n\nX\n\n> b\n> ```", True),  # a fence ends with its quotation
    ("- ```\n  X\n  ```", False),
    ("    ```\n\nX\n\n    ```", True),  # indented by four, it is no fence
    ("```a`b\nX\n```c`d", False),  # a fence's info has no ticks: these are code in a line
    # indented code
    ("a\n\n    X", False),
    ("a\n    X", True),  # a paragraph goes on
    ("- a\n\n    X", True),  # and so does an item
    # comments
    ("a <!-- X --> b", False),
    ("<!--\na\n\nX\n-->", False),
    ("<!-- a --> X <!-- b -->", True),
    ("`<!--` X `-->`", True),
    ("```\n<!--\n```\n\nX\n\n```\n-->\n```", True),
    # mathematics
    ("$a$ X $b$", True),
    ("`$` X `$`", True),
    ("$$\na\n$$\n\nX\n\n$$\nb\n$$", True),
]


@pytest.mark.parametrize(("text", "seen"), TAMPERED)
def test_a_footnote_is_found_where_a_reader_sees_it_and_only_there(text: str, seen: bool) -> None:
    assert has_footnote(text.replace("X", "[^1]")) == seen


@pytest.mark.parametrize(("text", "seen"), TAMPERED)
def test_a_term_is_running_text_where_a_reader_sees_it_and_only_there(text: str, seen: bool) -> None:
    if text.startswith(("|", "<!--")):
        seen = False  # tables and blocks of HTML are no running text
    assert is_running(text.replace("X", "token")) == seen


@pytest.mark.parametrize(("text", "seen"), TAMPERED)
def test_a_number_is_read_but_in_comments_and_in_code_with_a_language(text: str, seen: bool) -> None:
    expected = "<!--" not in text or seen
    assert has_number(text.replace("X", "1,234")) == expected
    if text.startswith("```\n") and not seen:
        assert not has_number(text.replace("X", "1,234").replace("```\n", "```python\n", 1))


def test_inline_code_that_quotes_a_cell_is_found_with_any_ticks() -> None:
    assert not has_number("`f(1,234)`")
    assert not has_number("`` f(1,234) ``")
    assert has_number("` f(1,234) or ` f(1,234)")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (
            "# H `c`\n\n[a *b*](t.md 'x') ![p](i.svg)",
            [
                "text",
                "code",
                "text",
                "text",
                "opening",
                "text",
                "target",
                "text",
                "opening",
                "text",
                "target",
            ],
        ),
        (
            "\\* &amp; <b> <https://e.org> a\\b",
            ["escape", "text", "entity", "text", "tag", "text", "address", "text"],
        ),
        ("---\na: b\n---\n\n$x$ and $$y$$", ["front matter", "text", "text", "maths", "text", "maths"]),
        ("> > `a\n> > b` c", ["text", "code", "text"]),
        ("| `a\\|b` | |\n|---|---|\n| | $x$ |", ["text", "code", "text", "text", "text", "maths", "text"]),
        ("<p>\n$a$ `b`\n</p>", ["tag", "text", "text", "tag"]),
    ],
)
def test_kinds(text: str, kinds: list[str]) -> None:
    assert [piece.kind for piece in pieces(text)] == kinds


def test_a_link_covers_its_words_and_a_picture_its_alt_text() -> None:
    linked = [piece.source for piece in pieces("a [b ![c](d) `e`](f) g") if piece.linked]
    assert "".join(linked) == "[b ![c](d) `e`](f)"


def test_content_is_without_ticks_dollars_and_quotation_marks() -> None:
    found = [
        piece.content for piece in pieces("`` a`b ``\n\n$$c$$\n\n> ```text x\n> d\n> ```") if piece.content
    ]
    assert found == ["a`b", "c", "d\n"]
    assert [piece.info for piece in pieces("~~~ {note} x\na\n~~~")] == ["{note} x"]


@given(st.lists(st.sampled_from(MARKS), max_size=25).map("".join))
def test_the_pieces_are_the_text_without_a_gap(text: str) -> None:
    assert "".join(piece.source for piece in pieces(text)) == text
    assert [piece.start for piece in pieces(text)[1:]] == [piece.end for piece in pieces(text)[:-1]]


def test_no_check_has_a_reader_of_its_own() -> None:
    for name in ("notebooks", "prose_numbers", "glossary"):
        source = Path(str(__import__(name).__file__)).read_text("utf8")
        assert "`{3,}" not in source, name
        assert "from markdown_pieces import" in source


def test_the_example_in_its_docstring_is_right() -> None:
    assert doctest.testmod(markdown_pieces).failed == 0
