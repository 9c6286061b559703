"""How many numbers stand for one token, from step to step: a ribbon that widens and narrows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log, prod

from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle

from gptlab.config import GPTConfig
from gptlab.plots.drawing import canvas
from gptlab.plots.style import BLUE, INK, PALE

MODEL = (
    ("token ids", "B T"),
    ("embeddings", "B T C"),
    ("blocks", "B T C"),
    ("ln_f", "B T C"),
    ("logits", "B T V"),
)
ATTENTION = (
    ("x", "B T C"),
    ("c_attn", "B T 3C"),
    ("heads of Q", "B H T D"),
    ("scores", "B H T T"),
    ("weights · V", "B H T D"),
    ("merged", "B T C"),
)
MLP = (("x", "B T C"), ("c_fc", "B T 4C"), ("GELU", "B T 4C"), ("c_proj", "B T C"))

MIDDLE, NARROWEST, WIDEST, STEP, BAND = 2.45, 1.05, 2.2, 0.62, 0.36


def shape_ribbon(
    ax: Axes, steps: Sequence[tuple[str, str]], config: GPTConfig, *, context: int | None = None
) -> Axes:
    """Draw the shape of the tensor after each step, from top to bottom.

    A band widens with the logarithm of the numbers that it holds for one token, from the fewest to the
    most; the count stands on its right. ``MODEL``, ``ATTENTION`` and ``MLP`` are lists of steps. Made
    for a figure 5.6 inches wide and 0.62 inches high for each step and for one more.

    Args:
        ax: where to draw.
        steps: a name and a shape each, such as ``("c_fc", "B T 4C")``: the course's letters, each perhaps
            with a factor.
        config: gives C, H, D and V.
        context: T, where a shape has it twice; ``n_positions`` without it.

    Raises:
        ValueError: a shape does not start with ``B`` and hold ``T``, or has an unknown letter.
    """
    height = STEP * (len(steps) + 1)
    canvas(ax, 5.6, height)
    T = config.n_positions if context is None else context
    sizes = {"C": config.n_embd, "H": config.n_head, "D": config.head_dim, "V": config.vocab_size, "T": T}
    factors = [_per_token(shape, sizes) for _, shape in steps]
    widths = _widths([prod(numbers) for numbers in factors])
    for x, text, side in [
        (0.05, "step", "left"),
        (MIDDLE, "shape", "center"),
        (5.5, "numbers per token", "right"),
    ]:
        ax.text(x, height - 0.3, text, ha=side, va="center", color=BLUE)
    ys = [height - STEP * (i + 1.4) for i in range(len(steps))]
    for (y, width), (below, next_width) in pairwise(zip(ys, widths, strict=True)):
        _cloth(ax, y - BAND / 2, width, below + BAND / 2, next_width)
    for y, width, numbers, (name, shape) in zip(ys, widths, factors, steps, strict=True):
        corner = (MIDDLE - width / 2, y - BAND / 2)
        ax.add_patch(Rectangle(corner, width, BAND, facecolor=PALE, edgecolor=INK, linewidth=1.2, zorder=3))
        ax.text(0.05, y, name, va="center")
        ax.text(MIDDLE, y, f"({', '.join(shape.split())})", ha="center", va="center", zorder=4)
        ax.text(5.5, y, _product(numbers), ha="right", va="center")
    return ax


def _per_token(shape: str, sizes: dict[str, int]) -> list[int]:
    """The factors of a shape apart from B and the first T."""
    letters = shape.split()
    if letters[:1] != ["B"] or "T" not in letters:
        raise ValueError(f"shape {shape!r} must start with B and hold T, as in 'B T C'")
    letters.remove("B")
    letters.remove("T")
    factors = []
    for letter in letters:
        times, name = letter[:-1] or "1", letter[-1]
        if name not in sizes or not times.isdigit():
            raise ValueError(f"shape {shape!r} has {letter!r}; the letters are B, T, {', '.join('CHDV')}")
        factors.append(int(times) * sizes[name])
    return factors


def _widths(counts: Sequence[int]) -> list[float]:
    fewest, most = log(min(counts)), log(max(counts))
    span = (most - fewest) or 1.0
    return [NARROWEST + (WIDEST - NARROWEST) * (log(count) - fewest) / span for count in counts]


def _product(numbers: Sequence[int]) -> str:
    """Such as ``12 × 64 = 768``."""
    total = f"{prod(numbers):,}"
    return total if len(numbers) < 2 else f"{' × '.join(f'{n:,}' for n in numbers)} = {total}"


def _cloth(ax: Axes, top: float, upper: float, bottom: float, lower: float) -> None:
    """The pale cloth between two bands."""
    corners = [(MIDDLE - upper / 2, top), (MIDDLE + upper / 2, top)]
    corners += [(MIDDLE + lower / 2, bottom), (MIDDLE - lower / 2, bottom)]
    ax.add_patch(Polygon(corners, facecolor=PALE, edgecolor="none", alpha=0.55, zorder=1))
