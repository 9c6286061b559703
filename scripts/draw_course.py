"""Draw the map of the course for the front page: python scripts/draw_course.py [FILE]"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from gptlab.config import PRESETS
from gptlab.plots import course_style
from gptlab.plots.course import course_map

FILE = Path(__file__).resolve().parents[1] / "book/_static/course-map.svg"


def svg() -> bytes:
    """The drawing, the same bytes every time."""
    mpl.use("agg")
    course_style()
    fig, ax = plt.subplots(figsize=(5.6, 5.4))
    course_map(ax, PRESETS["gpt2"])
    out = io.BytesIO()
    fig.savefig(out, format="svg", metadata={"Date": None})
    plt.close(fig)
    return out.getvalue()


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_bytes(svg())
