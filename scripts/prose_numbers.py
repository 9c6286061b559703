"""Check that every number in the book's prose is a number that a cell printed.

    python scripts/prose_numbers.py [PATH ...]     notebooks and .md pages; without PATH, all of book/

What is checked
    A number of three or more significant digits (768, 38,597,376, 0.0200, 2.50), one with a magnitude (85M,
    1.5 billion), and one with a unit of UNITS that is marked as checked (36 MiB, 85 %, 12 ms). "12 blocks",
    "4 tokens", "16 bytes" and "2 FLOPs" pass freely: the bare units byte and FLOP, and words such as
    parameters, tokens, rows and characters, do not make a measurement of a short number.
    Prose is every Markdown cell (`<details>`, tables, maths, inline code, and fences without a code language
    included), every figure's alt text and every figure's caption. A .md page is checked against the values
    of all notebooks together.

What vouches for it
    A value printed by a cell of the same notebook: stdout, a text, Markdown or HTML result, the message of an
    error. Images do not count. The printed value must round to the written one at the written precision;
    halves may go up or to even. So "38.6M" stands for a printed 38,597,376, "154 MB" for a printed 154389504,
    154.39 MB or plain 154.39, and "23.67 %" for 23.674 or 0.23674. Where both sides name a unit, units are
    converted: 1.854 GB is never 1.854 GiB. A value printed with a magnitude or a unit ("38.6M") vouches for
    no finer digit than it shows.

What is exempt without a mark
    - years from 1900 to LAST_YEAR where the words around make them years: "in 2019", "the paper of 2017",
      "(2019)", "et al., 2019", "June 2017". Not where they make it a quantity ("in 1999 positions", "1 in 1999"), and
      not bare ("it prints 1999"). So the 2017 paper is "the paper of 2017", and a word after a year needs a comma:
      "In 2017, attention"
    - dates such as 2017-06-12, "25 minutes"
    - the numbers of sections, chapters, equations, figures, tables, exercises, pages; a heading's own number
    - names with digits in them (GPT-2, float32, sha256, cl100k, Llama-3-8B), and exactly "GPT-2 (124M)"
    - versions ("Python 3.11", "1.2.3"), arXiv numbers, link targets, addresses, file names
    - fences in a language of CODE_FENCES, and inline code that quotes a code cell word for word
    Powers of ten such as 1e-5 and $10^{-5}$ have one significant digit and are free; $2.50 \\times 10^{-4}$
    has three and is not. In maths a letter after a digit is a factor: $12C$, $4B$.

The mark, for the rare number that no cell can print
    The words "(not computed here)" at most 40 characters after the number, with no other number and no full
    stop between them: "WebText is 40 GB of text (not computed here)". They read the same everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from pathlib import Path

from markdown_pieces import Piece, pieces
from nbformat import NotebookNode, v4

ROOT = Path(__file__).resolve().parents[1]
MARK = "(not computed here)"
CODE_FENCES = {"python", "py", "ipython", "ipython3", "bash", "sh", "shell", "console"} | {
    *("toml", "yaml", "json", "ini", "makefile", "bibtex"),
}
# Raised by hand: by the clock, a number that fails today would pass next January without anybody looking.
LAST_YEAR = 2026
EXACT = Context(prec=100)  # so wide that no product or difference of two written numbers is ever rounded

# ----------------------------------------------------------------------------------------------------
# Units: name -> (what it measures, its size in the base unit, whether it makes a short number a checked one)

UNITS: dict[str, tuple[str, Decimal, bool]] = {
    "%": ("%", Decimal("0.01"), True),
    "percent": ("%", Decimal("0.01"), True),
    "per cent": ("%", Decimal("0.01"), True),
    "B": ("byte", Decimal(1), False),
    "byte": ("byte", Decimal(1), False),
    "bytes": ("byte", Decimal(1), False),
    "FLOP": ("FLOP", Decimal(1), False),
    "FLOPs": ("FLOP", Decimal(1), False),
    "s": ("second", Decimal(1), True),
    "second": ("second", Decimal(1), True),
    "seconds": ("second", Decimal(1), True),
    "ms": ("second", Decimal("1e-3"), True),
    "milliseconds": ("second", Decimal("1e-3"), True),
    "us": ("second", Decimal("1e-6"), True),
    "\u00b5s": ("second", Decimal("1e-6"), True),  # with the micro sign
    "\u03bcs": ("second", Decimal("1e-6"), True),  # with the Greek mu
    "ns": ("second", Decimal("1e-9"), True),
    "tok/s": ("token/s", Decimal(1), True),
    "token/s": ("token/s", Decimal(1), True),
    "tokens/s": ("token/s", Decimal(1), True),
    "tokens per second": ("token/s", Decimal(1), True),
}
for _power, _letter in enumerate("kMGTP", start=1):
    UNITS[f"{_letter}B"] = ("byte", Decimal(1000) ** _power, True)
    UNITS[f"{_letter.upper()}iB"] = ("byte", Decimal(1024) ** _power, True)
    UNITS[f"{_letter}FLOP"] = UNITS[f"{_letter}FLOPs"] = ("FLOP", Decimal(1000) ** _power, True)
UNITS["KB"] = UNITS["kB"]  # any unit may also be followed by "/s": GB/s, TFLOP/s

MAGNITUDES = {
    "k": Decimal(10) ** 3,
    "K": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "B": Decimal(10) ** 9,
    "thousand": Decimal(10) ** 3,
    "million": Decimal(10) ** 6,
    "billion": Decimal(10) ** 9,
    "trillion": Decimal(10) ** 12,
}

# ----------------------------------------------------------------------------------------------------
# Numbers in a plain text

# A magnitude's letter touches its number (1.5B); a unit of one letter stands apart (16 B, 3 s); other units
# may do either. So "1.5B" is a billion and a half, "16 B" sixteen bytes, and "the 2010s" is no time.
_LONG_UNITS = sorted((unit for unit in UNITS if unit not in {"B", "s"}), key=len, reverse=True)
_SUFFIX = (
    r"(?:(?P<letter>[kKMB])"
    rf"|[\s-]?(?P<unit>{'|'.join(re.escape(unit) for unit in _LONG_UNITS)})(?P<rate>/s)?"
    r"|[\s-](?P<short>[Bs])(?P<short_rate>/s)?"
    r"|[\s-](?P<word>M|thousand|million|billion|trillion)"
    r")(?!\w)"
)
_THIN = "\u2009\u202f"  # the thin spaces that may separate thousands
_DASHES = "-‐‑‒–—−"
_DIGITS = rf"(?:\d{{1,3}}(?:[,_{_THIN}]\d{{3}})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = (
    r"(?P<sign>(?<![\w)\]])[-−–])?(?<!\w)(?<!\w\.)"
    r"(?:10\^(?P<power>[-−]?\d{1,4})(?!\d)"
    rf"|(?P<digits>{_DIGITS})(?:[eE](?P<exponent>[-+−]?\d{{1,4}})(?!\d)"
    r"|\s?[×x·]\s?10\^(?P<times>[-−]?\d{1,4})(?!\d))?)"
    rf"(?:{_SUFFIX})?"
)
_NAME = r"(?<!\w)[^\W\d]\w*(?:[-.]\w+)*"  # swallows its digits: GPT-2, float32, h.0.attn
_SCANNER = re.compile(rf"(?P<name>{_NAME})|{_NUMBER}")
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_RANGE = re.compile(rf"\s+to\s+|[{_DASHES}]")  # "768 – 36 MiB" with spaces is a pause, not a range


@dataclass(frozen=True)
class Number:
    """A number as it stands in a text: ``digits`` times ``scale``, with one ``step`` of the last digit."""

    text: str
    digits: Decimal
    step: Decimal
    significant: int
    scale: Decimal = Decimal(1)
    kind: str = ""  # what its unit measures; "" without a unit
    checked: bool = False  # has a magnitude or a unit that makes even a short number one to check
    start: int = 0
    end: int = 0


def numbers_in(text: str) -> list[Number]:
    """All numbers of a plain text, in order. In a range ("2.5 to 4.0 GB") the unit belongs to both."""
    found = [_number(match) for match in _SCANNER.finditer(text) if not match["name"]]
    for i in range(len(found) - 2, -1, -1):
        left, right = found[i], found[i + 1]
        left_is_bare = left.scale == 1 and not left.kind
        if left_is_bare and right.checked and _RANGE.fullmatch(text, left.end, right.start):
            unit = right.text.lstrip("+-−–.,0123456789")
            found[i] = replace(left, text=left.text + unit, scale=right.scale, kind=right.kind, checked=True)
    return found


def _number(match: re.Match[str]) -> Number:
    plain = "1" if match["power"] else re.sub(rf"[,_{_THIN}]", "", match["digits"])
    exponent = match["power"] or match["exponent"] or match["times"] or "0"
    scale, kind, checked = Decimal(1), "", False
    if magnitude := match["letter"] or match["word"]:
        scale, checked = MAGNITUDES[magnitude], True
    elif unit := match["unit"] or match["short"]:
        kind, scale, checked = UNITS[unit]
        if match["rate"] or match["short_rate"]:
            kind, checked = f"{kind}/s", True
    shift = int(exponent.replace("−", "-"))
    return Number(
        text=match.group(),
        digits=Decimal(f"{'-' if match['sign'] else ''}{plain}e{shift}"),
        step=Decimal(f"1e{shift - len(plain.partition('.')[2])}"),
        significant=len(plain.replace(".", "").lstrip("0")),
        scale=scale,
        kind=kind,
        checked=checked,
        start=match.start(),
        end=match.end(),
    )


# ----------------------------------------------------------------------------------------------------
# Does a printed number vouch for a written one?


def matches(written: Number, printed: Number) -> bool:
    """Whether ``printed`` rounds to ``written`` at the precision that ``written`` shows."""
    return any_matches(written, [printed])


def any_matches(written: Number, printed: Iterable[Number]) -> bool:
    """Whether one of the printed numbers does."""
    # One with a scale ("38.6M") was rounded before it was printed, so it says nothing of any finer digit.
    with localcontext(EXACT):
        return any(
            _rounds(value, written, scale) and (number.scale == 1 or written.step * scale >= step)
            for number in printed
            for value, step, scale in _readings(written, number)
        )


def _readings(written: Number, printed: Number) -> Iterable[tuple[Decimal, Decimal, Decimal]]:
    """The ways to compare the two: printed value, one step of its last digit, scale of the written digits."""
    if written.kind == printed.kind or not written.kind or not printed.kind:
        # In the base unit: "154 MB" for 154389504, "0.2367" for "23.67 %".
        yield printed.digits * printed.scale, printed.step * printed.scale, written.scale
    printed_is_bare = printed.scale == 1 and not printed.kind
    written_is_bare = written.scale == 1 and not written.kind
    if written_is_bare or (printed_is_bare and written.kind):
        # Digit for digit: "154 MB" for the 154.39 of a table whose header says MB, and the other way round.
        yield printed.digits, printed.step, Decimal(1)


def _rounds(value: Decimal, written: Number, scale: Decimal) -> bool:
    target, half = written.digits * scale, written.step * scale / 2
    distance = abs(value - target)
    if distance != half:
        return distance < half
    even = written.digits / written.step % 2 == 0
    return even or abs(value) < abs(target)  # a half goes to the even digit, or up


def nearest(written: Number, printed: Iterable[Printed]) -> Printed | None:
    """The printed value that comes closest, or None where none can be compared."""

    def distance(value: Printed) -> Decimal:
        return min(
            (abs(v - written.digits * scale) / scale for v, _, scale in _readings(written, value.number)),
            default=Decimal("Infinity"),
        )

    with localcontext(EXACT):
        close = min(printed, key=distance, default=None)
        return close if close and distance(close).is_finite() else None


# ----------------------------------------------------------------------------------------------------
# What a notebook printed


@dataclass(frozen=True)
class Printed:
    number: Number
    where: str


def printed_values(nb: NotebookNode, prefix: str = "") -> list[Printed]:
    """Each distinct number of the stored text outputs, with the first cell that printed it."""
    found: dict[tuple[Decimal, Decimal, Decimal, str], Printed] = {}
    for i, cell in enumerate(nb.cells, start=1):
        if cell.cell_type != "code":
            continue
        for line in "\n".join(_output_texts(cell)).splitlines():
            for number in numbers_in(line):
                key = (number.digits, number.step, number.scale, number.kind)
                found.setdefault(key, Printed(number, f"{prefix}cell {i}"))
    return list(found.values())


def _output_texts(cell: NotebookNode) -> Iterable[str]:
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text
        elif output.output_type == "error":
            yield output.evalue
        data = output.get("data", {})
        if any(mime.startswith("image/") for mime in data):
            continue  # its text is only "<Figure size 640x480 with 1 Axes>"
        yield data.get("text/plain", "")
        for mime in ("text/markdown", "text/html"):
            yield html.unescape(re.sub(r"</?[A-Za-z][^>]*>", " ", data.get(mime, "")))


# ----------------------------------------------------------------------------------------------------
# From Markdown to the text that a reader sees

_SOFTWARE = (
    "Python|PyTorch|torch|CUDA|NumPy|numpy|Matplotlib|matplotlib|transformers|tiktoken|safetensors|nbval|Sphinx"
    "|Jupyter Book|JupyterLab|MathJax"
)
_NUMBERED = (
    r"sections?|chapters?|equations?|eqs?\.|figures?|figs?\.|tables?|exercises?|appendix|part|versions?"
)
_LABEL = r"\(?\d{1,2}(?:\.\d{1,2})*\)?(?!\w|[.,]\d)"
_EXEMPT = [
    re.compile(pattern)
    for pattern in (
        r"GPT-2 \(124M\)",
        r"(?i:arxiv)[:\s]\s?\d{4}\.\d{4,5}(?:v\d+)?",
        r"\b\d{4}-\d{2}-\d{2}\b",  # a date
        r"\bv?\d+\.\d+\.\d+(?:\.\w+)*\b",  # a version
        rf"\b(?:{_SOFTWARE})\s\d+(?:\.\d+)*",
        r"\b(?i:pages?|pp\.)\s?\d+(?:\s?[-–]\s?\d+)?(?!\w|[.,]\d)",
        rf"(?:§|\b(?i:{_NUMBERED}))\s?{_LABEL}(?:(?:,|\s(?:and|to|or)|\s?[{_DASHES}])\s?{_LABEL})*(?!{_SUFFIX})",
        rf"\b\d+(?:\s?(?:to|[{_DASHES}])\s?\d+)?[\s-]?(?:minutes?|min)\b",
    )
]
_HEADING_NUMBER = re.compile(
    rf"^#{{1,6}}[ \t]+\d{{1,2}}(?:\.\d{{1,2}})*\.?(?=[ \t])(?!{_SUFFIX})", re.MULTILINE
)
_MARKED = re.compile(r"[^\d.;!?]{0,40}?" + re.escape(MARK))
_FILES = "ipynb|md|py|svg|png|json|bib|txt|toml|yml|cfg|bin|safetensors|tiktoken"


# Four digits are a year where the words before them, or a bracket around them, say when.
_WHEN = re.compile(
    r"\b(?:(?i:in|since|early|late)(?: the)?|\w+,? of"
    r"|January|February|March|April|May|June|July|August|September|October|November|December)\s$"
    r"|\bet al\.,?\s\(?$"
)
_HOW_MUCH = re.compile(
    r"(?:\d|\bone) in\s$"  # 1 in 1999
    r"|\b(?:batch|context|length|number|rate|size|step|sum|total|vocabulary|width|window) of\s$",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"(?:(?<!\S)|\]\s?)\($"), re.compile(r"\)")  # (2019)
_AFTER_A_NAME = re.compile(r"\b[A-Z][\w-]*[^\W\d_], $"), re.compile(r"[])]|[;,]\s[^\d\s]")  # Gage, 1994]
_SAME_TIMES = re.compile(rf"\s?[{_DASHES}]\s?|,\s|,?\s(?:and|or|to)\s")  # 2017 and 2019
# A word behind them is what they count, unless it is one of these.
_SMALL_WORDS = (
    "a|already|also|an|and|are|as|at|but|by|for|had|has|have|in|is|it|of|on|or|says?|so|that|the|they|to|was"
    "|we|were|when|which|who|with"
)
_COUNTED = re.compile(rf"[\s-]+\[?(?!(?:{_SMALL_WORDS})\b)[^\W\d_]|\s?[×·*/+=%^]|\s\d")


def _years(text: str, found: list[Number]) -> set[int]:
    """Which of the numbers are years, by their places in the list."""
    years: set[int] = set()
    for i, number in enumerate(found):
        if not (re.fullmatch(r"\d{4}", number.text) and 1900 <= int(number.text) <= LAST_YEAR):
            continue
        before, end = text[max(0, number.start - 40) : number.start], number.end
        end += bool(re.match(r"s\b", text[end:]))  # the 2010s
        enclosed = any(
            left.search(before) and right.match(text, end) for left, right in (_IN_BRACKETS, _AFTER_A_NAME)
        )
        told = _WHEN.search(before) and not _HOW_MUCH.search(before)
        follows = i - 1 in years and _SAME_TIMES.fullmatch(text, found[i - 1].end, number.start)
        if (enclosed or told or follows) and not _COUNTED.match(text, end):
            years.add(i)
    return years


def claims(markdown: str, code: Iterable[str] = ()) -> list[Number]:
    """The numbers of a Markdown text that some cell must have printed. ``code``: the sources it may quote."""
    text = prose(markdown, code)
    found = numbers_in(text)
    marked = [bool(_MARKED.match(text, number.end)) for number in found]
    for i in range(len(found) - 2, -1, -1):  # the mark after a range covers both of its ends
        if marked[i + 1] and _RANGE.fullmatch(text, found[i].end, found[i + 1].start):
            marked[i] = True
    years = _years(text, found)
    return [
        number
        for i, number in enumerate(found)
        if not marked[i] and i not in years and (number.checked or number.significant >= 3)
    ]


def prose(markdown: str, code: Iterable[str] = ()) -> str:
    """The text of a Markdown source, without what is exempt. Every line keeps its number."""
    sources = list(code)
    text = "".join(_read(piece, sources) for piece in pieces(markdown))
    text = re.sub(r"<?\b(?:https?|mailto):[^\s>)]+>?", _blank, text)
    text = re.sub(rf"[\w./-]*\w\.(?:{_FILES})\b", _blank, text)
    text = re.sub(r"(?<=10)⁻?[⁰¹²³⁴-⁹]+", lambda match: "^" + match.group().translate(SUPERSCRIPTS), text)
    text = re.sub(r"(?<!\d)\*|\*(?!\d)|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", text)  # emphasis, but not 12*768
    text = re.sub(r"[ \t]{2,}", " ", text)
    text = _HEADING_NUMBER.sub(_blank, text)
    for pattern in _EXEMPT:
        text = pattern.sub(_blank, text)
    return text


def _read(piece: Piece, sources: list[str]) -> str:
    """What a piece of Markdown says to a reader, in as many lines."""
    match piece.kind:
        case "text":  # HTML's own words may have entities, too
            return html.unescape(piece.source) if piece.block == "html" else piece.source
        case "opening":
            return piece.source
        case "escape":
            return piece.source[1:]
        case "entity":
            return html.unescape(piece.source)
        case "code":
            read = _open_code(piece.content, sources)
        case "fence":
            read = _open_fence(piece)
        case "maths":
            read = latex_to_text(piece.content)
        case "target":
            read = "] … " if "(" in piece.source else "]"
        case "tag":  # a picture's alt text is prose
            read = " ".join(["", *re.findall(r"^<img\b.*?\balt=\"([^\"]*)\"", piece.source, re.DOTALL), ""])
        case _:
            read = " … "
    return read + "\n" * (piece.source.count("\n") - read.count("\n"))


def latex_to_text(maths: str) -> str:
    """A formula as plain text, as far as numbers go: ``50{,}257``, ``154\\,\\text{MB}``, ``10^{-5}``."""
    text = re.sub(r"\\tag\{[^}]*\}|\\(?:begin|end)\{[^}]*\}(?:\{[lcr| ]*\})?", _blank, maths.strip("$"))
    text = text.replace("{,}", ",").replace(r"\,", "\u2009").replace(r"\%", "%").replace("~", " ")
    text = re.sub(r"(?<=\d)(?![eE][-+]?\d)(?=[A-Za-z])", "·", text)  # 12C is 12 times C, and 4B no billions
    text = re.sub(r"\\(?:text|textrm|mathrm|mathsf|operatorname)\{([^}]*)\}", r"\1", text)
    text = re.sub(r"[ \t]*\\(?:times|cdot)(?![A-Za-z])[ \t]*", "×", text)
    text = re.sub(r"\^\{([^{}]*)\}", r"^\1 ", text)
    text = re.sub(r"\\[A-Za-z]+|\\[\\;:! ]|[{}&]", " ", text)
    return f" {text} "


def _blank(match: re.Match[str]) -> str:
    """Stands for an exempt piece: joins nothing to its neighbours, and keeps the lines."""
    return " … " + "\n" * match.group().count("\n")


def _open_fence(piece: Piece) -> str:
    language = piece.info.lower()
    if language in CODE_FENCES:
        return " … "
    body = piece.content.rstrip("\n")
    if language.startswith("{"):  # a page's directive: its options are settings, but alt text is prose
        body = re.sub(r"^[ \t]*:(?!alt:)[\w-]+:.*$", "", body, flags=re.MULTILINE)
    first = "\n" if piece.block == "fence" else ""  # the line that opens it
    return first + body


def _open_code(content: str, sources: list[str]) -> str:
    code = content.strip()
    word_for_word = re.compile(rf"(?<!\w){re.escape(code)}(?!\w)")
    if re.search(r"[A-Za-z]", code) and any(word_for_word.search(source) for source in sources):
        return " … "  # it has a letter, so it is no bare number that also stands somewhere in the code
    return content


# ----------------------------------------------------------------------------------------------------
# Problems


def notebook_problems(nb: NotebookNode) -> list[str]:
    """One line for each number in a notebook's prose that none of its cells printed."""
    printed, code = printed_values(nb), _sources(nb)
    return [
        f"cell {i} ({cell.get('id', 'no id')}){part}: {_not_printed(number, printed, 'any cell')}"
        for i, cell in enumerate(nb.cells, start=1)
        for part, text in _prose_of(cell)
        for number in claims(text, code)
        if not any_matches(number, (value.number for value in printed))
    ]


