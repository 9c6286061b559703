"""Link each term of the glossary where the book first uses it.

    python scripts/glossary.py check    one line for each problem; exit 1 if there is any
    python scripts/glossary.py link     insert the missing links, and nothing else; a second run changes nothing

The terms are those of book/glossary.md: `<a id="term-token"></a>**Token.** … [Chapter 1](01-tokens.ipynb).` PHRASES
says by which words a term is known in the chapters. Its first use is the first of these in book order, chapters
1 to 11 and then the reference notebooks. A term of OTHER_SENSES is an everyday word as well, and is looked for
only from the chapter that introduces it, from the word in italics on if there is one: `*piece*`.

Only running text counts: paragraphs, lists and quotations. Not code, maths, links, headings, tables, HTML, quoted
sentences, a line that is bold as a whole, captions, alt text, or the exercises: a term that stands only there is
not linked. Where two terms begin at the same place, the longer one is meant ("token id" is no use of "token").

`check` also finds a term that is used nowhere, a link to a term that does not exist, a page with more than MAX_LINKS
links, and a symbol of a chapter's table that the glossary lacks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from markdown_pieces import Piece, masked, pieces
from notebooks import dump, write
from prose_numbers import read_notebook

ROOT = Path(__file__).resolve().parents[1]
PAGE = "glossary.md"
MAX_LINKS = 25  # to the glossary, in one notebook

TERM = re.compile(
    r'^<a id="term-(?P<id>[a-z0-9-]+)"></a>\*\*(?P<name>[^*]+)\.\*\* (?P<text>.+)$', re.MULTILINE
)
CHAPTER = re.compile(r"\[Chapter \d+\]\((?P<file>[\w-]+\.ipynb)\)\.$")
LINK = re.compile(rf"(?<!!)\[(?P<text>[^\]]+)\]\({re.escape(PAGE)}#term-(?P<id>[a-z0-9-]+)\)")

# How the chapters say it, as regular expressions. Without an entry: the name, or the name and an s.
PHRASES = {
    "adam": "Adam|AdamW",
    "axis": "axis|axes",
    "batch": "batch(?:es)?",
    "bias": "bias(?:es)?",
    "bpe": "byte-pair encoding",
    "branch": "branch(?:es)?",
    "causal": "causal",
    "chunked-loss": "chunked loss|loss in pieces",
    "clipping": "clipping",
    "data-parallel": "data parallelism|distributed data parallel",
    "flop": "FLOPs?",
    "gib": "GiB",
    "greedy": "greedy|greedily",
    "head": "heads?",
    "held-out": "held-out|held out",
    "inference": "(?<!an )(?<!our )inference",  # not the conclusion
    "initialisation": "initialisation",
    "int8": "int8",
    "layer-norm": "layer normalisation|LayerNorms?",
    "lm-head": "the head|a head",
    "loss": "loss(?:es)?",
    "log-probability": "log-probabilit(?:y|ies)",
    "matrix-rank": "rank",
    "merge": "merg(?:e|es|ing)",
    "merge-rank": "rank",
    "mixed-precision": "mixed precision",
    "micro-batch": "micro-batch(?:es)?",
    "mlp": "multi-layer perceptron|MLPs?",
    "one-hot": "one-hot(?: vectors?)?",
    "optimizer": "optimi[sz]ers?",
    "output-projection": "output projection|the projection",
    "pre-ln": "Post-LN|Pre-LN",
    "query": "query|queries",
    "rank": "ranks?",
    "relu": "ReLU",
    "rope": "rotary position embedding|RoPE",
    "sixteen-byte-rule": "16-byte rule",
    "special-token": "special token|marker",
    "tensor": "tensors?",
    "top-k": "top-k",
    "top-p": "top-p|nucleus sampling",
    "training": "training",
    "utf-8": "UTF-8",
    "vocabulary": "vocabular(?:y|ies)",
    "weight-tying": "weight tying|tying|tied",
    "zero": "(?-i:ZeRO)",
}
# Terms that are everyday words, or have another meaning in an earlier chapter.
EVERYDAY = """
activation axis bias bit block branch checkpoint context feature gain generator head inference key lm-head mask
matrix-rank merge-rank moments peak piece position probe query rank rotation scale score target tensor value vector
weight window
"""
OTHER_SENSES = set(EVERYDAY.split())


@dataclass(frozen=True)
class Term:
    """One entry of the glossary."""

    id: str
    name: str
    chapter: str
    """The notebook that introduces it, such as 01-tokens.ipynb."""

    @property
    def pattern(self) -> str:
        """The words by which the chapters know it."""
        return PHRASES.get(self.id, re.escape(self.name[0].lower() + self.name[1:]) + "s?")


@dataclass(frozen=True)
class Use:
    """The first use of a term in the book."""

    notebook: str
    cell: int
    start: int
    end: int
    linked: bool


def terms_of(page: str) -> list[Term]:
    """The entries of the glossary.

    Raises:
        ValueError: an entry names no chapter, two have one id, or PHRASES knows a term that the page lacks.
    """
    terms = []
    for entry in TERM.finditer(page):
        chapter = CHAPTER.search(entry["text"])
        if chapter is None:
            raise ValueError(
                f"{entry['name']}: end the entry with its chapter, [Chapter 1](01-tokens.ipynb)."
            )
        terms.append(Term(entry["id"], entry["name"], chapter["file"]))
    ids = Counter(term.id for term in terms)
    if twice := [name for name, count in ids.items() if count > 1]:
        raise ValueError(f"two entries have the id term-{twice[0]}; rename one")
    if unknown := sorted({*PHRASES, *OTHER_SENSES} - set(ids)):
        raise ValueError(
            f"scripts/glossary.py speaks of {unknown[0]!r}, which the glossary has not; delete it there"
        )
    return terms


def in_book_order(book: Path) -> list[Path]:
    """The notebooks in which terms are looked for: the chapters, then the reference.

    The cheat sheet defines none. The page on PyTorch may be skipped, and a chapter must not rely on its links.
    """
    return sorted(
        path for path in book.glob("*.ipynb") if path.name not in {"cheat-sheet.ipynb", "pytorch.ipynb"}
    )


# ----------------------------------------------------------------------------------------------------
# Where a term may stand

NOT_TEXT = re.compile(
    r"^\s*\*\*[^*\n]+\*\*\s*$"  # a line that is bold as a whole
    r'|"[^"\n]*"',  # what somebody else says
    re.MULTILINE,
)


def blank(text: str) -> str:
    """The text with everything that is no running text replaced by as many zero bytes."""
    plain = masked(text, lambda piece: not is_running_text(piece))
    return NOT_TEXT.sub(lambda found: "\0" * len(found.group()), plain)


def is_running_text(piece: Piece) -> bool:
    """Whether a piece is neither code, maths nor a link, and not in a heading, a table or a block of HTML."""
    words = piece.kind in ("text", "escape", "entity")
    return words and not piece.linked and piece.block not in ("heading", "table", "html")


def links(text: str) -> Iterator[re.Match[str]]:
    """The links to terms that are links for readers, too, and not code."""
    openings = {piece.start for piece in pieces(text) if piece.kind == "opening"}
    return (found for found in LINK.finditer(text) if found.start() in openings)


def text_cells(nb: nbformat.NotebookNode) -> Iterator[int]:
    """The Markdown cells of a notebook, without the exercises and their solutions, but with the answers to guesses."""
    in_exercises = False
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "markdown":
            continue
        if heading := re.match(r"## (.+)", cell.source):
            in_exercises = heading[1].strip() == "Exercises"
        if not in_exercises and not cell.source.startswith("<details>"):
            yield i


def pattern_of(terms: list[Term]) -> re.Pattern[str]:
    """Finds any of the terms, each in a group of its own; of two that begin at one place, the longer one first."""
    words = sorted(
        ((phrase, i) for i, term in enumerate(terms) for phrase in split(term.pattern)),
        key=lambda word: -len(word[0]),
    )
    either = "|".join(f"(?P<t{i}_{n}>{phrase})" for n, (phrase, i) in enumerate(words))
    return re.compile(rf"(?<![\w-])(?:{either})(?![\w-]|\.\w)", re.IGNORECASE)


def split(pattern: str) -> list[str]:
    """The alternatives of a pattern, at its outermost bars."""
    return re.split(r"\|(?![^(]*\))", pattern)


def first_uses(terms: list[Term], notebooks: dict[str, nbformat.NotebookNode]) -> dict[str, Use]:
    """Each term's first use in book order, by its id. A link to a term is a use of it, whatever its words."""
    uses: dict[str, Use] = {}
    order = list(notebooks)
    for name, nb in notebooks.items():
        here = [
            term
            for term in terms
            if term.id not in OTHER_SENSES or order.index(term.chapter) <= order.index(name)
        ]
        found = list(all_uses(here, name, nb))
        for term in here:
            mine = [use for term_id, use in found if term_id == term.id]
            if term.id in OTHER_SENSES and term.chapter == name:
                defined = next((use for use in mine if in_italics(nb.cells[use.cell].source, use)), None)
                mine = [defined] if defined else mine
            if mine:
                uses.setdefault(term.id, mine[0])
    return uses


