"""Pictures of every page of the built site, for a person to look at, and the browser that takes them.

python scripts/screenshots.py OUTDIR [PAGE ...]    after `make book`; one PNG per page and mode
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
NO_PAGES = {"_static", "_sources", "_images", "_sphinx_design_static", "_downloads"}

MODES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "light",
        "is_mobile": True,
        "has_touch": True,
    },
}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever a page asks for, no name but the loopback's is looked up.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
# Typesetting is done when MathJax says so; a page without maths does not load it. The root page leads on.
SETTLED = """() => !document.querySelector('meta[http-equiv="refresh"]') && (
  window.MathJax?.startup?.promise?.then(() => true) ?? !document.querySelector("script[src*=mathjax]"))"""


def find_chromium() -> str | None:
    """The Chromium to use: $GPTLAB_CHROMIUM, or the first of the usual names on the PATH."""
    names = (os.environ.get("GPTLAB_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def find_pages(site: Path = SITE) -> list[str]:
    """Every page of a built site, as a path below it."""
    found = (path.relative_to(site) for path in site.rglob("*.html"))
    return sorted(path.as_posix() for path in found if path.parts[0] not in NO_PAGES)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page that is missing is reported by the browser."""


class QuietServer(http.server.ThreadingHTTPServer):
    """A server that does not mind a browser closing a connection half-way."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what is not the browser's doing."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serve(site: Path = SITE) -> Iterator[str]:
    """Serve a folder on the loopback, on a free port, for as long as the context lasts."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with QuietServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium, Debian's or the system's: playwright's own download is not needed."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        raise FileNotFoundError("no Chromium: apt-get install chromium, or set GPTLAB_CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def open_page(page: Page, url: str) -> None:
    """Go to a page and wait until its scripts and its maths are done."""
    page.goto(url, wait_until="load")
    page.wait_for_function(SETTLED, timeout=15_000)


def main(arguments: list[str] | None = None) -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description="Screenshots of every built page in light, dark and phone.")
    parser.add_argument("outdir", type=Path, metavar="OUTDIR")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as book/01-tokens.html; all if none")
    options = parser.parse_args(arguments)
    pages = options.pages or find_pages()
    if not pages:
        print(f"error: no pages under {SITE.relative_to(ROOT)}. Run: make book", file=sys.stderr)
        return 1
    options.outdir.mkdir(parents=True, exist_ok=True)
    with serve() as base, chromium() as browser:
        for mode, settings in MODES.items():
            with contextlib.closing(browser.new_context(**settings)) as context:
                page = context.new_page()
                for path in pages:
                    open_page(page, base + path)
                    name = path.removesuffix(".html").replace("/", "-")
                    picture = options.outdir / f"{name}-{mode}.png"
                    page.screenshot(path=picture, full_page=True, animations="disabled")
    print(f"{len(pages) * len(MODES)} pictures in {options.outdir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
