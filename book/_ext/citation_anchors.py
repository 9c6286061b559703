"""Chapters link to one reference with plain Markdown: `[Vaswani et al., 2017](bibliography.md#vaswani2017)`.

The anchor is the reference's key in references.bib. The entries exist only once all pages are read, so that
MyST would not know their anchors. A key that does not exist still warns, and the build fails.
"""

from __future__ import annotations

from typing import cast

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinxcontrib.bibtex.domain import BibtexDomain


def register(app: Sphinx, env: BuildEnvironment) -> None:
    """Add every reference to the anchors that MyST knows of the page it stands on."""
    domain = cast(BibtexDomain, env.get_domain("cite"))
    for citation in domain.citations:
        anchors = env.metadata[citation.bibliography_key.docname].setdefault("myst_slugs", {})
        anchors[citation.key] = (0, citation.citation_id, citation.key)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, after the bibliography has found its entries."""
    app.connect("env-updated", register, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
