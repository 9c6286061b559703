"""Execute, normalise or check the stored state of the book's notebooks.

    python scripts/notebooks.py run   [PATH ...]   execute from a fresh kernel, store, then check
    python scripts/notebooks.py norm  [PATH ...]   bring into normal form, after an edit that changed no code
    python scripts/notebooks.py check [PATH ...]   one line for each problem; exit 1 if there is any

Without PATH: every notebook under book/. `check` then also looks at the numbers in the .md pages, see
prose_numbers.py.

nbval executes every notebook and compares the text that it prints with the text that is stored. It passes
silently over cells that were never executed, altered images, and figures gone stale after an edit. `check`
covers those. It reads files only, starts no kernel, and is done in seconds.

Cells are counted from 1, Markdown cells included. (nbval counts code cells only, from 0.)
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import ipykernel.kernelspec
import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from markdown_pieces import masked, pieces
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError
from nbformat import NotebookNode
from prose_numbers import all_notebooks, book_files, notebook_problems, page_problems, read_notebook, shown
from repository import MARKER as COLAB

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300  # seconds for one cell, as under nbval

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "name": "python",
        "pygments_lexer": "ipython3",
        "file_extension": ".py",
        "mimetype": "text/x-python",
    },
}
CELL_METADATA = {"tags", "mystnb"}
TAGS = {"hide-input", "hide-output", "hide-cell", "remove-cell", "remove-input", "remove-output"} | {
    "raises-exception"
}
MIMES = {"text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/svg+xml"}
MAX_LINES = 30  # of a code cell
MAX_COLUMNS = 76  # of a line of code that is shown: what the page holds without scrolling sideways
MAX_PNG, MAX_WIDTH = 150_000, 1600  # bytes, pixels
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}  # code that a reader need not see
ANSWER = '<details class="answer"><summary><b>Open when you have guessed</b></summary>\n\n'

# The code outside the notebook that decides what a figure shows.
DRAWING = ("gptlab/config.py", "gptlab/ledger.py", "gptlab/memory/*.py", "gptlab/plots/**/*.py")

STALE = {
    "code": "code was edited after its outputs were stored; run: make notebooks",
    "drawing": "a module that draws (" + ", ".join(DRAWING) + ") was edited after the figures were stored; "
    "run: make notebooks, and look at the figures",
    "images": "a stored image is not the one that the code drew; run: make notebooks",
}


# ----------------------------------------------------------------------------------------------------
# What the outputs were stored from


def digests(nb: NotebookNode, root: Path) -> dict[str, str]:
    """Short hashes of all that a stored figure depends on, and of the stored images themselves.

    Tags are left out: they decide how a cell is shown, and `check` itself compares raises-exception with what
    the cell stores. The Colab cell is left out: setting the repository's address rewrites it.
    """
    code = [cell.source for cell in code_cells(nb) if not cell.source.startswith(COLAB)]
    images = [
        as_text(output.data[mime])
        for cell in code_cells(nb)
        for output in cell.outputs
        for mime in sorted(output.get("data", {}))
        if mime.startswith("image/")
    ]
    modules = sorted(path for pattern in DRAWING for path in root.glob(pattern))
    drawing = (
        [path.read_text("utf8") for path in modules] if images else []
    )  # without figures, none goes stale
    return {"code": short_hash(code), "drawing": short_hash(drawing), "images": short_hash(images)}


def short_hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def as_text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


# ----------------------------------------------------------------------------------------------------
# Run


class ThisPython(AsyncKernelManager):
    """Starts kernels of the Python that runs this script, whatever other kernels are registered."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(
            resource_dir=ipykernel.kernelspec.RESOURCES, **ipykernel.kernelspec.get_kernel_dict()
        )