def page_problems(text: str, notebooks: dict[str, NotebookNode]) -> list[str]:
    """The same for a .md page, against all notebooks together (name -> notebook)."""
    printed = [value for name, nb in notebooks.items() for value in printed_values(nb, f"{name}, ")]
    code = [source for nb in notebooks.values() for source in _sources(nb)]
    plain = prose(text, code)
    return [
        f"line {plain.count(chr(10), 0, number.start) + 1}: {_not_printed(number, printed, 'any notebook')}"
        for number in claims(text, code)
        if not any_matches(number, (value.number for value in printed))
    ]


def _sources(nb: NotebookNode) -> list[str]:
    return [cell.source for cell in nb.cells if cell.cell_type == "code"]


def _prose_of(cell: NotebookNode) -> Iterable[tuple[str, str]]:
    if cell.cell_type == "markdown":
        yield "", cell.source
    figure = cell.metadata.get("mystnb", {})
    yield ", alt text", str(figure.get("image", {}).get("alt", ""))
    yield ", caption", str(figure.get("figure", {}).get("caption", ""))


def _not_printed(number: Number, printed: list[Printed], whom: str) -> str:
    close = nearest(number, printed)
    hint = f"nearest: {close.number.text} in {close.where}" if close else "nothing comparable is printed"
    written = " ".join(number.text.split())
    return (
        f'"{written}" is not printed by {whom} ({hint}); '
        f'print it in a cell, correct the prose, or mark it "{MARK}"'
    )


