"""The built site, read in a real browser: every page in light, in dark and on a phone.

`make book` builds it. The last tests prove that the checks can fail, on small pages with one fault each.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from screenshots import MODES, ROOT, SITE, chromium, find_chromium, find_pages, open_page, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REMEDY = "run: make book"
HEAVIEST = 2_000_000  # bytes of a page with its pictures, compressed; what all pages share aside
DENSEST = 2  # pixels of a picture for each that it is shown on: a sharp screen has two
PAGES = find_pages()

# The theme's own, outside the text: its buttons' labels, and a title that stands outside every landmark.
ALLOWED_RULES = {"label-content-name-mismatch", "region"}
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

# What the page itself can tell. Runs in the browser and returns a list of problems.
LOOK = r"""
([phone, densest]) => {
  const problems = [];
  const short = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 80));
  for (const bad of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
    problems.push("maths error: " + (bad.getAttribute("data-mjx-error") ?? short(bad.textContent)));
  for (const bad of document.querySelectorAll('mjx-mtext[style*="red"]'))
    problems.push("maths has an unknown command: " + short(bad.closest("mjx-container").textContent));
  for (const place of document.querySelectorAll(".math"))
    if (!place.querySelector("mjx-container"))
      problems.push("maths not typeset: " + short(place.textContent));
  const article = document.querySelector("article");
  if (article) {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (/\$\$|\\\(|\\\[/.test(text.data) && !text.parentElement.closest("pre, code, script, mjx-container"))
        problems.push("maths left as text: " + short(text.data));
    }
  }
  for (const image of document.images) {
    const inside = image.closest("article");
    const shown = image.getBoundingClientRect().width;
    if (inside && !phone && image.naturalWidth > densest * shown)
      problems.push(`picture of ${image.naturalWidth} px is shown much smaller: ` + image.getAttribute("src"));
    if (!image.hasAttribute("alt") || (inside && !image.alt.trim()))
      problems.push("image without alt text: " + image.getAttribute("src"));
  }
  const root = document.documentElement;
  if (phone && root.scrollWidth > root.clientWidth) {
    const wide = [...document.body.querySelectorAll("*")].filter(
      (element) => element.getBoundingClientRect().right > root.clientWidth + 1);
    const last = wide.at(-1) ?? root;
    const what = `<${last.tagName.toLowerCase()}> ${short(last.textContent)}`;
    problems.push(`wider than the screen by ${root.scrollWidth - root.clientWidth} px: ${what}`);
  }
  return problems;
}
"""
# Pictures of which a part is hidden, by the edge of the screen or of something around them.
CUT_PICTURES = r"""
() => [...document.querySelectorAll("article figure img")].filter((image) => {
  const { left, right } = image.getBoundingClientRect();
  if (left < -1 || right > document.documentElement.clientWidth + 1) return true;
  for (let around = image.parentElement; around; around = around.parentElement) {
    const edge = around.getBoundingClientRect();
    if (getComputedStyle(around).overflowX !== "visible" && (edge.left > left + 1 || edge.right < right - 1))
      return true;
  }
  return false;
}).map((image) => image.getAttribute("src"))
"""
# Whether the theme has turned dark; colours on their way arrive at once.
DARK = """
() => {
  for (const animation of document.getAnimations()) animation.cancel();
  return (document.documentElement.dataset.theme ?? "dark") === "dark" && !document.getAnimations().length;
}
"""
# Contrast is what takes time, and thousands of words share a few styles: one element stands for all that have
# the same colour, size, weight and backgrounds.
AXE = r"""
async ([tags, colours_only]) => {
  const seen = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    element.removeAttribute("data-style-sample");
    const texts = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    if (!texts.some((node) => node.data.trim())) continue;
    const own = getComputedStyle(element);
    let key = own.color + own.fontSize + own.fontWeight;
    for (let e = element; e; e = e.parentElement) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(e);
      if (backgroundColor !== "rgba(0, 0, 0, 0)" || backgroundImage !== "none" || opacity !== "1")
        key += "|" + backgroundColor + backgroundImage + opacity;
    }
    if (!seen.has(key)) element.setAttribute("data-style-sample", "");
    seen.add(key);
  }
  const options = { resultTypes: ["violations"], preload: false };
  const runs = [await axe.run({ include: [["[data-style-sample]"]] },
    { ...options, runOnly: { type: "rule", values: ["color-contrast"] } })];
  if (!colours_only)
    runs.push(await axe.run({ ...options, runOnly: tags, rules: { "color-contrast": { enabled: false } } }));
  return runs.flatMap((run) => run.violations).flatMap((rule) => rule.nodes.map((node) => ({
    rule: rule.id,
    html: node.html.slice(0, 120),
    inside: !!document.querySelector(node.target.flat()[0])?.closest("article"),
    why: (node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? rule.help,
  })));
}
"""


# --- what can be checked in the files -----------------------------------------------------------------------


class Anchors(HTMLParser):
    """The ids that a page offers and the addresses that it uses."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.used: list[str] = []
        self.pictures: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect from one tag."""
        values = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := values.get(key))}
        self.used += [value for key in ("href", "src") if (value := values.get(key)) is not None]
        source = values.get("src")
        if tag == "img" and source and not urlsplit(source).scheme:
            self.pictures.append(source)


@functools.cache
def anchors(file: Path) -> Anchors:
    """Parse a page once, however many others lead to it."""
    found = Anchors()
    found.feed(file.read_text(encoding="utf-8"))
    return found


def link_problems(site: Path, path: str) -> list[str]:
    """Addresses in one page that lead nowhere. Those of other sites are not visited."""
    page = site / path
    problems = []
    for address in anchors(page).used:
        parts = urlsplit(address)
        if "OWNER" in address:
            problems.append(f"leads to a repository without an address: {address}")
        if parts.scheme or parts.netloc:
            if parts.scheme not in {"http", "https", "mailto", "data"}:
                problems.append(f"unknown kind of link: {address}")
            continue
        if parts.path.startswith("/"):
            problems.append(f"starts at the root of the host, where the book is not: {address}")
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            problems.append(f"leads to no file: {address}")
        elif (
            parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in anchors(target).ids
        ):
            problems.append(f"leads to no such place in the page: {address}")
    return problems


def weight(site: Path, path: str) -> int:
    """The bytes of a page and of the pictures in it, each compressed if that makes it smaller."""
    page = site / path
    files = {page, *((page.parent / unquote(src)).resolve() for src in anchors(page).pictures)}
    return sum(min(len(data := file.read_bytes()), len(gzip.compress(data))) for file in files)


def stale(root: Path, site: Path) -> str | None:
    """Why the built site is not that of the sources, or None."""
    if not (site / "searchindex.js").is_file():
        return "the site is not built"
    for copies, sources in ((site / "_sources", root), (site / "_static", root / "book" / "_static")):
        for copy in copies.rglob("*"):
            source = sources / copy.relative_to(copies)
            if copy.is_file() and source.is_file() and source.read_bytes() != copy.read_bytes():
                return f"{source.relative_to(root).as_posix()} has changed since the site was built"
    for source in [*(root / "book").glob("*.md"), *(root / "book").glob("*.ipynb")]:
        if not (site / "_sources" / source.relative_to(root)).is_file():
            return f"{source.relative_to(root).as_posix()} is not in the built site"
    return None


# --- what needs a browser -----------------------------------------------------------------------------------


def missing_tools() -> str | None:
    """What to install before a browser can be used, or None."""
    if find_chromium() is None:
        return "no Chromium: apt-get install chromium, or set GPTLAB_CHROMIUM to its path"
    for module, package in (("playwright", "playwright"), ("axe_playwright_python", "axe-playwright-python")):
        if find_spec(module) is None:
            return f"no {package}: pip install -r requirements.txt"
    return None


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    if reason := missing_tools():
        pytest.skip(reason)
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    """The address of the built site."""
    with serve(SITE) as address:
        yield address


@functools.cache
def axe_script() -> str:
    """The source of axe-core, which the PyPI package axe-playwright-python carries."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8")


