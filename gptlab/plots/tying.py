"""Weight tying in pictures: a logit as length and angle, the two gradients of one table, curves of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from gptlab.plots.curves import LOOKS
from gptlab.plots.style import BLUE, INK, ORANGE


def logit_picture(ax: Axes, h: ArrayLike, rows: Mapping[str, ArrayLike]) -> Axes:
    """Draw a final vector and the rows of a table in the plane, each row with its logit.

    Between two rows the dashed line marks where their logits are equal; on either side one of them wins.

    Args:
        ax: where to draw.
        h: the final vector, two numbers.
        rows: for each token its row, two numbers.

    Raises:
        ValueError: a vector has not two numbers.
    """
    vectors = {"$h$": np.asarray(h, dtype=float)}
    vectors |= {name: np.asarray(row, dtype=float) for name, row in rows.items()}
    for name, vector in vectors.items():
        if vector.shape != (2,):
            raise ValueError(f"{name} has shape {vector.shape}, but a plane has room for 2 numbers")
    reach = 1.25 * max(np.abs(vector).max() for vector in vectors.values())
    if len(rows) == 2:
        first, second = list(vectors.values())[1:]
        along = np.array([first[1] - second[1], second[0] - first[0]])
        if along.any():
            along *= 2 * reach / np.linalg.norm(along)
            ax.plot([-along[0], along[0]], [-along[1], along[1]], "--", color=INK, linewidth=1)
    point = vectors["$h$"]
    for name, vector in vectors.items():
        is_row = name != "$h$"
        arrow = {"arrowstyle": "-|>", "color": BLUE if is_row else ORANGE, "shrinkA": 0, "shrinkB": 0}
        tip = (float(vector[0]), float(vector[1]))
        ax.annotate("", tip, (0, 0), arrowprops=arrow | {"linewidth": 2.0 if is_row else 4.5})
        label = f"{name}: logit {vector @ point:g}" if is_row else name
        ax.annotate(label, tip, (0, 7 if is_row else -14), textcoords="offset points", ha="center")
    ax.axhline(0, color=INK, linewidth=0.5, zorder=0)
    ax.axvline(0, color=INK, linewidth=0.5, zorder=0)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    return ax


def tied_gradients(ax: Axes, input_rows: ArrayLike, output_rows: ArrayLike) -> Axes:
    """Draw how long the gradient of each row of the table is, from the longest row to the shortest.

    Args:
        ax: where to draw.
        input_rows: for each row the length of what comes from reading it; many are 0 and not drawn.
        output_rows: the same for what comes from scoring against it.

    Raises:
        ValueError: the two do not have one number for each row of the same table.
    """
    inputs, outputs = np.asarray(input_rows, dtype=float), np.asarray(output_rows, dtype=float)
    if inputs.ndim != 1 or inputs.shape != outputs.shape:
        raise ValueError(
            f"one length for each row of one table, not shapes {inputs.shape} and {outputs.shape}"
        )
    for lengths, name, look in [(outputs, "output side", LOOKS[0]), (inputs, "input side", LOOKS[1])]:
        longest_first = np.sort(lengths[lengths > 0])[::-1]
        style: dict[str, Any] = {**look, "marker": "" if len(longest_first) > 200 else look["marker"]}
        label = f"{name}: {len(longest_first):,} rows"
        ranks = np.arange(1, len(longest_first) + 1)
        ax.plot(ranks, longest_first, label=label, linewidth=2, markersize=5, **style)
    ax.set(xscale="log", yscale="log", xlabel="rows of the table, by length", ylabel="length of its gradient")
    ax.legend(frameon=False, fontsize=10)
    return ax


def ablation_curves(ax: Axes, runs: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> Axes:
    """Draw runs of several kinds: each run thin, the mean of a kind thick.

    Args:
        ax: where to draw.
        runs: for each kind its runs, each a list of (step, loss).

    Raises:
        ValueError: the runs of a kind were not measured at the same steps.
    """
    for (kind, several), look in zip(runs.items(), LOOKS, strict=False):
        values = [np.asarray(run, dtype=float) for run in several]
        if any(run.shape != values[0].shape or (run[:, 0] != values[0][:, 0]).any() for run in values):
            raise ValueError(f"the runs of {kind!r} were not measured at the same steps")
        style: dict[str, Any] = dict(look)
        for run in values:
            ax.plot(*run.T, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.6)
        ax.plot(*np.mean(values, axis=0).T, label=kind, linewidth=2, markersize=6, **style)
    ax.set(xlabel="step", ylabel="held-out loss, nats per token")
    ax.legend(frameon=False)
    return ax
