"""One look for all figures: few colours that differ in lightness too, so they read in grey."""

from __future__ import annotations

import matplotlib as mpl
from cycler import cycler

# Okabe and Ito's colour-blind safe colours, from dark to light.
BLUE = "#0072B2"
GREEN = "#009E73"
ORANGE = "#E69F00"
PALE = "#DCE9F2"
INK = "#222222"


def course_style() -> None:
    """Set matplotlib's defaults for the book: sizes that stay legible at the width of a phone."""
    mpl.rcParams.update(
        {
            "figure.figsize": (5.6, 3.0),
            "figure.dpi": 150,
            "figure.facecolor": "white",
            "font.size": 11,
            "axes.titlesize": 11,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN]),
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "gptlab",
        }
    )
