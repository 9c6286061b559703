import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

import matplotlib.pyplot as plt

from gptlab.plots.tying import ablation_curves, logit_picture, tied_gradients


@pytest.fixture
def ax():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def legend(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_each_row_bears_its_logit(ax):
    logit_picture(ax, [1, 0], {"a": [1, 0], "b": [2, 1.2]})
    assert {"a: logit 1", "b: logit 2"} <= set(texts(ax))


def test_on_the_dashed_line_both_logits_are_equal(ax):
    a, b = np.array([1.0, 0.3]), np.array([2.0, 1.2])
    logit_picture(ax, [1, 0], {"a": a, "b": b})
    (dashed,) = (line for line in ax.lines if line.get_linestyle() == "--")
    for point in dashed.get_xydata():
        assert point @ a == pytest.approx(point @ b)


@pytest.mark.parametrize(
    "rows", [{"a": [1, 0]}, {"a": [1, 0], "b": [1, 0]}, {"a": [1, 0], "b": [0, 1], "c": [1, 1]}]
)
def test_without_two_different_rows_there_is_no_line(ax, rows):
    logit_picture(ax, [1, 0], rows)
    assert not [line for line in ax.lines if line.get_linestyle() == "--"]


def test_a_vector_that_does_not_fit_the_plane_is_named(ax):
    with pytest.raises(ValueError, match=r"b has shape \(3,\)"):
        logit_picture(ax, [1, 0], {"a": [1, 0], "b": [1, 2, 3]})


def test_rows_without_a_gradient_are_counted_out(ax):
    tied_gradients(ax, [0, 3, 0, 1], [4, 2, 1, 3])
    assert legend(ax) == ["output side: 4 rows", "input side: 2 rows"]
    outputs, inputs = ax.lines
    assert list(outputs.get_ydata()) == [4, 3, 2, 1]
    assert list(inputs.get_ydata()) == [3, 1]


@pytest.mark.parametrize("inputs", [[1, 2], [[1, 2, 3]]])
def test_both_sides_are_of_one_table(ax, inputs):
    with pytest.raises(ValueError, match="one table"):
        tied_gradients(ax, inputs, [1, 2, 3])


def test_the_thick_line_is_the_mean_of_the_runs(ax):
    ablation_curves(
        ax, {"tied": [[(1, 4.0), (2, 2.0)], [(1, 6.0), (2, 3.0)]], "untied": [[(1, 5.0), (2, 4.0)]]}
    )
    assert legend(ax) == ["tied", "untied"]
    means = [line for line in ax.lines if line.get_linewidth() == 2]
    assert [list(line.get_ydata()) for line in means] == [[5.0, 2.5], [5.0, 4.0]]
    assert len({line.get_linestyle() for line in means}) == 2


def test_runs_measured_at_other_steps_have_no_mean(ax):
    with pytest.raises(ValueError, match="'tied'"):
        ablation_curves(ax, {"tied": [[(1, 4.0)], [(2, 4.0)]]})
