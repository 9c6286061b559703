"""The page at the site's root, which leads to the book's first page: with an icon, a title and a link."""

from __future__ import annotations

from html import escape
from pathlib import Path

from sphinx.application import Sphinx

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={target}">
<link rel="icon" href="_static/favicon.svg">
<title>{title}</title>
</head>
<body><main><h1><a href="{target}">{title}</a></h1></main></body>
</html>
"""


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write it before sphinx_external_toc does: its page names no icon, so a browser asks for one in vain."""
    if exception is None and app.builder.format == "html":
        page = PAGE.format(target=f"{app.config.root_doc}.html", title=escape(app.config.html_title))
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("build-finished", write, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
