from dataclasses import replace

import matplotlib as mpl
import pytest

mpl.use("agg")

import draw_course
import matplotlib.pyplot as plt

from gptlab import PRESETS
from gptlab.plots import boxes, course_style
from gptlab.plots.course import course_map


@pytest.fixture
def ax():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("name", PRESETS)
def test_the_map_shows_the_numbers_of_its_config(ax, name):
    config = replace(PRESETS[name], vocab_size=1234)
    shown = " ".join(texts(course_map(ax, config)))
    assert "tokens: 1,234 in the list" in shown
    assert f"(B, T, {config.n_embd})" in shown
    assert f"MLP: {config.n_embd} → {4 * config.n_embd:,} → {config.n_embd}" in shown
    assert f"× {config.n_layer} blocks" in shown
    assert f"attention: {config.n_head} heads" in shown


def test_the_map_on_the_front_page_is_up_to_date():
    """If this fails, run: python scripts/draw_course.py, and look at the drawing."""
    assert draw_course.FILE.read_bytes() == draw_course.svg()


def test_each_token_gets_a_box_with_its_id_and_spaces_are_visible(ax):
    boxes.token_rows(ax, [["The", " cat"]], ids=[[464, 3797]], labels=["row"])
    assert texts(ax) == ["The", "464", "␣cat", "3797", "row"]
    assert len(ax.patches) == 2


def test_a_grid_shows_every_number(ax):
    boxes.number_grid(ax, [[1.0, 2.5], [3.0, 4.0]], tinted_rows=[1])
    assert texts(ax) == ["1", "2.5", "3", "4"]


def test_the_style_keeps_figures_on_white():
    course_style()
    assert mpl.rcParams["figure.facecolor"] == "white"