class Visitor:
    """A browser tab, and what it trips over on the page it is on."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.heard: list[str] = []
        self.base = ""
        page.on("request", self.on_request)
        page.on("response", self.on_response)
        page.on("requestfailed", self.on_failure)
        page.on("pageerror", lambda error: self.heard.append(f"script error: {error}"))
        page.on("console", self.on_console)

    def on_request(self, request: Any) -> None:
        """A book that works offline asks nobody else."""
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.heard.append(f"request leaves the machine: {request.url}")

    def on_failure(self, request: Any) -> None:
        """A request without an answer, unless the page moved on before it came."""
        if request.failure != "net::ERR_ABORTED":
            self.heard.append(f"request failed: {request.url} ({request.failure})")

    def on_response(self, response: Any) -> None:
        """A file that the page wants and the site lacks."""
        if response.status >= 400:
            self.heard.append(f"status {response.status}: {response.url}")

    def on_console(self, message: Any) -> None:
        """What the browser complains about."""
        if message.type in {"error", "warning"}:
            self.heard.append(f"console {message.type}: {message.text}")

    def open(self, base: str, path: str) -> None:
        """Open a page, forgetting what was heard on the last one."""
        from playwright.sync_api import TimeoutError as NotReady

        self.base = base
        self.heard.clear()
        try:
            open_page(self.page, base + path)
        except NotReady:
            self.heard.append(f"not ready after 15 seconds, scripts or maths are missing: {path}")

    def look(self, phone: bool = False) -> list[str]:
        """What is wrong with the page as it stands: maths, pictures, width."""
        return [str(problem) for problem in self.page.evaluate(LOOK, [phone, DENSEST])]

    def axe(self, colours_only: bool = False) -> list[str]:
        """What axe-core finds: WCAG A and AA, and good practice."""
        if not self.page.evaluate("() => Boolean(window.axe)"):
            self.page.evaluate(axe_script())
        found = self.page.evaluate(AXE, [AXE_TAGS, colours_only])
        return [
            f"axe {one['rule']}: {one['html']} ({one['why']})"
            for one in found
            if one["inside"] or one["rule"] not in ALLOWED_RULES
        ]

    def problems(self, base: str, path: str) -> list[str]:
        """Everything that is wrong with a page: loaded once, then read in light, in dark and on a phone."""
        self.page.set_viewport_size(MODES["light"]["viewport"])
        self.page.emulate_media(color_scheme="light")
        self.open(base, path)
        found = [*self.look(), *self.axe()]
        # The dark page is the light one in other colours, and follows the reader's system.
        self.page.emulate_media(color_scheme="dark")
        self.page.wait_for_function(DARK)
        found += [f"dark: {problem}" for problem in self.axe(colours_only=True)]
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(MODES["phone"]["viewport"])
        found += [f"phone: {problem}" for problem in self.look(phone=True) if problem not in found]
        return [*self.heard, *found]


@pytest.fixture(scope="session")
def visitor(browser: Browser) -> Iterator[Visitor]:
    """One tab for all pages."""
    with contextlib.closing(browser.new_context()) as context:
        yield Visitor(context.new_page())


# --- the book -----------------------------------------------------------------------------------------------


def test_site_is_built_from_these_sources() -> None:
    """Else the other tests would judge an old book, or none."""
    reason = stale(ROOT, SITE)
    assert reason is None, f"{reason}; {REMEDY}"
    assert PAGES, REMEDY


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere(path: str) -> None:
    """Every link, picture and script is there, and every anchor."""
    assert link_problems(SITE, path) == []


@pytest.mark.parametrize("path", PAGES)
def test_page_is_light(path: str) -> None:
    """A reader on a slow line need not wait for it."""
    assert weight(SITE, path) < HEAVIEST


@pytest.mark.parametrize("path", PAGES)
def test_page(visitor: Visitor, base: str, path: str) -> None:
    """Nothing that a reader would trip over, in light, in dark and on a phone."""
    assert visitor.problems(base, path) == []


def first_with_maths() -> str:
    """A page with formulas."""
    found = next((path for path in PAGES if 'class="math' in (SITE / path).read_text(encoding="utf-8")), None)
    assert found is not None, f"no page has a formula; {REMEDY}"
    return found


@pytest.mark.parametrize("mode", MODES)
def test_page_loads_in_each_mode(browser: Browser, base: str, mode: str) -> None:
    """The same when the page is opened on a dark screen, or on a phone that can be touched."""
    with contextlib.closing(browser.new_context(**MODES[mode])) as context:
        reader = Visitor(context.new_page())
        for path in ("book/index.html", first_with_maths()):
            reader.open(base, path)
            assert [*reader.heard, *reader.look(phone=mode == "phone")] == []


def test_pages_work_from_the_disk(browser: Browser) -> None:
    """A copy of the site opens with a double click, maths included."""
    with contextlib.closing(browser.new_context()) as context:
        reader = Visitor(context.new_page())
        for path in ("book/index.html", first_with_maths()):
            reader.open(f"{SITE.as_uri()}/", path)
            assert [*reader.heard, *reader.look()] == []
        assert reader.page.locator("mjx-container").count() > 0


def test_pages_are_readable_without_scripts(browser: Browser, base: str) -> None:
    """The text stands there before any script runs."""
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto(f"{base}book/index.html")
        assert page.locator("article h1").is_visible()
        assert page.locator("article p").first.is_visible()
        page.goto(base + chapters()[0])
        fold = page.locator("article details").first
        assert fold.evaluate("(fold) => getComputedStyle(fold).backgroundColor") != "rgba(0, 0, 0, 0)"


def test_a_keyboard_reaches_the_text_at_once(visitor: Visitor, base: str) -> None:
    """The first Tab offers to skip the navigation, and the next one after it is inside the text."""
    visitor.page.set_viewport_size(MODES["light"]["viewport"])
    visitor.open(base, first_with_maths())
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.textContent.trim()") == "Skip to main content"
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.querySelector('#main-content').contains(document.activeElement)")


def test_a_keyboard_opens_a_fold(visitor: Visitor, base: str) -> None:
    """What is folded away is a control of its own, not a picture of one."""
    visitor.open(base, first_with_maths())
    summary = visitor.page.locator("article details summary").first
    summary.focus()
    assert not summary.evaluate("(element) => element.parentElement.open")
    visitor.page.keyboard.press("Enter")
    assert summary.evaluate("(element) => element.parentElement.open")


def chapters() -> list[str]:
    """The pages of the chapters."""
    found = [path for path in PAGES if re.fullmatch(r"book/\d\d-.*\.html", path)]
    assert found, f"no chapter; {REMEDY}"
    return found


@pytest.mark.parametrize("path", chapters())
def test_a_formula_in_the_text_has_no_scroll_bar(visitor: Visitor, base: str, path: str) -> None:
    """The bars are hidden in a browser without a window: what is measured is whether one is called for."""
    visitor.page.set_viewport_size(MODES["light"]["viewport"])
    visitor.open(base, path)
    scrolling = visitor.page.evaluate(
        """() => [...document.querySelectorAll("article .math, article mjx-container")].filter((element) => (
             getComputedStyle(element).overflowX !== "visible" && element.scrollWidth > element.clientWidth
           )).map((element) => element.textContent)"""
    )
    assert scrolling == []


def test_a_formula_is_read_aloud_and_is_no_stop_for_the_tab_key(visitor: Visitor, base: str) -> None:
    """Each has its MathML; a page has more than a hundred of them, and none is a control."""
    visitor.open(base, first_with_maths())
    formulas = visitor.page.locator("article mjx-container")
    assert formulas.count() > 0
    assert (
        formulas.count() == visitor.page.locator("article mjx-container > mjx-assistive-mml > math").count()
    )
    assert visitor.page.locator("article mjx-container[tabindex='0']").count() == 0


@pytest.mark.parametrize("path", chapters())
def test_a_formula_and_its_full_stop_stand_in_one_line(visitor: Visitor, base: str, path: str) -> None:
    """On a phone, where lines are short: nothing that closes a sentence begins a line."""
    visitor.page.set_viewport_size(MODES["phone"]["viewport"])
    visitor.open(base, path)
    parted = visitor.page.evaluate(
        """() => [...document.querySelectorAll("article span.math")].filter((formula) => {
             const after = formula.nextSibling;
             if (after?.nodeType !== Node.TEXT_NODE || !/^[.,;:?)]/.test(after.data)) return false;
             const range = document.createRange();
             range.setStart(after, 0);
             range.setEnd(after, 1);
             return range.getBoundingClientRect().left < formula.getBoundingClientRect().left;
           }).map((formula) => formula.parentElement.textContent.slice(0, 80))"""
    )
    assert parted == []


@pytest.mark.parametrize("path", chapters())
def test_a_phone_shows_tables_and_figures_whole(visitor: Visitor, base: str, path: str) -> None:
    """Tables fit, and figures take the width of the screen, where ten points are nine pixels."""
    visitor.page.set_viewport_size(MODES["phone"]["viewport"])
    visitor.open(base, path)
    cut = visitor.page.evaluate(
        """() => [...document.querySelectorAll("article .pst-scrollable-table-container")].filter(
             (table) => table.scrollWidth > table.clientWidth + 1).map((table) => table.textContent.slice(0, 80))"""
    )
    assert cut == []
    widths = visitor.page.evaluate(
        """() => [...document.querySelectorAll("article .cell > .cell_output figure img")].map(
             (image) => image.getBoundingClientRect().width)"""
    )
    assert widths
    assert min(widths) >= MODES["phone"]["viewport"]["width"]
    visitor.page.evaluate(
        "() => document.querySelectorAll('article details').forEach((fold) => fold.open = true)"
    )
    assert visitor.page.evaluate(CUT_PICTURES) == []


@pytest.mark.parametrize("path", chapters())
def test_what_is_folded_says_what_it_is(path: str) -> None:
    """Not that it is the source of a code cell."""
    labels = re.findall(r'<p class="collapsed[^>]*>(.*?)</p>', (SITE / path).read_text(encoding="utf-8"))
    assert labels
    assert set(labels) <= {
        f"Show the {what}"
        for what in (
            "imports", "code", "code of this figure", "output", "figure", "code and its output",
            "code and the figure",
        )
    }  # fmt: skip


def test_the_keyboard_can_be_followed(browser: Browser, base: str) -> None:
    """Each of the first hundred stops of the Tab key, in light and in dark, has an outline."""
    for mode in ("light", "dark"):
        with contextlib.closing(browser.new_context(**MODES[mode])) as context:
            page = context.new_page()
            open_page(page, base + first_with_maths())
            for _ in range(100):
                page.keyboard.press("Tab")
                unseen = page.evaluate(
                    """() => {
                      const element = document.activeElement;
                      const { outlineStyle, outlineWidth } = getComputedStyle(element);
                      return outlineStyle === "none" || parseFloat(outlineWidth) < 2 ? element.outerHTML : "";
                    }"""
                )
                assert unseen == ""


def test_an_exercise_is_as_dark_as_the_page(browser: Browser, base: str) -> None:
    """The box that a check prints has no card of its own."""
    with contextlib.closing(browser.new_context(**MODES["dark"])) as context:
        page = context.new_page()
        open_page(page, base + chapters()[0])
        boxes = page.locator("article .cell_output .text_html:not(:has(table))")
        assert boxes.count() > 0
        assert boxes.first.evaluate("(box) => getComputedStyle(box).backgroundColor") == "rgba(0, 0, 0, 0)"


def test_paper_shows_outputs_and_solutions_and_leaves_out_the_code_of_figures(
    browser: Browser, base: str
) -> None:
    """On paper nothing can be opened."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        open_page(page, f"{base}book/03-attention.html")
        page.emulate_media(media="print")
        folded = page.locator("article details")
        assert folded.count() > 10
        for fold in folded.all():
            inside = fold.locator("pre, img").first
            code_of_output = fold.evaluate("(fold) => Boolean(fold.matches('.tag_hide-input .above-input'))")
            assert inside.is_visible() != code_of_output, fold.inner_html()[:200]