def execute(nb: NotebookNode, folder: Path) -> str | None:
    """Execute in a fresh kernel, in place; None, or what went wrong in which cell."""
    for cell in code_cells(nb):
        cell.outputs, cell.execution_count = [], None
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as under nbval: sums round alike
    environment.pop("MPLBACKEND", None)  # the kernel's own backend stores the figures
    started: list[int] = []
    client = NotebookClient(
        nb,
        timeout=TIMEOUT,
        kernel_manager_class=ThisPython,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=lambda cell, cell_index: started.append(cell_index),
    )
    try:
        # As under nbval: the kernel process's own log goes nowhere; what cells write to stderr is stored.
        # What a chapter shows must not depend on who runs it: exercises are checked with an empty record.
        with tempfile.TemporaryDirectory() as home:
            client.execute(env=environment | {"GPTLAB_HOME": home}, stderr=subprocess.DEVNULL)
    except CellExecutionError as error:
        reason = f"{error.ename}: {error.evalue}"
    except (CellControlSignal, RuntimeError) as error:  # too slow, dead, or not started
        reason = first_line(str(error)) or type(error).__name__
    else:
        return None
    where = name_of(nb, started[-1]) if started else "kernel"
    source = first_line(nb.cells[started[-1]].source) if started else ""
    return f"{where}: failed with {reason}; the cell begins: {source}"


def name_of(nb: NotebookNode, index: int) -> str:
    return f"cell {index + 1} ({nb.cells[index].get('id', 'no id')})"


def first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


# ----------------------------------------------------------------------------------------------------
# Normal form


def normalise(nb: NotebookNode, stem: str) -> None:
    """Remove what differs from one editor or run to the next. Execution counts stay: `check` judges them."""
    stored = nb.metadata.get("stored_from")
    nb.metadata = nbformat.from_dict(METADATA | ({"stored_from": stored} if stored else {}))
    nb.nbformat, nb.nbformat_minor = 4, 5
    give_ids(nb, stem)
    for cell in nb.cells:
        kept = {key: value for key, value in cell.metadata.items() if key in CELL_METADATA and value}
        cell.metadata = nbformat.from_dict(kept)
        cell.source = cell.source.strip("\n")
        if cell.cell_type == "code":  # in Markdown, spaces at a line's end mean something
            cell.source = re.sub(r"[ \t]+$", "", cell.source, flags=re.MULTILINE)
        if not cell.get("attachments"):
            cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs = normal_outputs(cell.outputs)


def give_ids(nb: NotebookNode, stem: str) -> None:
    """Keep every good id for ever; give the others one that depends on nothing but their place."""
    taken = {cell.get("id") for cell in nb.cells}
    seen: set[str] = set()
    for i, cell in enumerate(nb.cells):
        attempt = 0
        while not cell.get("id") or cell.id in seen:
            new = hashlib.sha256(f"{stem}/{i}/{attempt}".encode()).hexdigest()[:8]
            attempt += 1
            if new not in taken:
                cell.id = new
        seen.add(cell.id)


def normal_outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    streams: dict[str, NotebookNode] = {}
    kept = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name in streams:  # how a stream is cut into pieces differs from run to run
                streams[output.name].text += output.text
                continue
            streams[output.name] = output
        if "metadata" in output:
            output.metadata = NotebookNode()
        if output.output_type == "error":
            output.traceback = [f"{output.ename}: {output.evalue}"]  # no paths, no colours
        kept.append(output)
    return kept