# ----------------------------------------------------------------------------------------------------
# Files


def read_notebook(path: Path) -> NotebookNode:
    """A notebook as it is stored: nothing validated, nothing repaired. ValueError if it is none."""
    try:
        nb = v4.reads(path.read_text("utf8"))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"not a notebook ({error}); restore it with git") from error
    if nb.get("nbformat") != 4 or "cells" not in nb:
        raise ValueError(f"a notebook of format {nb.get('nbformat')}, not 4; open and save it in Jupyter")
    return nb


def book_files(root: Path, suffix: str) -> list[Path]:
    """The files of the book with this suffix, without built, static and hidden folders."""
    book = root / "book"
    return [
        path
        for path in sorted(book.rglob(f"*{suffix}"))
        if not any(part.startswith((".", "_")) for part in path.relative_to(book).parts)
    ]


def all_notebooks(root: Path) -> dict[str, NotebookNode]:
    """The book's notebooks by the name that messages give them."""
    found = {}
    for path in book_files(root, ".ipynb"):
        with contextlib.suppress(ValueError):  # a broken one is reported when it is checked itself
            found[shown(path, root)] = read_notebook(path)
    return found


def shown(path: Path, root: Path) -> str:
    """A path as the messages show it: from the root of the repository."""
    path = path.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Check that a cell printed each number of the book's prose.")
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks and .md pages (default: all of book/)")
    root = root.resolve()
    paths = parser.parse_args(argv).paths or book_files(root, ".ipynb") + book_files(root, ".md")
    notebooks = all_notebooks(root)
    if not notebooks:
        print("no notebooks under book/ yet, so no number has been printed: nothing to check")
        return 0
    status = 0
    for path in paths:
        try:
            if path.suffix == ".ipynb":
                found = notebook_problems(read_notebook(path))
            else:
                found = page_problems(path.read_text("utf8"), notebooks)
        except (OSError, ValueError) as error:
            found = [str(error)]
        for line in found:
            status = 1
            print(f"{shown(path, root)}: {line}")
    return status


if __name__ == "__main__":
    sys.exit(main())
