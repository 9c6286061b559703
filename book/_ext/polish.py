"""Small corrections to the built pages that no option of the theme makes."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# A signature with one parameter a line is a <dl> without a <dt>: to a screen reader a list, and a broken one.
SIGNATURE = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>\n')

# Markdown tables must have a header. Where all its cells are empty, the table means to have none.
EMPTY_HEADER = re.compile(r"<thead>\s*<tr[^>]*>(?:\s*<th[^>]*>(?:<p>\s*</p>)?</th>)+\s*</tr>\s*</thead>\n?")


def signature_lines(found: re.Match[str]) -> str:
    """The same lines as plain text."""
    lines = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'


def polish(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Correct the body of one page."""
    body = context.get("body")
    if body:
        # A summary's label must begin with the text that is seen.
        body = body.replace('<summary aria-label="Toggle hidden content">', "<summary>")
        context["body"] = EMPTY_HEADER.sub("", SIGNATURE.sub(signature_lines, body))


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, after everything else that writes into a page."""
    app.connect("html-page-context", polish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
