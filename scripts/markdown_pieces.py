"""What each stretch of a Markdown text is, as a CommonMark parser reads it: the one reader of all checks of the book.

    >>> [(piece.kind, piece.source) for piece in pieces("a `b` $c$")]
    [('text', 'a '), ('code', '`b`'), ('text', ' '), ('maths', '$c$')]

The pieces follow each other without a gap: joined, they are the text again. A text cannot hide from a check behind
two stray backticks, or a fence inside a fence, because the parser decides where code begins and ends, as it does for
readers.

The dialect is what the book, Colab, JupyterLab and GitHub have in common: CommonMark with tables, and mathematics
between dollars. Roles, directives and footnotes, which only some of them know, are text and code here.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.common.html_re import HTML_TAG_RE
from markdown_it.rules_inline import StateInline, autolink, backtick, entity, escape, html_inline, image, link
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.dollarmath.index import math_inline_dollar
from mdit_py_plugins.front_matter import front_matter_plugin

Kind = Literal[
    "text",
    "escape",  # \*
    "entity",  # &nbsp;
    "code",  # in a line: `x`
    "fence",  # a block of code, fenced or indented
    "maths",  # $x$, $$x$$
    "tag",
    "comment",  # <!-- x -->
    "opening",  # the [ of a link, or the ![ of an image, before its words
    "target",  # what stands behind them: ](page.md)
    "address",  # <https://example.org>
    "front matter",
]
Rule = Callable[[StateInline, bool], bool]


@dataclass(frozen=True)
class Piece:
    """A stretch of a Markdown text that is one thing."""

    kind: Kind
    start: int
    source: str
    content: str = ""
    """What is inside, for code, fences and maths: without ticks, dollars, and the marks of a quotation."""
    info: str = ""
    """What stands behind the ticks that open a fence, such as its language."""
    block: str = ""
    """The kind of the lines that it is in: paragraph, heading, table or html; else nothing."""
    linked: bool = False
    """Whether it belongs to a link or an image."""

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + len(self.source)


@dataclass(frozen=True)
class _Seen:
    """What an inline rule has recognised, between two places of the text of its paragraph."""

    kind: Kind
    start: int
    end: int
    content: str = ""


def _watched(name: str, rule: Rule) -> Rule:
    """The same inline rule, which also notes what it recognises in ``env["seen"]``."""

    def watch(state: StateInline, silent: bool) -> bool:
        if silent:
            return rule(state, silent)
        start, tokens, base = state.pos, len(state.tokens), state.env["base"]
        label, label_end = start + (2 if name == "image" else 1), 0
        if name in ("link", "image") and state.src[label - 1 : label] == "[":
            label_end = state.md.helpers.parseLinkLabel(state, label - 1, name == "link")
        if name == "image":  # the words of an image are parsed as a text of their own
            state.env["base"] = base + label
        found = rule(state, silent)
        state.env["base"] = base
        if found:
            kind, content = _recognised(name, state, start, tokens)
            ends: list[tuple[Kind, int, int]]
            if label_end:
                ends = [("opening", start, label), ("target", label_end, state.pos)]
                state.env["linked"].append((base + start, base + state.pos))
            else:
                ends = [(kind, start, state.pos)]
            state.env["seen"] += [_Seen(each, base + a, base + b, content) for each, a, b in ends]
        return found

    return watch


def _recognised(name: str, state: StateInline, start: int, tokens: int) -> tuple[Kind, str]:
    source, last = state.src[start : state.pos], state.tokens[-1] if len(state.tokens) > tokens else None
    if name == "backticks":
        return ("code", last.content) if last and last.type == "code_inline" else ("text", "")
    if name == "math_inline":
        return "maths", last.content if last else ""
    if name == "escape":
        return "escape" if source[1:] and source[1] in string.punctuation else "text", ""
    if name == "html_inline":
        return "comment" if source.startswith("<!--") else "tag", ""
    return "address" if name == "autolink" else "entity", ""


def _parser() -> MarkdownIt:
    md = MarkdownIt("commonmark").enable("table").use(front_matter_plugin)
    md.use(dollarmath_plugin, allow_labels=False, double_inline=True)
    rules: dict[str, Rule] = {
        "escape": escape,
        "backticks": backtick,
        "math_inline": math_inline_dollar(allow_double=True),
        "link": link,
        "image": image,
        "autolink": autolink,
        "html_inline": html_inline,
        "entity": entity,
    }
    for name, rule in rules.items():
        md.inline.ruler.at(name, _watched(name, rule))
    return md


_PARSER = _parser()
_BLOCKS = {
    "heading_open": "heading",
    "table_open": "table",
    "paragraph_open": "paragraph",
    "html_block": "html",
}


@lru_cache(2048)  # several checks read the same texts
def pieces(text: str) -> tuple[Piece, ...]:
    """All pieces of a Markdown text, in order."""
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    tokens: list[Token] = []
    env: dict[str, Any] = {}
    _PARSER.block.parse(text, _PARSER, env, tokens)
    blocks = [""] * len(lines)
    found: list[Piece] = []
    cursor = 0  # behind the last cell of a table
    for token in tokens:
        if token.map is None:
            continue
        first, last = token.map
        if token.type in _BLOCKS:
            blocks[first:last] = [_BLOCKS[token.type]] * (last - first)
        start, end = starts[first], min(starts[last], len(text) + 1) - 1
        if token.type == "inline":
            places = _places(text, starts, token, blocks[first], max(cursor, start))
            cursor = places[-1]
            found += _inline(text, token.content, places, blocks[first], env)
        elif token.type == "html_block":
            found += _html(text[start:end], start)
        elif kind := _kind_of_block(token):
            source = text[start:end]
            found.append(Piece(kind, start, source, token.content, token.info.strip(), token.type))
    return tuple(_filled(text, found, starts, blocks, env.get("ranges", [])))


def _kind_of_block(token: Token) -> Kind | None:
    kinds: dict[str, Kind] = {
        "fence": "fence",
        "code_block": "fence",
        "math_block": "maths",
        "front_matter": "front matter",
    }
    return kinds.get(token.type)


def _places(text: str, starts: list[int], token: Token, block: str, cursor: int) -> list[int]:
    """Where in the text each character stands of a paragraph, a heading or a cell, which has lost indents and marks."""
    assert token.map is not None
    first = token.map[0]
    places = []
    for number, line in enumerate(token.content.split("\n"), start=first):
        words = line.strip()
        if block == "table":
            place = cursor + len(re.match(r"[\s|>]*", text[cursor:])[0]) if words else cursor  # type: ignore[index]
        else:
            place = text.rindex(words, starts[number], starts[number + 1])
            place -= len(line) - len(line.lstrip())
        for character in line:
            while text[place] == "\\" and character != "\\":  # a cell has lost the one before its |
                place += 1
            places.append(place)
            place += 1
        places.append(place)  # the end of the line
    return places


def _inline(text: str, content: str, places: list[int], block: str, env: dict[str, Any]) -> Iterator[Piece]:
    env |= {"seen": [], "linked": [], "base": 0}
    _PARSER.inline.parse(content, _PARSER, env, [])
    env.setdefault("ranges", []).extend((places[a], places[b - 1] + 1) for a, b in env["linked"])
    for seen in env["seen"]:
        if seen.kind != "text":
            start, end = places[seen.start], places[seen.end - 1] + 1
            yield Piece(seen.kind, start, text[start:end], seen.content, block=block)


def _html(source: str, start: int) -> Iterator[Piece]:
    """The tags and comments of a block of HTML. What stands between them is text."""
    place = 0
    while (place := source.find("<", place)) >= 0:
        comment = re.match(r"<!--.*?(?:-->|\Z)", source[place:], re.DOTALL)
        if found := comment or HTML_TAG_RE.match(source[place:]):
            yield Piece("comment" if comment else "tag", start + place, found[0], block="html")
        place += len(found[0]) if found else 1


def _filled(
    text: str, found: list[Piece], starts: list[int], blocks: list[str], ranges: list[tuple[int, int]]
) -> Iterator[Piece]:
    """The pieces, and between them the text, line by line."""

    def linked(place: int) -> bool:
        return any(start <= place < end for start, end in ranges)

    def plain(start: int, end: int) -> Iterator[Piece]:
        while start < end:
            line = bisect_right(starts, start) - 1
            here = text[start : min(end, starts[line + 1])]
            yield Piece("text", start, here, block=blocks[line], linked=linked(start))
            start += len(here)

    place = 0
    for piece in sorted(found, key=lambda piece: piece.start):
        yield from plain(place, piece.start)
        in_link = linked(piece.start)
        yield Piece(piece.kind, piece.start, piece.source, piece.content, piece.info, piece.block, in_link)
        place = piece.end
    yield from plain(place, len(text))


def masked(text: str, hide: Callable[[Piece], bool]) -> str:
    """The text with zero bytes for the chosen pieces. Lines stay, and ticks: a role is a name before code."""
    return "".join(
        re.sub(r"[^\n`]", "\0", piece.source) if hide(piece) else piece.source for piece in pieces(text)
    )
