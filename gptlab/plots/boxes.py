"""Rows of boxes: a text cut into tokens, or the cells of a small matrix."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gptlab.plots.style import INK, PALE


def token_row(
    ax: Axes, pieces: Sequence[str], y: float = 0.0, ids: Sequence[int] | None = None, label: str = ""
) -> Axes:
    """Draw one row of tokens, each as wide as its text, a space shown as ``␣``, with its id below.

    Args:
        ax: where to draw. The axes are hidden; one character takes one unit of x, a row one unit of y.
        pieces: the text of each token.
        y: the height of the row; later rows go below with smaller values.
        ids: the token ids, written under the boxes.
        label: written to the left of the row.
    """
    left = 0.0
    for i, piece in enumerate(pieces):
        width = max(len(piece), len(str(ids[i])) * 0.8 if ids is not None else 0) + 0.6
        box = Rectangle((left, y), width, 0.8, facecolor=PALE if i % 2 else "white", edgecolor=INK, linewidth=1)
        ax.add_patch(box)
        shown = piece.replace(" ", "␣")
        ax.text(left + width / 2, y + 0.4, shown, ha="center", va="center", family="monospace")
        if ids is not None:
            ax.text(left + width / 2, y - 0.28, str(ids[i]), ha="center", va="center", fontsize=9)
        left += width
    if label:
        ax.text(-0.6, y + 0.4, label, ha="right", va="center")
    ax.set_xlim(min(ax.get_xlim()[0], -0.1), max(left + 0.1, ax.get_xlim()[1] if len(ax.patches) > len(pieces) else 0))
    ax.set_ylim(min(y - 0.6, ax.get_ylim()[0] if len(ax.patches) > len(pieces) else y), max(1.0, y + 1.0))
    ax.axis("off")
    return ax


def number_grid(ax: Axes, values: Sequence[Sequence[float]], title: str = "", shade: Sequence[int] = ()) -> Axes:
    """Draw a small matrix as boxes with its numbers, the rows in ``shade`` tinted."""
    rows, columns = len(values), len(values[0])
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            tint = PALE if r in shade else "white"
            ax.add_patch(Rectangle((c, -r - 1), 1, 1, facecolor=tint, edgecolor=INK, linewidth=1))
            ax.text(c + 0.5, -r - 0.5, f"{value:g}", ha="center", va="center")
    ax.set_xlim(-0.1, columns + 0.1)
    ax.set_ylim(-rows - 0.1, 0.1)
    ax.set_aspect("equal")
    ax.set_title(title)
    ax.axis("off")
    return ax
