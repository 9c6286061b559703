"""scripts/prose_numbers.py: which numbers it reads, which it lets pass, and which it finds wrong."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from pathlib import Path

import nbformat
import prose_numbers
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nbformat import NotebookNode, v4
from prose_numbers import MARK, claims, matches, notebook_problems, numbers_in, page_problems, printed_values


def one(text: str) -> prose_numbers.Number:
    (number,) = numbers_in(text)
    return number


def notebook(prose: str, printed: str = "", code: str = "") -> NotebookNode:
    """A notebook of one Markdown cell and one code cell that printed something."""
    outputs = [v4.new_output("stream", text=printed)] if printed else []
    return v4.new_notebook(
        cells=[v4.new_markdown_cell(prose, id="text"), v4.new_code_cell(code, id="code", outputs=outputs)]
    )


def wrong(prose: str, printed: str = "", code: str = "") -> list[str]:
    """The numbers of the prose that the check complains about."""
    return [problem.split('"')[1] for problem in notebook_problems(notebook(prose, printed, code))]


# Which number is it?


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("38,597,376", "38597376", ""),
        ("38597376", "38597376", ""),
        ("38_597_376", "38597376", ""),
        ("50\u2009257", "50257", ""),
        ("38.6M", "38.6e6", ""),
        ("1.5B", "1.5e9", ""),
        ("124M", "124e6", ""),
        ("50k", "50e3", ""),
        ("1.5 billion", "1.5e9", ""),
        ("16 B", "16", "byte"),
        ("1,991,036,928 bytes", "1991036928", "byte"),
        ("1.99 GB", "1.99e9", "byte"),
        ("80-GB", "80e9", "byte"),
        ("2 KiB", "2048", "byte"),
        ("36 MiB", "37748736", "byte"),
        ("3.35 TB/s", "3.35e12", "byte/s"),
        ("23.67 %", "0.2367", "%"),
        ("23.67%", "0.2367", "%"),
        ("85 percent", "0.85", "%"),
        ("12 ms", "0.012", "second"),
        ("3 s", "3", "second"),
        ("27.4 tokens/s", "27.4", "token/s"),
        ("175 GFLOP/s", "175e9", "FLOP/s"),
        ("0.0200", "0.0200", ""),
        (".125", "0.125", ""),
        ("1e-5", "1e-5", ""),
        ("2.5e-4", "2.5e-4", ""),
        ("10^-5", "1e-5", ""),
        ("2.5 × 10^-4", "2.5e-4", ""),
        ("-0.0036374", "-0.0036374", ""),
        ("−0.0036374", "-0.0036374", ""),
    ],
)
def test_forms_of_numbers(text: str, value: str, kind: str) -> None:
    number = one(text)
    assert number.text == text
    assert number.digits * number.scale == Decimal(value)
    assert number.kind == kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2.5 to 4.0 GB", ["2.5 GB", "4.0 GB"]),
        ("5-6 GB", ["5 GB", "6 GB"]),
        ("5–6 GB", ["5 GB", "6 GB"]),
        ("1.2 to 1.5B", ["1.2B", "1.5B"]),
        ("12 and 36 MiB", ["12", "36 MiB"]),
        ("768 – 36 MiB", ["768", "36 MiB"]),
        ("1,024 × 768", ["1,024", "768"]),
        ("[4, 1024, 768]", ["4", "1024", "768"]),
        ("768-dimensional", ["768"]),
        ("the 2010s", ["2010"]),
        ("GPT-2, float32, r50k_base, h.0.attn, sha256, UTF-8, Llama-3-8B", []),
    ],
)
def test_several_numbers(text: str, found: list[str]) -> None:
    assert [number.text for number in numbers_in(text)] == found


# Does it stand for what was printed?


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("38.6M", "38,597,376"),
        ("38.60M", "38597376"),
        ("39M", "38,597,376"),
        ("38.6 million", "38,597,376"),
        ("38.6M", "38.6M"),
        ("38.6M", "38.597M"),
        ("124M", "124,439,808"),
        ("124,439,808", "124439808"),
        ("1.56B", "1,557,611,200"),
        ("154 MB", "154389504"),
        ("154 MB", "154,389,504 bytes"),
        ("154 MB", "154.39"),
        ("154.39 MB", "154.39 MB"),
        ("154.39", "154.39 MB"),
        ("0.154 GB", "154.39 MB"),
        ("474.7 MiB", "497,759,232 bytes"),
        ("1.854 GiB", "1,991,036,928"),
        ("1.991 GB", "1.854256 GiB"),
        ("23.67 %", "23.674"),
        ("23.67 %", "0.23674"),
        ("23.67%", "23.67 %"),
        ("0.2367", "23.67 %"),
        ("31.65 %", "31.6512"),
        ("31.65 %", "0.316512"),
        ("0.0200", "0.02"),
        ("−0.00364", "-0.0036374"),
        ("2.5e-4", "0.00025"),
        ("12.0 ms", "0.012"),
        ("2", "2.5"),  # a half to even
        ("3", "2.5"),  # or up
    ],
)
def test_rounded_as_written(written: str, printed: str) -> None:
    assert matches(one(written), one(printed))


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("38.7M", "38,597,376"),
        ("38.5M", "38,597,376"),
        ("38.6M", "38.6"),  # 38.6 of what?
        ("124,439,809", "124,439,808"),
        ("125M", "124,439,808"),
        ("23.76 %", "23.67"),
        ("23.76 %", "0.2367"),
        ("474.7 MB", "497,759,232 bytes"),
        ("474.7 MB", "474.7 MiB"),
        ("1.854 GB", "1.854 GiB"),
        ("1.991 GiB", "1,991,036,928"),
        ("38,600,000", "38.6M"),  # printed with three digits only
        ("154.390 MB", "154.39 MB"),
        ("12 ms", "12 MB"),
        ("175 GFLOP", "175 GFLOP/s"),
        ("0.00364", "-0.0036374"),
        ("1", "2.5"),
    ],
)
def test_not_what_was_printed(written: str, printed: str) -> None:
    assert not matches(one(written), one(printed))


@st.composite
def rounded_millions(draw: st.DrawFn) -> tuple[int, Decimal, Decimal]:
    """A printed integer, the same in millions with up to six decimals, and that with another last digit."""
    printed = draw(st.integers(0, 10**12))
    step = Decimal(1).scaleb(-draw(st.integers(0, 6)))
    millions = Decimal(printed) / 10**6
    written = millions.quantize(step, rounding=ROUND_HALF_EVEN)
    assume(written == millions.quantize(step, rounding=ROUND_HALF_UP))  # at a half, both neighbours are right
    last = int(written / step) % 10
    other = draw(st.integers(0, 9).filter(lambda digit: digit != last))
    return printed, written, written + (other - last) * step


@given(rounded_millions())
def test_every_rounding_passes_and_every_other_last_digit_fails(case: tuple[int, Decimal, Decimal]) -> None:
    printed, written, changed = case
    for text in (str(printed), f"{printed:,}"):
        assert matches(one(f"{written:f}M"), one(text))
        assert not matches(one(f"{changed:f}M"), one(text))


# Which numbers of a text are claims?


@pytest.mark.parametrize(
    "text",
    [
        "12 blocks of 12 heads, 4 tokens, 16 bytes, 2 FLOPs, 0.5, 1e-5, $10^{-5}$, $12C^2$, $4BT$",
        "In 2017, and in the 2010s, on 2017-06-12, as Vaswani et al., 2017 and Radford et al. (2019) say",
        "It came out in June 2017, since 1999, in 2017 and 2019, in 1998–2003; the paper of 2017 is old. (2019)",
        "[Gage, 1994](b.md); [Radford et al.,\n2019](b.md), section 2; [Su et al. (2021)](b.md); Ba et al. (2016, 2020).",
        "# 10.12 A heading\n\nSee section 10.12, Eq. (10.12), Eqs. (10.12) and (10.13), § 11.25",
        "GPT-2 (124M)",
        "It takes 25 minutes; allow 100-120 minutes.",
        "Python 3.11, PyTorch 2.13, torch 2.13.0, version 1.2.3, arXiv:1706.03762",
        "`r50k_base`, `float32`, `int64`, `uint16`, `h.11.mlp`, GPT-2, cl100k, sha256, UTF-8",
        "[the paper](https://example.org/1234/5678.pdf) <https://example.org/1234> https://example.org/1234",
        "[next](book-1234.ipynb) ![bars](images/bars-1234.svg) model-00001234.safetensors",
        "```python\nx = 1234\n```\n\n```bash\nrun 1234\n```\n\n<!-- 1234 -->",
        f"WebText is 40 GB of text {MARK}, from 45M links {MARK}; it takes 2.5 to 4.0 GB {MARK}.",
    ],
)
def test_exempt(text: str) -> None:
    assert [number.text for number in claims(text)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It has 38.6M numbers.", ["38.6M"]),
        ("| a | 768 |\n|---|---|\n| b | 36 MiB |", ["768", "36 MiB"]),
        (
            "<details><summary>Solution</summary>\n\n**38.6M** and <b>36</b> MiB\n\n</details>",
            ["38.6M", "36 MiB"],
        ),
        ("_38.6M_, *36* MiB, __85 %__, 12*768", ["38.6M", "36 MiB", "85 %", "768"]),
        ("`50257` rows, `(1, 1024)`", ["50257", "1024"]),
        ("```\n38,597,376\n```\n\n```text\n1.85 GiB\n```", ["38,597,376", "1.85 GiB"]),
        ("$50{,}257$, $50\\,257 \\times 768$", ["50,257", "50\u2009257", "768"]),
        ("$154\\,\\text{MB}$, $31\\%$, $2.50 \\times 10^{-4}$", ["154\u2009MB", "31%", "2.50×10^-4"]),
        ("2.50 × 10⁻⁴, 10⁻⁵", ["2.50 × 10^-4"]),
        ("$$\n\\frac{1024}{768} \\tag{10.12}\n$$", ["1024", "768"]),
        ("## 36 MiB\n\n## 85 million", ["36 MiB", "85 million"]),
        ('<img src="a-123.svg" alt="bars of 38.6M">', ["38.6M"]),
        ("[38.6M parameters](a.ipynb) ![bars of 36 MiB](a.svg)", ["38.6M", "36 MiB"]),
        ("154&nbsp;MB and 154\nMB", ["154\u00a0MB", "154\nMB"]),
        ("85M parameters, 9 % of them, 5 GB", ["85M", "9 %", "5 GB"]),
        ("In 2,017 rows, 2048 MB, 1899", ["2,017", "2048 MB", "1899"]),
        ("GPT-3 reads 2048 tokens, or 2000 tokens", ["2048", "2000"]),
        ("1 in 1999 positions; one in 1999; in 1999 positions", ["1999", "1999", "1999"]),
        ("In 1990 to 2000 rows", ["2000"]),
        (
            "It prints 1999. A context of 2000, a batch (2000, 16) and 1999-dimensional",
            ["1999", "2000", "2000", "1999"],
        ),
        ("`1999`, `zeros(2000)`, $2000$, $T = 1999$, in 2000 × 12", ["1999", "2000", "2000", "1999", "2000"]),
        ("In 1999 [positions](a.ipynb), in 2000 `rows`", ["1999", "2000"]),
        ("Chapter 10 GB, figure 1,024, GPT-2 (125M), GPT-2 small (124M)", ["10 GB", "1,024", "125M", "124M"]),
        (f"First 40 GB, then 45M {MARK}", ["40 GB"]),
        (f"It has 40 GB. The rest is told elsewhere {MARK}", ["40 GB"]),
    ],
)
def test_claims(text: str, found: list[str]) -> None:
    assert [number.text for number in claims(text)] == found


def test_no_year_lies_in_the_future_and_no_clock_decides_which_do() -> None:
    assert claims(f"In {prose_numbers.LAST_YEAR}, it ends.") == []
    (number,) = claims(f"In {prose_numbers.LAST_YEAR + 1}, it ends.")
    assert number.text == "2027"  # raise LAST_YEAR by hand, and this with it


# Notebooks


def test_wrong_numbers_are_found() -> None:
    printed = "total 124,439,808\ntable 38,597,376\nshare 23.67 %\n"
    assert wrong("124,439,808 in all, 38.6M in the table, 23.67 %, since 2019", printed) == []
    assert wrong("124,439,809 in all", printed) == ["124,439,809"]
    assert wrong("38.7M in the table", printed) == ["38.7M"]
    assert wrong("23.76 % of it", printed) == ["23.76 %"]


def test_the_message_names_cell_number_nearest_value_and_remedy() -> None:
    assert notebook_problems(notebook("It has 38.7M numbers.", "50257\n38,597,376\n")) == [
        'cell 1 (text): "38.7M" is not printed by any cell (nearest: 38,597,376 in cell 2); '
        'print it in a cell, correct the prose, or mark it "(not computed here)"'
    ]
    assert "(nothing comparable is printed)" in notebook_problems(notebook("It has 38.7M numbers."))[0]


def test_captions_and_alt_text_are_prose() -> None:
    nb = notebook("", "768\n")
    nb.cells[1].metadata["mystnb"] = {"image": {"alt": "769 dots"}, "figure": {"caption": "Of 770 rows.\n"}}
    assert [problem.split(";")[0] for problem in notebook_problems(nb)] == [
        'cell 2 (code), alt text: "769" is not printed by any cell (nearest: 768 in cell 2)',
        'cell 2 (code), caption: "770" is not printed by any cell (nearest: 768 in cell 2)',
    ]


def test_inline_code_may_quote_a_cell_but_not_restate_a_number() -> None:
    assert wrong("We call `manual_seed(1234)`.", code="torch.manual_seed(1234)") == []
    assert wrong("We call `manual_seed(1235)`.", code="torch.manual_seed(1234)") == ["1235"]
    assert wrong("It has `1234` rows.", code="torch.manual_seed(1234)") == ["1234"]


def test_what_counts_as_printed() -> None:
    figure = {"image/png": "iVBORw0=", "text/plain": "<Figure size 640x480 with 1 Axes>"}
    outputs = [
        v4.new_output("stream", text="a 101\nb 102\n"),
        v4.new_output("stream", name="stderr", text="103"),
        v4.new_output("execute_result", data={"text/plain": "104"}),
        v4.new_output("display_data", data={"text/html": "<td width=999>105</td><td>1&thinsp;106</td>"}),
        v4.new_output("display_data", data={"text/markdown": "**107**"}),
        v4.new_output("display_data", data=figure),
        v4.new_output("error", ename="ValueError", evalue="n_embd=108", traceback=[]),
    ]
    nb = v4.new_notebook(cells=[v4.new_code_cell("0", outputs=outputs)])
    found = [int(value.number.digits) for value in printed_values(nb)]
    assert found == [101, 102, 104, 105, 1106, 107, 108]
    assert {value.where for value in printed_values(nb)} == {"cell 1"}


# Pages


def test_a_page_names_the_line_and_the_notebook() -> None:
    first, second = notebook("", "768\n"), notebook("", "38,597,376\n")
    page = "---\ntitle: 999\n---\n\n```{figure} a.svg\n:width: 640px\n```\n\n768 columns, 38.7M numbers\n"
    assert page_problems(page, {"book/01.ipynb": first, "book/02.ipynb": second}) == [
        'line 9: "38.7M" is not printed by any notebook (nearest: 38,597,376 in book/02.ipynb, cell 2); '
        'print it in a cell, correct the prose, or mark it "(not computed here)"'
    ]


def test_the_command_checks_notebooks_and_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prose_numbers.main([], root=tmp_path) == 0
    assert "nothing to check" in capsys.readouterr().out
    book = tmp_path / "book"
    (book / "_build").mkdir(parents=True)
    nbformat.write(notebook("It has 768 columns.", "768\n"), book / "01.ipynb")
    (book / "_build" / "copy.md").write_text("1234")
    assert prose_numbers.main([], root=tmp_path) == 0
    assert capsys.readouterr().out == ""
    (book / "index.md").write_text("The model has 769 columns.")
    assert prose_numbers.main([], root=tmp_path) == 1
    assert capsys.readouterr().out.startswith('book/index.md: line 1: "769" is not printed by any notebook')
