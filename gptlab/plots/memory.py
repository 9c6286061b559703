"""Memory on a picture: what is alive along a step, and what a step takes, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from gptlab.memory.timeline import Timeline
from gptlab.plots.style import BLUE, INK, ORANGE, PALE

# Told apart by lightness and hatching as well as by colour, so that they can be read in grey.
LOOKS: Mapping[str, dict[str, Any]] = {
    "weights and AdamW": {"facecolor": BLUE},
    "gradients": {"facecolor": "white", "hatch": "xx"},
    "activations": {"facecolor": PALE},
    "in passing": {"facecolor": ORANGE, "hatch": "//"},
}

OTHER_LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": BLUE},
    {"facecolor": PALE},
    {"facecolor": ORANGE, "hatch": "//"},
    {"facecolor": "white", "hatch": "xx"},
    {"facecolor": "white", "hatch": ".."},
    {"facecolor": INK},
)


def memory_timeline(ax: Axes, timeline: Timeline) -> Axes:
    """Draw what is alive after each operation of a replayed step, in GB, stacked by kind, with the peak named.

    Args:
        ax: where to draw; 5.6 inches wide or more.
        timeline: from :func:`gptlab.memory.replay.replay`, which knows the kinds.
    """
    moments = timeline.moments
    first, steps = moments[0], range(len(moments))
    state = min(m.live - m.activations - m.gradients for m in moments)
    kinds = {
        "weights and AdamW": [state for _ in moments],
        "gradients": [m.gradients for m in moments],
        "activations": [m.activations for m in moments],
        "in passing": [m.live - state - m.activations - m.gradients for m in moments],
    }
    below = [0.0] * len(moments)
    for kind, sizes in kinds.items():
        above = [b + size / 1e9 for b, size in zip(below, sizes, strict=True)]
        look = {"edgecolor": INK, "linewidth": 0.4, **LOOKS[kind]}
        ax.fill_between(steps, below, above, label=kind, step="post", **look)
        below = above
    peak = timeline.peak
    at = moments.index(peak)
    ax.plot([at], [peak.live / 1e9], "o", color=INK, markersize=5)
    right = at < 0.55 * len(moments)  # of the peak there is more room for its name
    ax.annotate(
        f"{peak.live / 1e9:.3f} GB\n{peak.operation.strip('_').removesuffix('_data')}",
        (at, peak.live / 1e9),
        xytext=(8 if right else -8, 4 if right else 6),
        textcoords="offset points",
        ha="left" if right else "right",
        va="top" if right else "bottom",
        fontsize=10,
    )
    for phase in dict.fromkeys(m.phase for m in moments if m.phase != first.phase):
        begins = next(i for i, m in enumerate(moments) if m.phase == phase)
        ax.axvline(begins, color=INK, linewidth=0.8, linestyle=":")
    middles = {}
    for phase in dict.fromkeys(m.phase for m in moments):
        where = [i for i, m in enumerate(moments) if m.phase == phase]
        if len(where) > len(moments) / 20:
            middles[(where[0] + where[-1]) / 2] = phase
    ax.set_xticks(list(middles), list(middles.values()))
    ax.tick_params(axis="x", length=0)
    ax.set(
        ylabel="GB alive", xlim=(0, len(moments) - 1), ylim=(0, (1.08 if right else 1.25) * peak.live / 1e9)
    )
    ax.legend(frameon=False, fontsize=10, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def memory_bars(ax: Axes, bars: Mapping[str, Mapping[str, int]], unit: str = "GB") -> Axes:
    """Draw one bar for each label, divided into its parts, the first label on top and each sum at its end.

    Args:
        ax: where to draw.
        bars: for each label its parts and their bytes. The parts of ``LOOKS`` have a look of their own, six others
            can be told apart.
        unit: ``"GB"`` or ``"MB"``, decimal.

    Raises:
        ValueError: there are more parts than can be told apart.
    """
    size = {"GB": 1e9, "MB": 1e6}[unit]
    others = iter(OTHER_LOOKS)
    looks = {part: LOOKS[part] for parts in bars.values() for part in parts if part in LOOKS}
    for part in (part for parts in bars.values() for part in parts):
        if part not in looks:
            look = next(others, None)
            if look is None:
                raise ValueError(
                    f"the part {part!r} is one more than the {len(OTHER_LOOKS)} that can be told apart"
                )
            looks[part] = look
    longest = max(sum(parts.values()) for parts in bars.values()) / size
    named: dict[str, Any] = {}
    for y, parts in enumerate(bars.values()):
        left = 0.0
        for part, count in parts.items():
            (bar,) = ax.barh(
                y, count / size, left=left, edgecolor=INK, linewidth=0.8, height=0.62, **looks[part]
            )
            named.setdefault(part, bar)
            left += count / size
        ax.text(
            left + longest / 80, y, f"{left:.2f}" if unit == "GB" else f"{left:,.0f}", va="center", fontsize=10
        )
    ax.set(yticks=range(len(bars)), yticklabels=bars, xlim=(0, 1.14 * longest), xlabel=unit)
    ax.invert_yaxis()
    ax.legend(
        list(named.values()), list(named), frameon=False, fontsize=10, ncols=2, columnspacing=1.2,
        loc="lower center", bbox_to_anchor=(0.45, 1.0),
    )  # fmt: skip
    return ax
