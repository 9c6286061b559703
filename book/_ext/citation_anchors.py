"""Chapters cite in plain Markdown, `[Vaswani et al., 2017](bibliography.md)`; the link leads to the entry.

The entry is the one in references.bib whose key is the link's first name and its year: vaswani2017.
A citation without an entry is a warning, which fails the build. `bibliography.md#vaswani2017` works as well.
"""

from __future__ import annotations

import re
import unicodedata
from typing import cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import NoUri
from sphinx.util import logging
from sphinxcontrib.bibtex.domain import BibtexDomain

log = logging.getLogger(__name__)


def key_of(text: str) -> str | None:
    """The key that a citation's text stands for, such as press2017 for "Press and Wolf (2017)"."""
    found = re.match(r"\W*([^\W\d_]+).*?\b((?:19|20)\d\d)\b", text, re.DOTALL)
    if found is None:
        return None
    letters = unicodedata.normalize("NFKD", found[1]).encode("ascii", "ignore").decode()
    return letters.lower() + found[2]


def register(app: Sphinx, env: BuildEnvironment) -> None:
    """Add every entry to the anchors that MyST knows of the page it stands on."""
    for citation in cast(BibtexDomain, env.get_domain("cite")).citations:
        anchors = env.metadata[citation.bibliography_key.docname].setdefault("myst_slugs", {})
        anchors[citation.key] = (0, citation.citation_id, citation.key)


def point(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turn a link to the bibliography into a link to the entry that its text names."""
    citations = cast(BibtexDomain, app.env.get_domain("cite")).citations
    anchors = {citation.key: citation.citation_id for citation in citations}
    try:
        pages = {
            app.builder.get_relative_uri(docname, citation.bibliography_key.docname) for citation in citations
        }
    except NoUri:  # a builder without links
        return
    for link in doctree.findall(nodes.reference):
        key = key_of(link.astext())
        if link.get("refuri") not in pages - {""} or key is None:
            continue
        if key in anchors:
            link["refuri"] += f"#{anchors[key]}"
        else:
            log.warning(
                "%r is cited, but references.bib has no entry with the key %r",
                link.astext(),
                key,
                location=link,
            )


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, after the bibliography has found its entries."""
    app.connect("env-updated", register, priority=900)
    app.connect("doctree-resolved", point)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