def all_uses(terms: list[Term], name: str, nb: nbformat.NotebookNode) -> Iterator[tuple[str, Use]]:
    """Every use of a term in one notebook, in order."""
    pattern = pattern_of(terms)
    for i in text_cells(nb):
        source = nb.cells[i].source
        found = [(link.start(), link.end(), link["id"], True) for link in links(source)]
        for match in pattern.finditer(blank(source)):
            group = match.lastgroup or ""
            found.append((match.start(), match.end(), terms[int(group[1:].split("_")[0])].id, False))
        for start, end, term_id, linked in sorted(found):
            yield term_id, Use(name, i, start, end, linked)


def in_italics(source: str, use: Use) -> bool:
    """Whether the words of a use, or its link's, stand alone between single asterisks."""
    if use.linked:
        return source.startswith("[*", use.start)
    around = source[max(0, use.start - 2) : use.start], source[use.end : use.end + 2]
    return around[0].endswith("*") and around[1].startswith("*") and "**" not in around


# ----------------------------------------------------------------------------------------------------
# check and link


def unlink(nb: nbformat.NotebookNode, terms: list[Term]) -> None:
    """Remove the links that `link` could have made, so that a term whose first use has moved is linked there."""
    words = {term.id: re.compile(rf"\*?(?:{term.pattern})\*?", re.IGNORECASE) for term in terms}
    for i in text_cells(nb):
        source = nb.cells[i].source
        for found in reversed(list(links(source))):  # the last first, so that the places before it stay
            if found["id"] in words and words[found["id"]].fullmatch(found["text"]):
                source = source[: found.start()] + found["text"] + source[found.end() :]
        nb.cells[i].source = source


