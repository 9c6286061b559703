"""What every diagram is made of: boxes, arrows, sums. One unit of a diagram is one inch of its figure."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, Polygon, Rectangle
from matplotlib.path import Path

from gptlab.plots.style import BLUE, INK, PALE

Point = tuple[float, float]
RADIUS = 0.13
"""Of the circle that marks a sum."""


def canvas(ax: Axes, width: float, height: float) -> Axes:
    """Make ``ax`` a blank sheet of ``width`` by ``height`` units, its origin at the lower left."""
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return ax


def box(
    ax: Axes,
    centre: Point,
    width: float,
    height: float,
    text: str = "",
    *,
    weights: bool = True,
    size: int | None = None,
) -> None:
    """Draw a box around its centre: tinted where the step has weights, white where it has none."""
    x, y = centre
    corner = (x - width / 2, y - height / 2)
    colour = PALE if weights else "white"
    ax.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor=INK, linewidth=1.2, zorder=3))
    ax.text(x, y, text, ha="center", va="center", fontsize=size, linespacing=1.35, zorder=4)


def funnel(ax: Axes, centre: Point, above: float, below: float, height: float, text: str) -> None:
    """Draw a step with weights that changes the width from ``above`` to ``below``."""
    x, y = centre
    top, bottom = y + height / 2, y - height / 2
    corners = [(x - above / 2, top), (x + above / 2, top), (x + below / 2, bottom), (x - below / 2, bottom)]
    ax.add_patch(Polygon(corners, facecolor=PALE, edgecolor=INK, linewidth=1.2, zorder=3))
    shift = 0.08 if above > below else -0.08  # towards the wide end
    ax.text(x, y + shift, text, ha="center", va="center", zorder=4)


def cards(ax: Axes, centre: Point, width: float, height: float, text: str = "") -> None:
    """Draw a white box with two more behind it: several of one kind."""
    x, y = centre
    for step in (2, 1, 0):
        corner = (x - width / 2 + 0.06 * step, y - height / 2 + 0.06 * step)
        card = Rectangle(corner, width, height, facecolor="white", edgecolor=INK, linewidth=1.2, zorder=0.6)
        ax.add_patch(card)
    ax.text(x, y, text, ha="center", va="center", fontsize=10, linespacing=1.35, zorder=4)


def arrow(ax: Axes, *points: Point, stream: bool = False) -> None:
    """Draw an arrow along ``points``; the residual stream is drawn thick."""
    colour, width = (BLUE, 3.0) if stream else (INK, 1.5)
    head = "-|>,head_length=0.5,head_width=0.25"
    ax.add_patch(
        FancyArrowPatch(
            path=Path(points),
            arrowstyle=head,
            mutation_scale=13,
            color=colour,
            linewidth=width,
            joinstyle="miter",
            capstyle="butt",
            fill=True,
            zorder=1 if stream else 2,
        )
    )


def plus(ax: Axes, centre: Point) -> None:
    """Draw a sum."""
    x, y = centre
    ax.add_patch(Circle(centre, RADIUS, facecolor="white", edgecolor=INK, linewidth=1.5, zorder=3))
    arm = 0.6 * RADIUS
    ax.plot([x - arm, x + arm], [y, y], color=INK, linewidth=1.5, zorder=4)
    ax.plot([x, x], [y - arm, y + arm], color=INK, linewidth=1.5, zorder=4)


def fork(ax: Axes, at: Point) -> None:
    """Mark the point where a branch leaves a line."""
    ax.add_patch(Circle(at, 0.055, color=BLUE, zorder=3))
