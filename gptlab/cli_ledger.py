"""What ``gptlab ledger`` counts and prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gptlab.config import PRESETS, GPTConfig
from gptlab.config_file import read_config
from gptlab.files import replacing
from gptlab.flops import forward_flops
from gptlab.ledger import Ledger, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Source:
    """What is counted, and what is said of it."""

    name: str
    config: GPTConfig
    ledger: Ledger
    notes: tuple[str, ...] = ()


def find(source: str, *, untied: bool = False) -> Source:
    """A preset by name, a ``config.json``, or a checkpoint.

    Raises:
        FileNotFoundError: it is a folder without either.
        ValueError: it is none of these, or damaged, or a checkpoint that is to be untied.
    """
    path = Path(source)
    if source in PRESETS:
        config = PRESETS[source]
    elif path.suffix == ".json" and path.is_file():
        config = read_config(path)
    elif path.is_dir() and (path / "config.json").is_file() and not any(path.glob("*.safetensors*")):
        config = read_config(path / "config.json")
    elif path.exists() or source == "shakespeare":
        if untied:
            raise ValueError(f"--untied asks what a config would give; {source} has a head, or has none")
        return _checkpoint(source)
    else:
        raise ValueError(f"{source!r} is none of {', '.join(PRESETS)}, and no file or folder")
    if untied:
        config = replace(config, tie_word_embeddings=False)
    return Source(source, config, Ledger.from_config(config))


def _checkpoint(source: str) -> Source:
    from gptlab.checkpoint import SHIPPED, inspect_checkpoint

    found = inspect_checkpoint(SHIPPED.get(source, source))
    notes = [
        f"File: {found.file_bytes:,} B, of which header {found.header_bytes:,} B, "
        f"parameters {found.parameter_bytes:,} B ({', '.join(found.dtypes)})"
    ]
    if found.other_bytes:
        notes.append(f"Not parameters, {found.other_bytes:,} B: {', '.join(found.others)}")
    return Source(source, found.config, found.ledger, tuple(notes))


def as_json(source: Source) -> str:
    """Everything that the table says, for a program to read."""
    ledger = source.ledger
    rows = [{"name": row.name, "shape": row.shape, "parameters": row.parameters} for row in ledger]
    found = {
        "source": source.name,
        "config": asdict(source.config),
        "tied": ledger.tied,
        "total": ledger.total,
        "parts": ledger.parts(),
        "forward_flops_per_token": forward_flops(source.config),
        "tensors": rows,
        "notes": source.notes,
    }
    return json.dumps(found, indent=2, ensure_ascii=False)


def show(source: Source, console: Console) -> None:
    """Print the table, and below it what does not fit in one."""
    ledger, config = source.ledger, source.config
    tied = "tied" if ledger.tied else "untied"
    title = f"{source.name}: {ledger.total:,} parameters in {len(ledger.rows)} tensors, {tied}"
    console.print(Text(title), soft_wrap=True)  # it may begin with a long path
    console.print()
    for formulas in (True, False):
        table = _table(ledger, config, formulas=formulas)
        needed = console.measure(table, options=console.options.update(width=1000)).maximum
        if needed <= console.width:
            break
    console.width = max(needed, console.width)  # a cut number would be a wrong one
    console.print(table)
    console.print()
    for line in [*_summary(ledger, config), *source.notes]:
        console.print(Text(line))


def save_card(config: GPTConfig, file: Path) -> None:
    """Draw the card and write it, 1,080 pixels square.

    Raises:
        ValueError: a format that is not offered.
        OSError: the file cannot be written.
    """

    def draw(figure: Figure) -> None:
        from gptlab.plots.card import budget_card

        figure.set_layout_engine("none")  # the axes fill it
        budget_card(figure.add_axes((0, 0, 1, 1)), config)

    save_figure(draw, file, "--card", (7.2, 7.2))


def save_figure(draw: Callable[[Figure], None], file: Path, option: str, inches: tuple[float, float]) -> None:
    """Draw a picture and write it, at 150 dots an inch.

    Raises:
        ValueError: a format that is not offered.
        OSError: the file cannot be written.
    """
    if file.suffix.lower() not in FORMATS:
        raise ValueError(f"{option} {file}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{option} {file}: the folder {file.parent} does not exist")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    with replacing(file) as partial:
        figure.savefig(partial, format=file.suffix[1:].lower())


def _table(ledger: Ledger, config: GPTConfig, *, formulas: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("tensor", no_wrap=True)
    if formulas:
        table.add_column("", no_wrap=True)
    table.add_column("shape", justify="right", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    formula = {row.name: row.formula for row in Ledger.from_config(config)}
    for name, row, times in _lines(ledger, config):
        if row is None:
            first, cells = name, ["", f"{times:,}" if times else "", _share(times, ledger)]
        else:
            shape, n = " × ".join(f"{n:,}" for n in row.shape), row.parameters
            first, cells = name, [shape, f"{n:,}", "" if times else _share(n, ledger)]
        middle = [formula.get(row.name, "") if row else ""] if formulas else []
        table.add_row(first, *middle, *cells, style="bold" if row is None else "")
    return table


def _lines(ledger: Ledger, config: GPTConfig) -> Iterator[tuple[str, Row | None, int]]:
    """For each line its name and its tensor; or no tensor and a sum. In a block no tensor has a share."""
    rows = {row.name: row for row in ledger}
    for name in ("wte.weight", "wpe.weight"):
        yield name, rows.pop(name), 0
    block = [row for row in ledger if row.name.startswith("h.0.")]
    yield "one block", None, sum(row.parameters for row in block)
    for row in block:
        yield f"  {row.name.removeprefix('h.0.')}", row, 1
    yield f"{config.n_layer} blocks", None, ledger.subtotal("h.")
    for name, row in rows.items():
        if not name.startswith("h."):
            yield name, row, 0
    if ledger.tied:
        yield "lm_head is wte", None, 0
    yield "all", None, ledger.total


def _share(n: int, ledger: Ledger) -> str:
    return f"{n / ledger.total:.2%}" if n else ""


def _summary(ledger: Ledger, config: GPTConfig) -> Iterator[str]:
    matrices = sum(row.parameters for row in ledger if len(row.shape) > 1)
    for part, n in ledger.parts().items():
        yield f"{part:16} {n:>17,}  {_share(n, ledger):>7}"
    yield ""
    yield f"Matrices {matrices:,}; biases and LayerNorms {ledger.total - matrices:,}"
    for bytes_each, name in ((4, "float32"), (2, "bfloat16")):
        yield f"{name:9} {bytes_each * ledger.total:,} B = {bytes_each * ledger.total / 1e6:,.2f} MB"
    flops = sum(forward_flops(config).values())
    yield f"One token of {config.n_positions:,}: {flops:,} operations in a forward pass"
