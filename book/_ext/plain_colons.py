"""A colon in the docstring of a constant or a property is punctuation.

Napoleon reads "The four sizes: small to large" as a value of type "The four sizes". A comment in front, which
shows nowhere, keeps it from that line. Types come from the annotations.
"""

from __future__ import annotations

from sphinx.application import Sphinx


def shield(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Put a comment before the first line."""
    if what in {"attribute", "data", "property"}:
        lines[:0] = [".. the type is in the annotation", ""]


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, before napoleon."""
    app.connect("autodoc-process-docstring", shield, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
