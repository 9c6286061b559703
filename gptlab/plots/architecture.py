"""GPT-2 at three depths: the model, a block, attention. Every number is the config's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger
from gptlab.plots.attention import WEIGHTS, hatch_future
from gptlab.plots.drawing import RADIUS, Point, arrow, box, canvas, cards, fork, funnel, plus
from gptlab.plots.style import BLUE, INK

# The model.

STREAM, SIDE, WIDE = 1.75, 4.3, 2.35


def model_diagram(ax: Axes, config: GPTConfig) -> Axes:
    """Draw the whole model from token ids to logits, with shapes and parameter counts.

    Tinted boxes have weights. A dashed line joins the two ends of a tied table. Made for 5.6 by 7.9 inches.
    """
    canvas(ax, 5.6, 7.9)
    V, C = config.vocab_size, config.n_embd
    ledger = Ledger.from_config(config)
    _embeddings(ax, config, ledger)
    arrow(ax, (STREAM, 5.3), (STREAM, 2.32), stream=True)
    ax.text(STREAM + 0.15, 5.16, f"residual stream (B, T, {C:,})", color=BLUE, va="center")
    _blocks(ax, config, ledger)
    box(ax, (STREAM, 2.02), WIDE, 0.58, f"ln_f\n2 × {C:,} = {ledger.subtotal('ln_f'):,}", size=10)
    arrow(ax, (STREAM, 1.73), (STREAM, 1.36))
    ax.text(STREAM + 0.15, 1.56, f"(B, T, {C:,})", va="center")
    if config.tie_word_embeddings:
        head = "the table wte again"
        ends = [(STREAM - WIDE / 2, 6.95), (0.25, 6.95), (0.25, 1.06), (STREAM - WIDE / 2, 1.06)]
        ax.plot(*zip(*ends, strict=True), color=INK, linewidth=1.5, linestyle=(0, (4, 2.5)), zorder=1)
        label = {"facecolor": "white", "edgecolor": "none", "pad": 3}
        ax.text(0.25, 6.0, "tied", rotation=90, ha="center", va="center", bbox=label)
    else:
        head = f"{V:,} × {C:,} = {ledger.subtotal('lm_head'):,}"
    box(ax, (STREAM, 1.06), WIDE, 0.58, f"lm_head  $W_U$\n{head}", size=10)
    arrow(ax, (STREAM, 0.77), (STREAM, 0.42))
    ax.text(STREAM, 0.26, f"logits (B, T, {V:,})", ha="center", va="center")
    ax.text(SIDE, 1.5, f"in all\n{ledger.total:,}\nparameters", ha="center", va="center", linespacing=1.4)
    return ax


def _embeddings(ax: Axes, config: GPTConfig, ledger: Ledger) -> None:
    V, P, C = config.vocab_size, config.n_positions, config.n_embd
    for x, text, name, rows in [
        (STREAM, "token ids (B, T)", "wte  $W_E$", V),
        (SIDE, "positions (T)", "wpe  $W_P$", P),
    ]:
        count = ledger.subtotal(name[:3])
        ax.text(x, 7.72, text, ha="center", va="center")
        arrow(ax, (x, 7.58), (x, 7.25))
        box(ax, (x, 6.95), WIDE, 0.58, f"{name}\n{rows:,} × {C:,} = {count:,}", size=10)
    arrow(ax, (STREAM, 6.66), (STREAM, 6.1 + RADIUS))
    arrow(ax, (SIDE, 6.66), (SIDE, 6.1), (STREAM + RADIUS, 6.1))
    ax.text(STREAM + 0.15, 6.45, f"(B, T, {C:,})", va="center")
    ax.text(SIDE + 0.12, 6.4, f"(T, {C:,})", va="center")
    plus(ax, (STREAM, 6.1))
    arrow(ax, (STREAM, 6.1 - RADIUS), (STREAM, 5.68))
    box(ax, (STREAM, 5.5), WIDE, 0.36, f"dropout {config.embd_pdrop:g}", weights=False)


def _blocks(ax: Axes, config: GPTConfig, ledger: Ledger) -> None:
    """One block in a frame, with the edges of further ones behind it."""
    L = config.n_layer
    cards(ax, (2.95, 3.72), 4.7, 2.4)
    ax.text(0.72, 4.72, f"block × {L}", weight="bold", va="center")
    for y, norm, name, title in [(4.25, "ln_1", "attn", "attention"), (3.35, "ln_2", "mlp", "MLP")]:
        counts = [ledger.subtotal(f"h.0.{part}.") for part in (norm, name)]
        box(ax, (3.85, y), 2.6, 0.62, f"{norm} → {title}\n" + " + ".join(f"{n:,}" for n in counts), size=10)
        fork(ax, (STREAM, y + 0.17))
        arrow(ax, (STREAM, y + 0.17), (2.55, y + 0.17))
        arrow(ax, (2.55, y - 0.17), (STREAM + RADIUS, y - 0.17))
        plus(ax, (STREAM, y - 0.17))
    block = ledger.subtotal("h.0.")
    ax.text(5.15, 2.75, f"{L} × {block:,} = {L * block:,}", ha="right", va="center")


# A block.


def block_diagram(ax: Axes, config: GPTConfig, *, pre_ln: bool = True) -> Axes:
    """Draw one block: the residual stream, and the two sublayers that read it and add to it.

    Pre-LN, as in GPT-2, has LayerNorm in the branches and leaves the stream untouched; Post-LN has it on
    the stream, after each sum. Tinted boxes have weights. Made for 5.6 by 6.7 inches.
    """
    canvas(ax, 5.6, 6.7)
    C, dropout = config.n_embd, ("plain", f"dropout {config.resid_pdrop:g}", 0.36)
    heads = f"attention\n{config.n_head} heads of {config.head_dim:,}"
    attention = [("weights", heads, 0.6), dropout]
    mlp = [
        ("widen", f"c_fc  {C:,} → {4 * C:,}", 0.6),
        ("wide", f"GELU  (B, T, {4 * C:,})", 0.36),
        ("narrow", f"c_proj  {4 * C:,} → {C:,}", 0.6),
        dropout,
    ]
    _block(ax, (0.95, 6.5), 3.55, 3.1, attention, mlp, pre_ln, f"x  (B, T, {C:,})")
    ax.text(0.72, 2.4, "residual stream", color=BLUE, rotation=90, ha="center", va="center")
    return ax


def block_sketch(ax: Axes, *, pre_ln: bool = True) -> Axes:
    """Draw the order of a block's steps and no sizes, small enough for two side by side.

    Made for 2.8 by 3.9 inches.
    """
    canvas(ax, 2.75, 3.9)
    attention, mlp = [("weights", "attention", 0.4)], [("weights", "MLP", 0.4)]
    _block(ax, (0.65, 3.75), 1.9, 1.5, attention, mlp, pre_ln, "x")
    return ax


Part = tuple[str, str, float]


def _block(
    ax: Axes,
    top: Point,
    side: float,
    width: float,
    attention: Sequence[Part],
    mlp: Sequence[Part],
    pre_ln: bool,
    x: str,
) -> None:
    """Draw a block downwards from ``top`` on its stream; the centres of the branches are at ``side``."""
    stream, y = top
    ax.text(stream, y, x, ha="center", va="center")
    y -= 0.18
    for norm, parts in (("ln_1", attention), ("ln_2", mlp)):
        parts = [("weights", norm, 0.36), *parts] if pre_ln else parts
        bottom = _branch(ax, (stream, y - 0.25), side, width, parts)
        if not pre_ln:
            box(ax, (stream, bottom - 0.6), min(1.1, width), 0.36, norm)
        below = bottom - (0.3 if pre_ln else 0.78)
        ax.plot([stream, stream], [y, below], color=BLUE, linewidth=3, zorder=1)
        y = below
    arrow(ax, (stream, y), (stream, y - 0.35), stream=True)
    ax.text(stream, y - 0.5, x, ha="center", va="center")


def _branch(ax: Axes, at: Point, side: float, width: float, parts: Sequence[Part]) -> float:
    """Leave the stream, go down through ``parts``, and return into a sum; its height is the result."""
    stream, y = at
    fork(ax, at)
    points = [at, (side, y)]
    y -= 0.22
    for kind, text, height in parts:
        centre = (side, y - height / 2)
        if kind not in ("wide", "narrow"):  # these lean on the part above
            arrow(ax, *points, (side, y))
        if kind in ("widen", "narrow"):
            ends = (width / 4, width) if kind == "widen" else (width, width / 4)
            funnel(ax, centre, *ends, height, text)
        else:
            across = width if kind == "wide" else 0.75 * width
            box(ax, centre, across, height, text, weights=kind == "weights")
        y -= height
        points = [(side, y)]
        y -= 0.22 if kind not in ("widen", "wide") else 0
    left, middle = side - 0.375 * width, y + 0.22 + parts[-1][2] / 2
    arrow(ax, (left, middle), (stream + RADIUS, middle))
    plus(ax, (stream, middle))
    return middle


# Attention.

Q, K, VALUES = 1.13, 2.8, 4.47


def attention_diagram(ax: Axes, config: GPTConfig) -> Axes:
    """Draw causal self-attention from x to what is added to the stream, with the shape at every step.

    The squares show the T × T numbers of one head, for a text of five tokens. Tinted boxes have
    weights. Made for 5.6 by 7.9 inches.
    """
    canvas(ax, 5.6, 7.9)
    C, H, D = config.n_embd, config.n_head, config.head_dim
    _heads_apart(ax, C, H, D)
    box(ax, (1.965, 3.86), 3.3, 0.4, rf"$Q\,K^\top / \sqrt{{{D}}}$   (B, {H}, T, T)", weights=False)
    for x in (Q, K):
        arrow(ax, (x, 4.5), (x, 4.06))
    _squares(ax, config)
    arrow(ax, (VALUES, 4.5), (VALUES, 3.28))
    box(ax, (VALUES, 2.95), 1.5, 0.66, f"weights · V\n(B, {H}, T, {D})", weights=False, size=10)
    arrow(ax, (VALUES, 2.62), (VALUES, 2.08))
    box(ax, (K, 1.9), 5.0, 0.36, f"merge the heads  (B, T, {C:,})", weights=False)
    arrow(ax, (K, 1.72), (K, 1.46))
    box(ax, (K, 1.28), 3.2, 0.36, f"c_proj  {C:,} → {C:,}")
    arrow(ax, (K, 1.1), (K, 0.84))
    box(ax, (K, 0.66), 3.2, 0.36, f"dropout {config.resid_pdrop:g}", weights=False)
    arrow(ax, (K, 0.48), (K, 0.26))
    ax.text(K, 0.12, f"(B, T, {C:,})", ha="center", va="center")
    return ax


def _heads_apart(ax: Axes, C: int, H: int, D: int) -> None:
    """From x to the queries, keys and values of each head."""
    ax.text(K, 7.78, f"x  (B, T, {C:,})", ha="center", va="center")
    arrow(ax, (K, 7.65), (K, 7.4))
    box(ax, (K, 7.22), 3.2, 0.36, f"c_attn  {C:,} → {3 * C:,}")
    arrow(ax, (K, 7.04), (K, 6.66))
    ax.text(K + 0.15, 6.86, f"(B, T, {3 * C:,})", va="center")
    for x, name in ((Q, "Q"), (K, "K"), (VALUES, "V")):
        box(ax, (x, 6.41), 5.0 / 3, 0.5, f"{name}\n(B, T, {C:,})", weights=False, size=10)
        arrow(ax, (x, 6.16), (x, 5.9))
        arrow(ax, (x, 5.54), (x, 5.2))
        cards(ax, (x, 4.79), 1.4, 0.58, f"{name}\n(B, {H}, T, {D})")
    box(ax, (K, 5.72), 5.0, 0.36, f"split into {H} heads of {D:,}", weights=False)


def _squares(ax: Axes, config: GPTConfig) -> None:
    """Scores, mask and softmax as small squares from left to right."""
    T, size, middle = 5, 0.8, 2.95
    scores = np.cos(np.arange(T * T).reshape(T, T) * 2.4) + 1  # any numbers will do
    allowed = np.tril(np.exp(2 * scores))
    ys = middle + size / 2 - np.arange(T + 1) * size / T
    lefts = (0.35, 1.5, 2.65)
    for left, shown, name in zip(
        lefts,
        (scores / 2.5, scores / 2.5, allowed / allowed.sum(axis=1, keepdims=True)),
        ("scores", "mask", f"softmax\ndropout {config.attn_pdrop:g}"),
        strict=True,
    ):
        xs = left + np.arange(T + 1) * size / T
        ax.pcolormesh(xs, ys, shown, cmap=WEIGHTS, vmin=0, vmax=1, edgecolors="white", linewidth=0.5)
        if name != "scores":
            hatch_future(ax, xs, ys)
        ax.add_patch(
            Rectangle((left, middle - size / 2), size, size, fill=False, edgecolor=INK, linewidth=1.2)
        )
        ax.text(left + size / 2, middle - size / 2 - 0.07, name, ha="center", va="top", fontsize=10)
    arrow(ax, (lefts[0] + size / 2, 3.66), (lefts[0] + size / 2, middle + size / 2))
    for left, end in zip(lefts, (*lefts[1:], VALUES - 0.75), strict=True):
        arrow(ax, (left + size, middle), (end, middle))
