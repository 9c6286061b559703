"""The ledger as pictures: bars for the parts, a map true to scale, and the steps from one count to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gptlab.ledger import Ledger, Row
from gptlab.plots.style import BLUE, GREEN, INK, ORANGE, PALE

# Told apart by lightness and hatching as well as by colour, so that they can be read in grey.
LOOKS: Mapping[str, dict[str, Any]] = {
    "token table": {"facecolor": BLUE},
    "position table": {"facecolor": INK},
    "attention": {"facecolor": ORANGE, "hatch": "//"},
    "scores and sums": {"facecolor": "white", "hatch": ".."},
    "MLP": {"facecolor": PALE},
    "LayerNorms": {"facecolor": "white"},
    "head": {"facecolor": BLUE, "hatch": "xx"},
    "other": {"facecolor": GREEN},
}


def share_bars(ax: Axes, counts: Mapping[str, Mapping[str, int]], smallest: float = 0.0) -> Axes:
    """Draw one bar of 100 % for each label, divided into its parts, the first label on top.

    Args:
        ax: where to draw.
        counts: for each label its parts and their counts, such as ``{"gpt2": Ledger.from_config(config).parts()}``;
            the names of the parts are those of ``LOOKS``.
        smallest: parts below this share of every bar are drawn but not named in the legend.
    """
    named: dict[str, Rectangle] = {}
    for y, parts in enumerate(counts.values()):
        total, left = sum(parts.values()), 0.0
        for part, count in parts.items():
            share = 100 * count / total
            (bar,) = ax.barh(y, share, left=left, edgecolor=INK, linewidth=0.8, height=0.62, **LOOKS[part])
            if share >= 100 * smallest:
                named.setdefault(part, bar)
            if share >= 7:
                pad = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                ax.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center", fontsize=10, bbox=pad)
            left += share
    ax.set(yticks=range(len(counts)), yticklabels=counts, xlim=(0, 100), xlabel="per cent")
    ax.invert_yaxis()
    ax.legend(
        list(named.values()), list(named), frameon=False, fontsize=10, ncols=3, columnspacing=1.2,
        loc="lower center", bbox_to_anchor=(0.45, 1.0),
    )  # fmt: skip
    return ax


def ledger_map(ax: Axes, ledger: Ledger) -> Axes:
    """Draw the model as one sheet on which every tensor has the area of its parameters.

    From left to right the tables, the blocks and a head of its own; in a block from top to bottom attention's
    tensors and the MLP's. One unit of x is a share of the total, one unit of y the whole height.
    """
    left = 0.0
    for prefix in dict.fromkeys(_column(row) for row in ledger):
        rows = [row for row in ledger if _column(row) == prefix]
        count = sum(row.parameters for row in rows)
        width, top = count / ledger.total, 1.0
        for row in rows:
            height = row.parameters / count
            look = {"hatch": None, **LOOKS[_kind(row)]}
            line = 0.8 if len(row.shape) > 1 else 0.0  # an outline would be thicker than what it surrounds
            ax.add_patch(
                Rectangle((left, top - height), width, height, edgecolor=INK, linewidth=line, **look)
            )
            top -= height
        left += width
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.spines[["top", "right"]].set_visible(True)
    _label(ax, ledger)
    return ax


def _label(ax: Axes, ledger: Ledger) -> None:
    """Name the columns below, and to the right the matrices of a block."""
    block = [row for row in ledger if _column(row) == "h.0"]
    heights, top = {}, 1.0
    for row in block:
        height = row.parameters / sum(r.parameters for r in block)
        if len(row.shape) > 1:
            heights[row.name.removeprefix("h.0.").removesuffix(".weight")] = top - height / 2
        top -= height
    tables, blocks = ledger.subtotal("wte", "wpe") / ledger.total, ledger.subtotal("h.") / ledger.total
    layers = len({_column(row) for row in ledger if row.name.startswith("h.")})
    ax.set_xticks([tables / 2, tables + blocks / 2], ["tables", f"{layers} blocks"])
    if not ledger.tied:
        ax.set_xticks([*ax.get_xticks(), 1 - ledger.subtotal("lm_head") / ledger.total / 2],
                      ["tables", f"{layers} blocks", "head"])  # fmt: skip
    ax.yaxis.tick_right()
    ax.set_yticks(list(heights.values()), list(heights))
    ax.tick_params(length=0)


def _column(row: Row) -> str:
    """The prefix that the tensors of one column share: ``h.0`` or ``wte``."""
    parts = row.name.split(".")
    return ".".join(parts[:2]) if parts[0] == "h" else parts[0]


def _kind(row: Row) -> str:
    (kind,) = Ledger((row,), tied=False).parts()
    return kind


def waterfall(ax: Axes, start: tuple[str, int], steps: Sequence[tuple[str, int | None]]) -> Axes:
    """Draw how one count becomes another, from top to bottom: what each step adds or takes away.

    Args:
        ax: where to draw.
        start: a label and a count, drawn as a full bar.
        steps: for each step a label and its change, negative where it takes away; or None for a full bar that
            shows the sum so far.
    """
    labels, at = [start[0]], start[1]
    _full_bar(ax, 0, at)
    for y, (label, change) in enumerate(steps, start=1):
        labels.append(label)
        ax.plot([at, at], [y - 0.69, y + 0.31], color=INK, linewidth=0.8)
        if change is None:
            _full_bar(ax, y, at)
            continue
        look: dict[str, Any] = {"facecolor": BLUE} if change >= 0 else {"facecolor": "white", "hatch": "//"}
        ax.barh(y, abs(change), left=min(at, at + change), edgecolor=INK, linewidth=0.8, height=0.62, **look)
        ax.text(max(at, at + change), y, f" {change:+,}".replace("-", "−"), va="center", fontsize=10)
        at += change
    ax.set(yticks=range(len(labels)), yticklabels=labels, xticks=[])
    ax.set_xlim(0, 1.35 * ax.get_xlim()[1])  # room for the numbers
    ax.spines["bottom"].set_visible(False)
    ax.invert_yaxis()
    return ax


def _full_bar(ax: Axes, y: int, count: int) -> None:
    ax.barh(y, count, facecolor=PALE, edgecolor=INK, linewidth=0.8, height=0.62)
    ax.text(count, y, f" {count:,}", va="center", fontsize=10)
