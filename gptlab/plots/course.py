"""The course on one page: GPT-2 from text to the next token, and the chapter that builds each part."""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger
from gptlab.plots.style import BLUE, INK, PALE

LEFT, RIGHT, WIDTH, HEIGHT = 0.0, 6.3, 5.4, 0.8


def course_map(ax: Axes, config: GPTConfig) -> Axes:
    """Draw the model from top to bottom with the number of each chapter; all sizes come from ``config``."""
    V, C, L, H = config.vocab_size, config.n_embd, config.n_layer, config.n_head
    total = Ledger.from_config(config).total
    frame = FancyBboxPatch((-0.35, 3.35), WIDTH + 0.7, 3.1, "round,pad=0.1", fill=False, edgecolor=INK)
    ax.add_patch(frame)
    ax.text(WIDTH + 0.3, 6.15, f"× {L} blocks", ha="right", va="center")
    steps = [
        (9.0, "", "text", False),
        (7.9, "1", f"tokens: {V:,} in the list", True),
        (6.8, "2", f"input tensor: (B, T, {C})", True),
        (5.0, "3", f"attention: {H} heads", True),
        (3.6, "4", f"MLP: {C} → {4 * C:,} → {C}", True),
        (2.2, "5", "final LayerNorm", True),
        (1.1, "6", f"unembedding: {V:,} scores", True),
        (0.0, "11", "the next token", True),
    ]
    for y, chapter, text, boxed in steps:
        _step(ax, LEFT, y, WIDTH, text, chapter, boxed)
    for (above, *_), (below, *_) in pairwise(steps):
        ends = (WIDTH / 2, below + HEIGHT + 0.02), (WIDTH / 2, above - 0.02)
        ax.annotate("", *ends, arrowprops={"arrowstyle": "->"})
    _step(ax, RIGHT, 6.8, 3.9, "weight tying", "7", True)
    _step(ax, RIGHT, 5.0, 3.9, f"ledger:\n{total:,}", "8", True)
    _step(ax, RIGHT, 3.6, 3.9, "memory", "9", True)
    _step(ax, RIGHT, 2.2, 3.9, "training", "10", True)
    for xs, ys in ([WIDTH, RIGHT], [7.2, 7.2]), ([6.0, 6.0, WIDTH], [7.2, 1.5, 1.5]):
        ax.plot(xs, ys, color=BLUE, linewidth=1.5, linestyle="--")  # one table, used in 2 and in 6
    ax.set(xlim=(-0.6, 10.4), ylim=(-0.2, 9.7))
    ax.axis("off")
    return ax


def _step(ax: Axes, x: float, y: float, width: float, text: str, chapter: str, boxed: bool) -> None:
    if boxed:
        ax.add_patch(FancyBboxPatch((x, y), width, HEIGHT, "round,pad=0.02", facecolor=PALE, edgecolor=INK))
    indent = 0.75 if chapter else 0.0
    ax.text(x + indent + (width - indent) / 2, y + HEIGHT / 2, text, ha="center", va="center")
    if chapter:
        ax.text(x + 0.4, y + HEIGHT / 2, chapter, ha="center", va="center", weight="bold", color=BLUE)