def link(terms: list[Term], notebooks: dict[str, nbformat.NotebookNode]) -> None:
    """Link every term at its first use, in place."""
    for nb in notebooks.values():
        unlink(nb, terms)
    places = first_uses(terms, notebooks)
    # The last first, so that the places before it stay where they are.
    for term_id, use in sorted(places.items(), key=lambda place: -place[1].start):
        if use.linked:
            continue
        cell = notebooks[use.notebook].cells[use.cell]
        start, end = use.start, use.end
        if in_italics(cell.source, use):  # [*token*](…), as in_italics finds it again
            start, end = start - 1, end + 1
        text = cell.source[start:end]
        cell.source = f"{cell.source[:start]}[{text}]({PAGE}#term-{term_id}){cell.source[end:]}"


def symbols(table: str) -> Iterator[str]:
    """The symbols in the first column of the tables that begin with `in formulas` or `symbol`."""
    for rows in re.findall(
        r"^\| (?:in formulas|symbol) \|.*\n\|[-:| ]+\n((?:\|.*\n?)+)", table, re.MULTILINE
    ):
        for row in rows.splitlines():
            for symbol in re.findall(r"\$([^$]+)\$", row.split(" | ")[0]):
                if "+" not in symbol:  # else a formula
                    yield symbol.partition(" = ")[0].strip()


def problems(terms: list[Term], notebooks: dict[str, nbformat.NotebookNode], page: str) -> list[str]:
    """What is wrong, one line each."""
    found = []
    uses, known = first_uses(terms, notebooks), {term.id for term in terms}
    everything = "\n".join(
        cell.source for nb in notebooks.values() for cell in nb.cells if cell.cell_type == "markdown"
    )
    for term in terms:
        use = uses.get(term.id)
        if use is None:
            if not re.search(rf"(?<!\w)(?:{term.pattern})(?!\w)", everything, re.IGNORECASE):
                found.append(f"{term.name}: used in no chapter; delete it from {PAGE}, or add to PHRASES")
        elif not use.linked:
            words = notebooks[use.notebook].cells[use.cell].source[use.start : use.end]
            found.append(
                f"{use.notebook}: cell {use.cell + 1}: {words!r}, the first use of {term.name}, is not linked; "
                "run: python scripts/glossary.py link"
            )
    explained = set(symbols(page))
    for name, nb in notebooks.items():
        text = "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
        linked = [match["id"] for match in links(text)]
        found += [f"{name}: a link to term-{one}, which {PAGE} has not" for one in sorted({*linked} - known)]
        if len(linked) > MAX_LINKS:
            found.append(
                f"{name}: {len(linked)} links to {PAGE}, {MAX_LINKS} at most; let a term start later"
            )
        for symbol in symbols(text):
            if symbol not in explained:
                found.append(f"{name}: ${symbol}$ is in its table of symbols, and not in that of {PAGE}")
    return found


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Check the book's links to the glossary, or insert them."""
    parser = argparse.ArgumentParser(description="Link each term of the glossary at its first use.")
    parser.add_argument("mode", choices=["check", "link"])
    mode = parser.parse_args(argv).mode
    book = root / "book"
    page = (book / PAGE).read_text("utf8")
    terms = terms_of(page)
    notebooks = {path.name: read_notebook(path) for path in in_book_order(book)}
    if mode == "link":
        before = {name: dump(nb) for name, nb in notebooks.items()}
        link(terms, notebooks)
        for name, nb in notebooks.items():
            if dump(nb) != before[name]:
                write(book / name, dump(nb))
                print(f"book/{name}: stored")
    found = problems(terms, notebooks, page)
    for line in found:
        print(f"book/{line}" if ".ipynb: " in line else line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