def dump(nb: NotebookNode) -> str:
    return nbformat.writes(nb, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def write(path: Path, text: str) -> None:
    """Write all or nothing: an interruption leaves the old file."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, "utf8", newline="\n")
    os.replace(fresh, path)


# ----------------------------------------------------------------------------------------------------
# Check


def problems(nb: NotebookNode, root: Path) -> list[str]:
    """Everything that is wrong with a notebook's stored state, one line each: where, what, what to do."""
    found = [*invalid(nb), *stale(nb, root), *colab_problems(nb), *count_problems(nb)]
    found += [*guess_problems(nb), *shown_problems(nb)]
    for i, cell in enumerate(nb.cells):
        check = {"code": code_problems, "markdown": markdown_problems}.get(cell.cell_type, raw_problems)
        found += [f"{name_of(nb, i)}: {problem}" for problem in [*tag_problems(cell), *check(cell)]]
    return found + notebook_problems(nb)


def invalid(nb: NotebookNode) -> Iterable[str]:
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook ({first_line(str(error))}); open and save it in Jupyter"


def stale(nb: NotebookNode, root: Path) -> Iterable[str]:
    stored, now = nb.metadata.get("stored_from", {}), digests(nb, root)
    if set(stored) != set(now):
        yield "its outputs were not stored by this script; run: make notebooks"
    else:
        yield from (STALE[part] for part in now if stored[part] != now[part])


def colab_problems(nb: NotebookNode) -> Iterable[str]:
    first = next(iter(code_cells(nb)), None)
    if first is None or not first.source.startswith(COLAB):
        yield f'the first code cell must start with "{COLAB}"; copy it from another chapter'
    elif "remove-cell" not in first.metadata.get("tags", []):
        yield "the Colab cell needs the tag remove-cell; add it"


def count_problems(nb: NotebookNode) -> Iterable[str]:
    count = 0
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        count += 1
        if cell.execution_count is None:
            yield f"{name_of(nb, i)}: never executed, so nbval would compare nothing; run: make notebooks"
        elif cell.execution_count != count or any(
            output.get("execution_count", count) != count for output in cell.outputs
        ):
            yield (
                f"{name_of(nb, i)}: execution count {cell.execution_count} where {count} belongs, "
                "so it was executed out of order; run: make notebooks"
            )


def guess_problems(nb: NotebookNode) -> Iterable[str]:
    """A guess is a cell whose output is hidden, the cells of its figures, and one fold; see book/_ext/guesses.py."""
    after = {i for i, cell in enumerate(nb.cells) if cell.source.startswith(ANSWER[:24])}
    for i, cell in enumerate(nb.cells):
        if "hide-output" not in cell.metadata.get("tags", []):
            continue
        answer = i + 1
        while answer < len(nb.cells) and "hide-input" in nb.cells[answer].metadata.get("tags", []):
            answer += 1
        if answer not in after:
            yield f"{name_of(nb, i)}: a hidden output without its answer; let a Markdown cell follow: {ANSWER[:-2]}"
        after.discard(answer)
    for i in sorted(after):
        yield f"{name_of(nb, i)}: an answer without its guess; tag the code cell before it hide-output"
    for i, cell in enumerate(nb.cells):
        text = cell.source.rstrip()
        if text.startswith(ANSWER[:24]) and not (
            text.startswith(ANSWER) and text.endswith("\n\n</details>") and text.count("</details>") == 1
        ):
            yield f"{name_of(nb, i)}: an answer is one fold; begin it with {ANSWER[:-2]}, end it with </details>"


def shown_problems(nb: NotebookNode) -> Iterable[str]:
    """What would disturb a reader in the code that is shown."""
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "code" or FOLDED & {*cell.metadata.get("tags", [])}:
            continue
        longest = max(map(len, cell.source.splitlines()), default=0)
        if longest > MAX_COLUMNS:
            yield f"{name_of(nb, i)}: a line of {longest} characters, {MAX_COLUMNS} at most; break it"
        if re.search(r"(?<![\w.])report\(", cell.source):
            yield (
                f"{name_of(nb, i)}: report in code that is shown, which reads like echoing a number; print the number, "
                "rounded to what all machines agree on"
            )


def tag_problems(cell: NotebookNode) -> Iterable[str]:
    if unknown := set(cell.metadata.get("tags", [])) - TAGS:
        yield f"unknown tags {sorted(unknown)}; the book knows {sorted(TAGS)}"


def raw_problems(cell: NotebookNode) -> Iterable[str]:
    yield f"a {cell.cell_type} cell, which the book shows as it is; make it Markdown or code"


def code_problems(cell: NotebookNode) -> Iterable[str]:
    lines = cell.source.count("\n") + 1
    if not cell.source.strip():
        yield "an empty code cell; delete it"
    if lines > MAX_LINES:
        yield f"{lines} lines of code, {MAX_LINES} at most; split it, or move a part into gptlab"
    if re.search(r"^\s*#\s*(NBVAL_|PYTEST_VALIDATE)", cell.source, re.MULTILINE):
        yield "a comment that changes what nbval compares; delete it"
    if banned := re.search(
        r"\bclear_output\b|\bupdate_display\b|\bdisplay_id\b|\btqdm\.(notebook|auto)\b", cell.source
    ):
        yield f"{banned.group()} makes outputs that cannot be compared; print the final state instead"
    expects_error = "raises-exception" in cell.metadata.get("tags", [])
    stores_error = any(output.output_type == "error" for output in cell.outputs)
    if stores_error and not expects_error:
        yield "stores an error; fix the code, or tag the cell raises-exception if the error is the lesson"
    if expects_error and not stores_error and cell.execution_count is not None:
        yield "tagged raises-exception, but stores no error; remove the tag"
    for output in cell.outputs:
        yield from output_problems(output)
        if any(mime.startswith("image/") for mime in output.get("data", {})):
            yield from figure_problems(output, cell.metadata.get("mystnb", {}))


def output_problems(output: NotebookNode) -> Iterable[str]:
    data = output.get("data", {})
    if output.output_type == "stream" and output.name == "stderr":
        yield f"stores stderr ({first_line(output.text)[:60]!r}); fix what warns, or silence that one warning"
    if unknown := set(data) - MIMES:
        yield f"stores {sorted(unknown)}, which nbval or the book cannot use; print or draw it instead"
    texts = [as_text(value) for mime, value in data.items() if not mime.startswith("image/")]
    text = "\n".join([*texts, output.get("text", ""), output.get("evalue", "")])
    if here := re.search(r"0x[0-9a-f]{6,}|(?<!\w)/(?:tmp|home|root|Users|var)/|\b[A-Z]:\\", text):
        yield f"an address or a local path in the output ({here.group()!r}); print something stable"
    if re.search(rf"(?<![\w.]){re.escape(str(ROOT))}(?!\w)", text):
        yield f"a local path in the output ({str(ROOT)!r}); print a path relative to the course"
    if as_text(data.get("text/plain", "")).startswith("<Figure") and "image/png" not in data:
        yield "a figure's text without its image; run: make notebooks"
    if re.search(r"\r(?!\n)|\d+%\|", text):
        yield "a progress bar in the output; switch it off (tqdm: disable=True)"


def figure_problems(output: NotebookNode, mystnb: dict) -> Iterable[str]:
    if not str(mystnb.get("image", {}).get("alt", "")).strip():
        yield "a figure without alt text; set mystnb.image.alt in the cell's metadata"
    if not str(mystnb.get("figure", {}).get("caption", "")).strip():
        yield "a figure without caption; set mystnb.figure.caption in the cell's metadata"
    if "image/png" not in output.data:
        return
    try:
        png = base64.b64decode(as_text(output.data["image/png"]))
    except binascii.Error:
        png = b""
    if png[:8] != b"\x89PNG\r\n\x1a\n" or len(png) < 24:
        yield "the stored image is no PNG; run: make notebooks"
        return
    (width,) = struct.unpack(">I", png[16:20])
    if len(png) > MAX_PNG or width > MAX_WIDTH:
        yield (
            f"a PNG of {len(png)} bytes and {width} pixels in width ({MAX_PNG} and {MAX_WIDTH} at most); "
            "draw it smaller, or with a lower dpi"
        )


# Markdown that only one of the book, Colab, JupyterLab and GitHub understands.
# (pattern, what it is, remedy); looked for outside code, and the last ones outside maths, too.
ANYWHERE = [
    (r"^[\s>]*:{3,}", "a MyST directive", "write a quotation: > **Common trap.** text"),
    (r"\{[A-Za-z][\w:+-]*\}`", "a MyST role", "link with [text](page.md), or write the text out"),
    (r"^\([\w-]+\)=\s*$", "a MyST target", "delete it, and link to the notebook"),
    (r"^[\s>]*>\s*\[!\w+\]", "a GitHub alert", "write a quotation: > **Note.** text"),
    (r"<div class=\"?admonition", "an HTML admonition", "write a quotation: > **Note.** text"),
    (r"\\(?:label|ref|eqref)\{", "a labelled equation", r"write \tag{4.1}, and cite it as Eq. (4.1)"),
    (
        r"\\begin\{(?:align|equation|gather|eqnarray)\*?\}",
        "a bare maths environment",
        r"use $$ with \begin{aligned}",
    ),
    (r"^\s*[-*+]\s+\[[ xX]\]\s", "a task list", "write a plain list"),
    (r"\\\$", "an escaped dollar", "write USD, or leave the sign out"),
    (r"\]\([^)\s]+\.ipynb#[^)]*\)", "an anchor into another notebook", "link to the notebook alone"),
    (r"!\[\s*\]\(", "an image without alt text", "write it between the brackets"),
]
OUTSIDE_MATHS = [
    (r"\[\^[^\]\s]+\]", "a footnote", "write it into the sentence, or in brackets"),
]


def markdown_problems(cell: NotebookNode) -> Iterable[str]:
    if not cell.source.strip():
        yield "an empty Markdown cell; delete it"
    if any(piece.kind == "fence" and piece.info.startswith("{") for piece in pieces(cell.source)):
        yield "a MyST directive; write a quotation: > **Common trap.** text"
    no_text = {"code", "fence", "comment"}
    text = masked(cell.source, lambda piece: piece.kind in no_text)
    plain = masked(cell.source, lambda piece: piece.kind in no_text | {"maths", "escape"})
    for patterns, where in ((ANYWHERE, text), (OUTSIDE_MATHS, plain)):
        for pattern, what, remedy in patterns:
            if match := re.search(pattern, where, re.MULTILINE):
                yield f"{what} ({match.group().strip()!r}); {remedy}"
    for block in re.findall(r"\$\$.*?\$\$", text, re.DOTALL):
        if r"\tag" in block and "\\\\" in block:
            yield r"\\ together with \tag, which Colab shows wrongly; use \begin{aligned} with \cr"
    yield from display_maths_problems(text)


def display_maths_problems(text: str) -> Iterable[str]:
    """Display maths stands alone: `$$` beside text is shown as inline maths by some readers."""
    remedy = "put a blank line before and after display maths, and nothing else on its lines"
    lines = [line.strip(" \t>") for line in text.split("\n")]
    is_open = False
    for i, line in enumerate(lines):
        marks = line.count("$$")
        opens, closes = not is_open and marks > 0, (is_open and marks > 0) or marks == 2
        crowded = (opens and (not line.startswith("$$") or (i > 0 and lines[i - 1]))) or (
            closes and (not line.endswith("$$") or (i + 1 < len(lines) and lines[i + 1]))
        )
        if crowded or marks > 2:
            yield f"$$ without a blank line or with text beside it ({line[:40]!r}); {remedy}"
        if is_open and not line:
            yield "a blank line inside display maths, which ends it in some readers; delete the line"
        if marks % 2:
            is_open = not is_open
    if is_open:
        yield "a $$ that is never closed; close it"


# ----------------------------------------------------------------------------------------------------
# Command line


def work_on_notebook(mode: str, path: Path, root: Path) -> list[str]:
    """Run, normalise or check one notebook; what is wrong with it afterwards."""
    before = path.read_text("utf8")
    try:
        nb = read_notebook(path)
    except ValueError as error:
        return [str(error)]
    normalise(nb, path.stem)
    if mode == "run":
        began = time.monotonic()
        if failure := execute(nb, path.resolve().parent):
            return [f"{failure}; the file is as it was: fix the cell, then run: make notebooks"]
        normalise(nb, path.stem)
        nb.metadata["stored_from"] = nbformat.from_dict(digests(nb, root))
        print(f"{shown(path, root)}: executed in {time.monotonic() - began:.0f} s", flush=True)
    after = dump(nb)
    found = problems(nb, root) if mode != "norm" else []
    if after != before:
        if mode == "check":
            found.append("not in normal form; run: python scripts/notebooks.py norm")
        else:
            write(path, after)
            print(f"{shown(path, root)}: stored", flush=True)
    return found


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description="Execute, normalise or check the stored state of the notebooks."
    )
    parser.add_argument("mode", choices=["run", "norm", "check"])
    parser.add_argument("paths", nargs="*", type=Path, help="default: all of book/")
    arguments = parser.parse_args(argv)
    mode, root = arguments.mode, root.resolve()
    paths = arguments.paths or book_files(root, ".ipynb") + (
        book_files(root, ".md") if mode == "check" else []
    )
    if missing := [path for path in paths if not path.is_file() or path.suffix not in {".ipynb", ".md"}]:
        print(f"{missing[0]}: no such notebook or .md page; give a path such as book/01-tokens.ipynb")
        return 1
    if not arguments.paths and not book_files(root, ".ipynb"):
        print(f"no notebooks under book/ yet: nothing to {mode}")
        return 0
    notebooks = all_notebooks(root) if any(path.suffix == ".md" for path in paths) else {}
    status = 0
    for path in paths:
        if path.suffix == ".ipynb":
            found = work_on_notebook(mode, path, root)
        else:
            found = page_problems(path.read_text("utf8"), notebooks) if mode == "check" else []
        for line in found:
            status = 1
            print(f"{shown(path, root)}: {line}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
