"""Rows of boxes: texts cut into tokens, and small matrices with their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gptlab.plots.style import INK, PALE


def token_rows(
    ax: Axes,
    rows: Sequence[Sequence[str]],
    *,
    ids: Sequence[Sequence[int]] | None = None,
    labels: Sequence[str] = (),
) -> Axes:
    """Draw texts cut into tokens, one row each from top to bottom, every token as wide as its text.

    A space is shown as ``␣``. One character takes one unit of x, a row one unit of y (1.4 with ids).

    Args:
        ax: where to draw; the axes are hidden.
        rows: for each row the texts of its tokens.
        ids: for each row its token ids, written under the boxes.
        labels: for each row a text to its left.
    """
    step = 1.0 if ids is None else 1.4
    widest = 0.0
    for r, pieces in enumerate(rows):
        left, y = 0.0, -r * step
        for i, piece in enumerate(pieces):
            number = "" if ids is None else str(ids[r][i])
            width = max(len(piece), 0.85 * len(number)) + 0.6
            _box(ax, left, y, width, 0.75, piece.replace(" ", "␣"), tinted=i % 2 == 1, family="monospace")
            ax.text(left + width / 2, y - 0.25, number, ha="center", va="center", fontsize=9)
            left += width
        widest = max(widest, left)
        if labels:
            ax.text(-0.5, y + 0.37, labels[r], ha="right", va="center")
    ax.set_xlim(-0.1, widest + 0.1)
    ax.set_ylim(-(len(rows) - 1) * step - 0.45, 0.85)
    ax.axis("off")
    return ax


def number_grid(
    ax: Axes, values: Sequence[Sequence[float]], title: str = "", tinted_rows: Sequence[int] = ()
) -> Axes:
    """Draw a small matrix: each number in a box, the rows in ``tinted_rows`` set off by a tint."""
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            _box(ax, float(c), -r - 1.0, 1.0, 1.0, f"{value:g}", tinted=r in tinted_rows)
    ax.set_xlim(-0.1, len(values[0]) + 0.1)
    ax.set_ylim(-len(values) - 0.1, 0.1)
    ax.set_aspect("equal")
    ax.set_title(title)
    ax.axis("off")
    return ax


def _box(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str,
    tinted: bool,
    family: str = "sans-serif",
) -> None:
    colour = PALE if tinted else "white"
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=INK, linewidth=1))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", family=family)