def test_search_finds_a_chapter(visitor: Visitor, base: str) -> None:
    """The search page, asked for a word of a chapter's title, leads to that chapter."""
    path = next((page for page in PAGES if page.startswith("book/0")), "")
    assert path, f"no chapter; {REMEDY}"
    visitor.open(base, path)
    title = visitor.page.locator("article h1").first.inner_text()
    word = max(re.findall(r"[A-Za-z]+", title), key=len)
    visitor.open(base, f"search.html?q={word}")
    visitor.page.locator(f"#search-results a[href*='{path}']").first.wait_for(timeout=10_000)
    assert visitor.heard == []


def sheets(page: Page, paper: str) -> int:
    """The pages of the PDF that the browser prints."""
    return len(re.findall(rb"/Type\s*/Page\b", page.pdf(format=paper)))


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_cheat_sheet_prints_on_one_sheet(browser: Browser, base: str, paper: str) -> None:
    """With all that is on it; and the glossary on several, so that pages are really counted."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        open_page(page, f"{base}book/cheat-sheet.html")
        page.emulate_media(media="print")
        parts = page.locator("#cheat-sheet :is(table, figure img, ol)")
        assert parts.count() == 7
        assert all(part.is_visible() for part in parts.all())
        assert sheets(page, paper) == 1
        open_page(page, f"{base}book/glossary.html")
        assert sheets(page, paper) > 1


def test_a_link_to_a_term_stops_at_the_term(browser: Browser, base: str) -> None:
    """The term is in view, and marked."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        open_page(page, f"{base}book/glossary.html#term-residual-stream")
        assert page.locator("p.term:target").inner_text().startswith("Residual stream.")
        assert page.evaluate(
            """() => {
              const box = document.querySelector(":target").getBoundingClientRect();
              return box.top >= 0 && box.bottom <= innerHeight;
            }"""
        )


