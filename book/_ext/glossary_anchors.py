"""Terms of the glossary stand in plain Markdown, `<a id="term-token"></a>**Token.** …`; chapters link to them.

`[token](glossary.md#term-token)` leads to the term in the book and on GitHub, and opens the page elsewhere. MyST
knows no anchors but headings: here the id goes to the term's paragraph, and MyST learns of it, so that a link to a
term that does not exist is a warning, which fails the build.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ANCHOR = re.compile(r'<a id="(term-[a-z0-9-]+)">')


def move(app: Sphinx, doctree: nodes.document) -> None:
    """Give each term's id to its paragraph, in place of the empty link."""
    for opening in list(doctree.findall(nodes.raw)):
        found = ANCHOR.fullmatch(opening.astext())
        if found is None:
            continue
        paragraph = opening.parent
        closing = paragraph[paragraph.index(opening) + 1]
        paragraph["ids"].append(found[1])
        paragraph["classes"].append("term")
        paragraph.remove(opening)
        paragraph.remove(closing)


def register(app: Sphinx, env: BuildEnvironment) -> None:
    """Add every term to the anchors that MyST knows of the page it stands on."""
    for docname in env.found_docs:
        if not docname.endswith("glossary"):
            continue
        anchors = env.metadata[docname].setdefault("myst_slugs", {})
        for paragraph in env.get_doctree(docname).findall(nodes.paragraph):
            for name in paragraph["ids"]:
                anchors[name] = (0, name, paragraph.astext().partition(".")[0])


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("doctree-read", move)
    app.connect("env-updated", register)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
