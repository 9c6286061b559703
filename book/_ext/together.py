"""What must not be parted at the end of a line: a formula and its full stop, GPT-2, a number and its unit.

A browser may break a line on either side of a typeset formula, and after any hyphen. In tables, which have to
fit on a phone, a long name in code may be broken where its parts meet.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

TAG = re.compile(r"(<[^>]*>)")
UNTOUCHED = {"code", "pre", "script", "style"}  # elements whose text is left alone
TEX = ('<span class="math', '<div class="math')
NAME = re.compile(r"\bGPT-\d\b")
UNIT = re.compile(r"(?<=\d) (?=%|(?:[KMGT]i?)?B\b)")

FORMULA = r'<span class="math notranslate nohighlight">[^<]*</span>'
CODE = r'<code class="docutils literal notranslate">(?:<span class="pre">[^<]{1,24}</span>)</code>'
PUNCTUATED = re.compile(rf"([(“]?)({FORMULA}|{CODE})([.,;:?)”’]*)")


TABLE = re.compile(r"<table\b.*?</table>", re.S)
NAMES = re.compile(r'(?<=<span class="pre">)[^<]*(?=</span></code>)')


def breakable(table: re.Match[str]) -> str:
    """A table in which long names may go on in the next line, after a full stop, a bracket or an underscore."""
    return NAMES.sub(lambda name: re.sub(r"(?<=\w{3})([._(])(?=\w{3})", r"\1<wbr>", name[0]), table[0])


def punctuated(found: re.Match[str]) -> str:
    """A formula, or a short piece of code, with the punctuation that touches it."""
    whole = found[0]
    return f'<span class="together">{whole}</span>' if found[1] or found[3] else whole


def in_text(body: str) -> str:
    """The names and units in the text of a page; tags, code and TeX stay as they are."""
    parts, depth = TAG.split(body), 0
    for i, part in enumerate(parts):
        if part.startswith("<") and i % 2:
            name = part.strip("</>").split(maxsplit=1)[0].lower()
            if name in UNTOUCHED and not part.endswith("/>"):
                depth += -1 if part.startswith("</") else 1
        elif depth == 0 and not (i and parts[i - 1].startswith(TEX)):
            part = UNIT.sub("\N{NO-BREAK SPACE}", part)
            parts[i] = NAME.sub(r'<span class="together">\g<0></span>', part)
    return "".join(parts)


def keep_together(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Change the body of one page."""
    if context.get("body"):
        body = PUNCTUATED.sub(punctuated, in_text(context["body"]))
        context["body"] = TABLE.sub(breakable, body)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("html-page-context", keep_together, priority=850)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
