"""At the foot of every notebook's page: when it was last validated, and with what.

The facts come from the committed records in book/validated/, see scripts/validated.py. A record that does not
exist says "not yet"; a damaged one is a warning, which fails the build.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import validated

log = logging.getLogger(__name__)

STAMP = '<p class="validated">Last validated (every cell run again, every output compared). {states}</p>\n'


def stamp(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Add the line to one page, if it is made from a notebook."""
    if doctree is None or not context.get("body"):
        return
    root = Path(app.srcdir)
    page = Path(app.env.doc2path(pagename))
    if page.suffix != ".ipynb":
        return
    try:
        states = validated.states(page.relative_to(root).as_posix(), root)
    except ValueError as error:
        log.warning("%s", error, location=pagename)
        return
    lines = " ".join(f"{validated.DEVICES[device]}: {escape(text)}." for device, text in states.items())
    context["body"] += STAMP.format(states=lines)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("html-page-context", stamp)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
