"""Curves: norms along the residual stream, gradients by block, activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gptlab.plots.style import BLUE, GREEN, INK, ORANGE

# Told apart by line and marker as well as by colour, so that they can be read in grey.
LOOKS = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": ORANGE, "linestyle": "--", "marker": "s"},
    {"color": GREEN, "linestyle": ":", "marker": "^"},
    {"color": INK, "linestyle": "-.", "marker": "D"},
)


def residual_norms(ax: Axes, norms: ArrayLike) -> Axes:
    """Draw the length of a vector in the residual stream after the embedding and after each sublayer.

    Args:
        ax: where to draw; for a wide range set its scale to ``"log"`` afterwards.
        norms: 2L + 1 numbers in the model's order: embedding, attention 0, MLP 0, attention 1 and so on.

    Raises:
        ValueError: their number is not 2L + 1.
    """
    values = np.asarray(norms, dtype=float)
    if values.ndim != 1 or len(values) < 3 or len(values) % 2 == 0:
        raise ValueError(
            f"norms of shape {values.shape}, but L blocks give 2L + 1: the embedding's, then two for each block"
        )
    steps, blocks = np.arange(len(values)), len(values) // 2
    ax.plot(steps, values, color=INK, linewidth=1.2, zorder=1)
    for chosen, name, marker, colour in [
        (slice(0, 1), "embedding", "D", INK),
        (slice(1, None, 2), "after attention", "o", "white"),
        (slice(2, None, 2), "after MLP", "s", BLUE),
    ]:
        style: dict[str, Any] = {"marker": marker, "facecolor": colour, "edgecolor": INK, "label": name}
        ax.scatter(steps[chosen], values[chosen], s=38 if blocks <= 16 else 14, zorder=2, **style)
    every = -(-blocks // 12)
    ax.set_xticks(1.5 + 2 * np.arange(0, blocks, every), [str(i) for i in range(0, blocks, every)])
    ax.set(xlabel="block", ylabel="length of a vector")
    ax.legend(frameon=False, fontsize=10)
    return ax


def gradient_norms(ax: Axes, norms: Mapping[str, ArrayLike]) -> Axes:
    """Draw the length of the gradient in each block on a logarithmic axis, a line for each label.

    Args:
        ax: where to draw.
        norms: for each label one positive number for each block.

    Raises:
        ValueError: a norm is not positive, so that it has no place on a logarithmic axis.
    """
    for (label, given), look in zip(norms.items(), _looks(norms), strict=True):
        values = np.asarray(given, dtype=float)
        if not np.all(values > 0):
            raise ValueError(f"{label!r} has a norm that is not positive: {values.tolist()}")
        ax.plot(np.arange(len(values)), values, label=label, linewidth=2, markersize=5, **look)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="block", ylabel="length of the gradient")
    ax.legend(frameon=False, fontsize=10)
    return ax


def activation_curves(ax: Axes, curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Axes:
    """Draw functions, each given as its inputs and its outputs, over thin lines through 0.

    Args:
        ax: where to draw.
        curves: for each label the numbers x and the numbers y.
    """
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.axvline(0, color=INK, linewidth=0.6)
    for (label, (x, y)), look in zip(curves.items(), _looks(curves), strict=True):
        ax.plot(np.asarray(x), np.asarray(y), label=label, linewidth=2, **{**look, "marker": ""})
    ax.set(xlabel="input", ylabel="output")
    ax.legend(frameon=False, fontsize=10)
    return ax


def _looks(labels: Mapping[str, object]) -> list[dict[str, Any]]:
    if not 1 <= len(labels) <= len(LOOKS):
        raise ValueError(f"{len(labels)} lines, but from 1 to {len(LOOKS)} can be told apart")
    return [dict(look) for look in LOOKS[: len(labels)]]
