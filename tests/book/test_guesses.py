"""The guesses on the page: room for an answer, then one fold with output, figure and explanation."""

from __future__ import annotations

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.utils import new_document
from guesses import ANSWER, ROOM, gather

OUTPUT, FIGURE = "3.0", "a figure"


def cell(*parts: nodes.Node, **attributes: object) -> nodes.container:
    return nodes.container("", *parts, nb_element="cell_code", **attributes)


def part(kind: str, text: str) -> nodes.container:
    return nodes.container("", nodes.Text(text), nb_element=f"cell_code_{kind}")


def page(*children: nodes.Node) -> nodes.document:
    document = new_document("page", get_default_settings(Parser()))
    document += nodes.section("", *children)
    gather(document)
    return document


def guess(*, figures: int = 1) -> list[nodes.Node]:
    asked = cell(part("source", "print(x)"), part("output", OUTPUT), hide_mode="output")
    drawn = [
        cell(part("source", "plot(x)"), part("output", FIGURE), hide_mode="input") for _ in range(figures)
    ]
    return [asked, *drawn]


def answer() -> list[nodes.Node]:
    start = nodes.raw("", f"{ANSWER}<summary>Open</summary>", format="html")
    return [start, nodes.paragraph("", "because"), nodes.raw("", "</details>", format="html")]


def order(document: nodes.document) -> list[str]:
    """What stands on the page, from top to bottom."""
    return [leaf.astext() for leaf in document.findall(nodes.Text)]


def test_output_and_figures_move_behind_the_room_and_into_the_fold():
    document = page(*guess(figures=2), *answer())
    assert [text.partition("<summary>Open")[0] for text in order(document) if text != "because"] == [
        "print(x)",
        ROOM,
        ANSWER,
        *(OUTPUT, "plot(x)", FIGURE, "plot(x)", FIGURE),
        "</details>",
    ]


def test_the_code_of_the_guess_has_no_fold_of_its_own_any_more_and_a_figure_keeps_its():
    document = page(*guess(), *answer())
    modes = [
        node.get("hide_mode")
        for node in document.findall(nodes.container)
        if node.get("nb_element") == "cell_code"
    ]
    assert modes == [None, None, "input"]  # the question, its output in a cell of its own, the figure


def test_a_hidden_output_without_an_answer_stays_as_it_is():
    document = page(*guess(), nodes.paragraph("", "because"))
    assert order(document) == ["print(x)", OUTPUT, "plot(x)", FIGURE, "because"]
    assert next(document.findall(nodes.container)).get("hide_mode") == "output"


def test_two_guesses_in_a_row_keep_their_own_answers():
    document = page(*guess(figures=0), *answer(), *guess(figures=0), *answer())
    kinds = [text.partition("<summary>Open")[0] for text in order(document)]
    assert kinds == ["print(x)", ROOM, ANSWER, OUTPUT, "because", "</details>"] * 2


def test_the_room_for_the_answer_has_a_label():
    assert "<label>Your guess <input" in ROOM
