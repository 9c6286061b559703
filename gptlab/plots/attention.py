"""Attention weights as maps: rows are queries, columns are keys, dark is much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from gptlab.plots.style import BLUE

WEIGHTS = LinearSegmentedColormap.from_list("weights", ["white", "#8FBFDF", BLUE, "#00263D"])
"""White is 0. It darkens all the way, so it reads in grey."""
MANY_TOKENS = 32


def attention_map(
    ax: Axes,
    weights: ArrayLike,
    tokens: Sequence[str] = (),
    title: str = "",
    *,
    causal: bool = True,
    most: float = 1.0,
    scale: bool = True,
) -> Axes:
    """Draw one head's weights, T queries by S keys; what the mask forbids is hatched.

    Args:
        ax: where to draw.
        weights: one row for each query. With a cache the T queries are the last of the S positions.
        tokens: the S tokens that label both sides, a space shown as ``␣``. Beyond 32 they give way
            to position numbers.
        title: above the map.
        causal: whether to hatch the keys that come after the query.
        most: the weight drawn darkest.
        scale: whether to show beside the map which shade is which weight.

    Raises:
        ValueError: the weights are no matrix, the tokens do not fit them, or ``causal`` is asked for
            and a weight lies on a key after its query.
    """
    values = np.asarray(weights, dtype=float)
    _check(values, tokens, causal)
    T, S = values.shape
    image = ax.imshow(values, cmap=WEIGHTS, vmin=0, vmax=most, interpolation="nearest")
    if causal:
        hatch_future(ax, np.arange(S + 1) - 0.5, np.arange(T + 1) - 0.5)
    if tokens and S <= MANY_TOKENS:
        shown = [token.replace(" ", "␣").replace("\n", "↵") for token in tokens]
        size = 11 if S <= 12 else 10 if S <= 20 else 9
        ax.set_xticks(range(S), shown, rotation=90, fontsize=size)
        ax.set_yticks(range(T), shown[S - T :], fontsize=size)
        ax.tick_params(length=0)
    ax.spines[["top", "right"]].set_visible(True)
    ax.set(xlabel="key: is read", ylabel="query: reads", title=title)
    if scale:
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.6, aspect=15, ticks=[0, most / 2, most])
        bar.set_label("weight")
    return ax


def attention_grid(
    axes: Axes | Sequence[Axes] | np.ndarray,
    weights: ArrayLike,
    *,
    names: Sequence[str] = (),
    causal: bool = True,
    most: float = 1.0,
) -> np.ndarray:
    """Draw a small map for each head, on ``axes`` from ``plt.subplots(3, 4)`` or the like.

    Args:
        axes: at least as many as there are heads; those left over are blanked.
        weights: H heads by T queries by S keys.
        names: a title for each map; without them "head 0", "head 1" and so on.
        causal: as in :func:`attention_map`.
        most: as in :func:`attention_map`.

    Raises:
        ValueError: there are fewer axes than heads.
    """
    heads = np.asarray(weights, dtype=float)
    flat = np.asarray(axes, dtype=object).ravel()
    if len(heads) > len(flat):
        raise ValueError(f"{len(heads)} heads need as many axes, but there are {len(flat)}")
    for i, ax in enumerate(flat):
        if i >= len(heads):
            ax.axis("off")
            continue
        title = names[i] if names else f"head {i}"
        attention_map(ax, heads[i], title=title, causal=causal, most=most, scale=False)
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    return flat


def hatch_future(ax: Axes, xs: np.ndarray, ys: np.ndarray) -> None:
    """Hatch the keys after each query; ``xs`` and ``ys`` are the edges of the columns and of the rows."""
    T, S = len(ys) - 1, len(xs) - 1
    for i in range(T):
        first = S - T + i + 1
        if first < S:
            corner, size = (xs[first], ys[i]), (xs[-1] - xs[first], ys[i + 1] - ys[i])
            ax.add_patch(
                Rectangle(corner, *size, facecolor="#EDEDED", edgecolor="#8A8A8A", hatch="////", linewidth=0)
            )


def _check(values: np.ndarray, tokens: Sequence[str], causal: bool) -> None:
    if values.ndim != 2:
        raise ValueError(f"weights of shape {values.shape} are no matrix: choose one text and one head")
    T, S = values.shape
    if T > S:
        raise ValueError(f"{T} queries but {S} keys: each query's own position must have a key")
    if tokens and len(tokens) != S:
        raise ValueError(f"{len(tokens)} tokens do not label {S} keys")
    if causal and np.any(np.triu(values, S - T + 1) != 0):
        raise ValueError(
            "a weight lies on a key after its query; for a head without a mask pass causal=False"
        )
