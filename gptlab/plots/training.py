"""A training run on one picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from gptlab.plots.style import BLUE, INK, ORANGE


def loss_curve(
    ax: Axes,
    steps: Sequence[int],
    losses: Sequence[float],
    validation: Sequence[tuple[int, float]] = (),
    smoothing: int = 20,
) -> Axes:
    """Draw a run's loss: each step's, thin; the mean of the last ``smoothing``, thick; held-out text, as dots.

    Args:
        ax: where to draw.
        steps: step numbers.
        losses: the loss of each step's batch, in nats per token.
        validation: (step, loss on held-out text).
        smoothing: over how many steps the thick line is the mean.
    """
    means = []
    for i in range(len(losses)):
        last = losses[max(0, i + 1 - smoothing) : i + 1]
        means.append(sum(last) / len(last))
    ax.plot(steps, losses, color=BLUE, linewidth=0.5, alpha=0.4)
    ax.plot(steps, means, color=BLUE, linewidth=1.8, label="training")
    if validation:
        at, held_out = zip(*validation, strict=True)
        ax.plot(at, held_out, "o--", color=ORANGE, markeredgecolor=INK, markersize=5, label="held-out text")
    ax.set(xlabel="step", ylabel="loss, nats per token")
    ax.legend(frameon=False)
    return ax