# --- the checks can fail ------------------------------------------------------------------------------------

GOOD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Good</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
</head><body><main><article><h1>Good</h1><p id="here">Text. <a href="good.html#here">A link</a>.</p>
</article></main></body></html>"""


def maths(tex: str) -> str:
    """A formula, and what typesets it."""
    return rf'<script src="mathjax/tex-chtml-full.js"></script><p class="math">\({tex}\)</p>'


def spoil(site: Path, fault: str) -> str:
    """Write a page like the good one with something added to its text; return its name."""
    (site / "bad.html").write_text(GOOD.replace("</article>", f"{fault}</article>"), encoding="utf-8")
    return "bad.html"


@pytest.fixture
def small_site(tmp_path: Path) -> Path:
    """A site of one page without fault, with the book's MathJax."""
    (tmp_path / "good.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "mathjax").symlink_to(SITE / "_static" / "mathjax")
    return tmp_path


def test_a_good_page_has_no_problems(visitor: Visitor, small_site: Path) -> None:
    """So that what the faults add is what is reported."""
    path = spoil(small_site, maths(r"\frac{q k^\top}{\sqrt{D}}"))
    with serve(small_site) as base:
        assert link_problems(small_site, "good.html") == []
        assert visitor.problems(base, "good.html") == []
        assert visitor.problems(base, path) == []


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ('<div style="width: 700px">wide</div>', "phone: wider than the screen by"),
        ('<img src="https://example.org/x.png" alt="x">', "request leaves the machine: https://example.org/"),
        ('<img src="missing.png" alt="x">', "status 404"),
        ('<img src="data:,">', "image without alt text"),
        ("<script>console.warn('careful')</script>", "console warning: careful"),
        ("<script>undefined.x</script>", "script error"),
        (maths(r"\frac{1}"), "maths error"),
        (maths(r"\nosuchcommand"), "maths has an unknown command"),
        ('<p class="math">x</p>', "maths not typeset"),
        ("<p>so $$x = 1$$ is left</p>", "maths left as text"),
        (
            '<img alt="A blank." src="data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 width=%22900%22 '
            'height=%229%22/%3E" width="300">',
            "picture of 900 px is shown much smaller",
        ),
        ('<p style="color: #aaa">pale</p>', "axe color-contrast"),
        (
            "<style>@media (prefers-color-scheme: dark) {body {background: #111} p {color: #222}}</style>",
            "dark: axe color-contrast",
        ),
        ('<a href="good.html"></a>', "axe link-name"),
    ],
)
def test_a_fault_is_reported(visitor: Visitor, small_site: Path, fault: str, reported: str) -> None:
    """One page for each kind of problem."""
    path = spoil(small_site, fault)
    with serve(small_site) as base:
        found = visitor.problems(base, path)
    assert any(problem.startswith(reported) for problem in found), found


