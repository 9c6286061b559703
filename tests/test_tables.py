import pytest
from IPython.core.formatters import DisplayFormatter
from markdown_it import MarkdownIt

from gptlab.tables import Table

LEDGER = Table("part | parameters | share", [("wte", 38_597_376, "31.02%"), ("wpe", 786_432, "0.63%")])


def test_a_notebook_gets_a_markdown_table_and_the_same_as_text():
    data, _ = DisplayFormatter().format(LEDGER)
    assert data["text/markdown"] == (
        "| part | parameters | share |\n"
        "| --- | ---: | ---: |\n"
        "| wte | 38,597,376 | 31.02% |\n"
        "| wpe | 786,432 | 0.63% |"
    )
    assert (
        data["text/plain"] == "part  parameters   share\nwte   38,597,376  31.02%\nwpe      786,432   0.63%"
    )


def test_a_parser_sees_every_cell_even_with_a_bar_in_it():
    table = Table("id | token", [(50_256, "`<|endoftext|>`")])
    html = MarkdownIt("commonmark").enable("table").render(table._repr_markdown_())
    assert html.count("<td") == 2
    assert "<code>&lt;|endoftext|&gt;</code>" in html


@pytest.mark.parametrize(
    ("column", "right"),
    [
        (["1", "-2.5", "+3 %", "−4"], True),
        ([1, 20], True),
        ([0.5, "12 GB"], True),
        (["1", ""], True),
        (["", ""], False),
        (["1", "none"], False),
        (["(2, 8)"], False),
        ([True, False], False),
        ([], False),
    ],
)
def test_a_column_stands_to_the_right_if_every_cell_is_a_number(column, right):
    assert Table("x", [[value] for value in column]).right == [right]


@pytest.mark.parametrize(
    ("value", "cell"),
    [(1_000_000, "1,000,000"), (True, "yes"), (False, "no"), (None, "None"), ("1000", "1000")],
)
def test_what_a_cell_shows(value, cell):
    assert Table("x", [[value]]).rows == [[cell]]


def test_a_row_of_another_length_is_an_error_that_shows_it():
    with pytest.raises(ValueError, match=r"\['wte'\] has 1 cells, the header 2: \['part', 'share'\]"):
        Table("part | share", [("wte",)])


def test_no_rows_is_a_header_alone():
    assert repr(Table("part | share", [])) == "part  share"
    assert Table("part | share", [])._repr_markdown_() == "| part | share |\n| --- | --- |"
