"""The pictures of memory show the numbers they are given."""

import matplotlib.pyplot as plt
import pytest

from gptlab.memory.replay import replay
from gptlab.plots.memory import OTHER_LOOKS, memory_bars, memory_timeline
from tests.memory.steps import tiny_step


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_the_timeline_names_its_peak_and_reaches_it(ax):
    timeline = replay(tiny_step())
    memory_timeline(ax, timeline)
    (label,) = texts(ax)
    assert "log_softmax_backward" in label
    assert f"{timeline.peak.live / 1e9:.3f} GB" in label
    top = max(path.vertices[:, 1].max() for areas in ax.collections for path in areas.get_paths())
    assert top == pytest.approx(timeline.peak.live / 1e9)


def test_the_timeline_has_four_kinds_and_its_phases(ax):
    memory_timeline(ax, replay(tiny_step()))
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["weights and AdamW", "gradients", "activations", "in passing"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["forward", "backward"]


def test_bars_are_as_long_as_their_parts_and_show_their_sum(ax):
    memory_bars(ax, {"a": {"weights": 5 * 10**8, "activations": 10**9}, "b": {"weights": 25 * 10**7}})
    assert texts(ax) == ["1.50", "0.25"]
    assert [bar.get_width() for bar in ax.patches] == [0.5, 1.0, 0.25]


def test_more_parts_than_can_be_told_apart_are_refused(ax):
    with pytest.raises(ValueError, match="is one more than the 6"):
        memory_bars(ax, {"a": {f"part {i}": 1 for i in range(len(OTHER_LOOKS) + 1)}})