def test_the_weight_of_a_page_is_that_of_its_pictures_too(small_site: Path) -> None:
    """Noise, which nothing compresses; the same picture twice is fetched once."""
    bare = weight(small_site, "good.html")
    (small_site / "noise.png").write_bytes(random.Random(0).randbytes(3_000))
    path = spoil(small_site, '<img alt="Noise." src="noise.png"><img alt="Noise." src="noise.png">')
    assert 3_000 <= weight(small_site, path) - bare < 3_100


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ('<a href="gone.html">x</a>', "leads to no file: gone.html"),
        ('<a href="good.html#nowhere">x</a>', "leads to no such place in the page: good.html#nowhere"),
        ('<a href="#nowhere">x</a>', "leads to no such place in the page: #nowhere"),
        ('<a href="/good.html">x</a>', "starts at the root of the host"),
        ('<a href="file:///x.html">x</a>', "unknown kind of link"),
        ('<a href="https://github.com/OWNER/gptlab">x</a>', "leads to a repository without an address"),
    ],
)
def test_a_dead_link_is_reported(small_site: Path, fault: str, reported: str) -> None:
    """One page for each kind of dead link."""
    found = link_problems(small_site, spoil(small_site, fault))
    assert any(problem.startswith(reported) for problem in found), found


def test_a_stale_site_is_reported(tmp_path: Path) -> None:
    """A site that is missing, and one whose sources have changed or grown."""
    site = tmp_path / "_build" / "html"
    assert stale(tmp_path, site) == "the site is not built"
    for folder in (site / "_sources" / "book", site / "_static", tmp_path / "book" / "_static"):
        folder.mkdir(parents=True)
    (site / "searchindex.js").touch()
    for place in (tmp_path / "book", site / "_sources" / "book"):
        (place / "page.md").write_text("# A", encoding="utf-8")
    for place in (tmp_path / "book" / "_static", site / "_static"):
        (place / "course.css").write_text("p {}", encoding="utf-8")
    assert stale(tmp_path, site) is None
    (tmp_path / "book" / "_static" / "course.css").write_text("p { color: red }", encoding="utf-8")
    assert stale(tmp_path, site) == "book/_static/course.css has changed since the site was built"
    (tmp_path / "book" / "page.md").write_text("# B", encoding="utf-8")
    assert stale(tmp_path, site) == "book/page.md has changed since the site was built"
    (site / "_sources" / "book" / "page.md").write_text("# B", encoding="utf-8")
    (site / "_static" / "course.css").write_text("p { color: red }", encoding="utf-8")
    (tmp_path / "book" / "new.md").write_text("# C", encoding="utf-8")
    assert stale(tmp_path, site) == "book/new.md is not in the built site"
