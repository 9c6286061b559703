import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

import draw_course
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from gptlab import PRESETS, GPTConfig, Ledger
from gptlab.flops import forward_flops
from gptlab.plots import attention, boxes, card, course_style, curves, ribbon
from gptlab.plots import ledger as pictures
from gptlab.plots.architecture import attention_diagram, block_diagram, block_sketch, model_diagram
from gptlab.plots.course import course_map

ODD = GPTConfig(
    vocab_size=1234, n_positions=77, n_embd=96, n_layer=5, n_head=3,
    embd_pdrop=0.01, attn_pdrop=0.02, resid_pdrop=0.03,
)  # fmt: skip
LARGE = GPTConfig(vocab_size=256_000, n_positions=2048, n_embd=12_288, n_layer=96, n_head=96)
CONFIGS = {**PRESETS, "odd": ODD, "untied": replace(PRESETS["gpt2-xl"], tie_word_embeddings=False)}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


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


@pytest.mark.pinned("matplotlib")  # it writes its version into the drawing
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


# The architecture.


def numbers(ax) -> set[int]:
    """All integers drawn, without their commas."""
    return {
        int(n.replace(",", "")) for n in re.findall(r"(?<![\d.,])\d[\d,]*(?![\d.])", "\n".join(texts(ax)))
    }


@every_config
def test_the_models_numbers_are_the_configs_and_the_ledgers(ax, config):
    ledger = Ledger.from_config(config)
    rest = 0 if config.tie_word_embeddings else ledger.subtotal("lm_head")
    blocks = ledger.total - ledger.subtotal("wte", "wpe", "ln_f") - rest
    expected = {config.vocab_size, config.n_positions, config.n_embd, config.n_layer, ledger.total, blocks}
    expected |= {
        ledger.subtotal(name) for name in ("wte", "wpe", "ln_f", "h.0.", "h.0.attn", "h.0.mlp", "h.0.ln_1")
    }
    assert numbers(model_diagram(ax, config)) - {1, 2} == expected  # less those of ln_1 and ln_2


@every_config
def test_a_dashed_line_shows_the_tie_and_only_a_tie(ax, config):
    model_diagram(ax, config)
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert len(dashed) == ("tied" in texts(ax)) == config.tie_word_embeddings


@pytest.mark.parametrize("pre_ln", [True, False])
@every_config
def test_the_blocks_numbers_are_the_configs(ax, config, pre_ln):
    block_diagram(ax, config, pre_ln=pre_ln)
    C = config.n_embd
    assert numbers(ax) - {1, 2} <= {C, 4 * C, config.n_head, config.head_dim}
    shown = " ".join(texts(ax))
    assert f"c_fc  {C:,} → {4 * C:,}" in shown
    assert f"c_proj  {4 * C:,} → {C:,}" in shown
    assert f"{config.n_head} heads of {config.head_dim}" in shown
    assert shown.count(f"dropout {config.resid_pdrop:g}") == 2


def where(ax, text) -> tuple[float, float]:
    (found,) = (t for t in ax.texts if t.get_text() == text)
    return found.get_position()


@pytest.mark.parametrize("draw", [block_sketch, lambda ax, **kw: block_diagram(ax, ODD, **kw)])
def test_layer_norm_is_in_the_branch_before_the_sublayer_or_on_the_stream_after_it(draw):
    fig, (pre, post) = plt.subplots(1, 2)
    draw(pre, pre_ln=True)
    draw(post, pre_ln=False)
    stream = pre.texts[0].get_position()[0]
    for ax, on_stream, above in ((pre, False, True), (post, True, False)):
        attention_y = next(t.get_position()[1] for t in ax.texts if t.get_text().startswith("attention"))
        x, y = where(ax, "ln_1")
        assert (x == stream) == on_stream
        assert (y > attention_y) == above
    plt.close(fig)


@every_config
def test_attentions_shapes_are_the_configs(ax, config):
    attention_diagram(ax, config)
    C, H, D = config.n_embd, config.n_head, config.head_dim
    shown = "\n".join(texts(ax))
    assert f"c_attn  {C:,} → {3 * C:,}" in shown
    assert f"c_proj  {C:,} → {C:,}" in shown
    assert f"split into {H} heads of {D}" in shown
    assert f"(B, {H}, T, T)" in shown
    assert shown.count(f"(B, {H}, T, {D})") == 4  # Q, K, V and their weighted sum
    assert rf"\sqrt{{{D}}}" in shown
    assert f"softmax\ndropout {config.attn_pdrop:g}" in shown
    assert f"\ndropout {config.resid_pdrop:g}\n" in shown


DRAWINGS = {
    "model": ((5.6, 7.9), model_diagram),
    "block": ((5.6, 6.7), block_diagram),
    "post-ln": ((5.6, 6.7), lambda ax, config: block_diagram(ax, config, pre_ln=False)),
    "attention": ((5.6, 7.9), attention_diagram),
    "ribbon": ((5.6, 4.3), lambda ax, config: ribbon.shape_ribbon(ax, ribbon.ATTENTION, config)),
}


@pytest.mark.parametrize("name", DRAWINGS)
@every_config
def test_no_text_is_small_or_leaves_its_box_or_meets_another(config, name):
    size, draw = DRAWINGS[name]
    with mpl.rc_context():
        course_style()
        fig, ax = plt.subplots(figsize=size)
        draw(ax, config)
        fig.canvas.draw()
    drawn = [t for t in ax.texts if t.get_text()]
    assert min(t.get_fontsize() for t in drawn) >= 10
    extents = [(t.get_text(), t.get_window_extent()) for t in drawn]
    rectangles = [p.get_window_extent() for p in ax.patches if isinstance(p, Rectangle)]
    for text, extent in extents:
        around = [r for r in rectangles if r.contains(*extent.get_points().mean(axis=0))] or [fig.bbox]
        innermost = around[-1]
        assert innermost.x0 < extent.x0 < extent.x1 < innermost.x1, text
    for (one, extent), (other, other_extent) in combinations(extents, 2):
        assert not extent.overlaps(other_extent), (one, other)
    plt.close(fig)


# Attention maps.


def causal_weights(*shape: int) -> np.ndarray:
    weights = np.tril(np.random.default_rng(0).random(shape) + 0.1)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_the_map_shows_the_weights_with_the_tokens_on_both_sides(ax):
    weights = causal_weights(3, 3)
    attention.attention_map(ax, weights, ["The", " cat", "\n"], "head 5")
    np.testing.assert_array_equal(ax.images[0].get_array(), weights)
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["The", "␣cat", "↵"]
    assert ax.get_title() == "head 5"
    assert ax.get_xlabel().startswith("key")
    assert ax.get_ylabel().startswith("query")


def test_the_map_hatches_exactly_what_the_mask_forbids(ax):
    attention.attention_map(ax, causal_weights(4, 4))
    hatched = {(p.get_x(), p.get_y(), p.get_width()) for p in ax.patches if p.get_hatch()}
    assert hatched == {(0.5, -0.5, 3.0), (1.5, 0.5, 2.0), (2.5, 1.5, 1.0)}


def test_a_weight_of_zero_is_white_and_darker_is_always_more():
    grey = attention.WEIGHTS(np.linspace(0, 1, 256))[:, :3] @ [0.299, 0.587, 0.114]
    assert attention.WEIGHTS(0.0) == (1, 1, 1, 1)
    assert np.all(np.diff(grey) < 0)


def test_queries_after_a_cache_are_the_last_positions(ax):
    weights = np.array([[0.2, 0.3, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4]])
    attention.attention_map(ax, weights, list("abcd"))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "d"]
    assert [(p.get_x(), p.get_y()) for p in ax.patches if p.get_hatch()] == [(2.5, -0.5)]


def test_without_a_mask_nothing_is_hatched(ax):
    attention.attention_map(ax, np.full((3, 3), 1 / 3), causal=False)
    assert not [p for p in ax.patches if p.get_hatch()]


@pytest.mark.parametrize(
    ("weights", "tokens", "message"),
    [
        (np.full((2, 2), 0.5), (), "causal=False"),
        (np.eye(3), ("a", "b"), "2 tokens do not label 3 keys"),
        (np.zeros((1, 2, 2)), (), r"shape \(1, 2, 2\)"),
        (np.ones((3, 2)), (), "3 queries but 2 keys"),
    ],
)
def test_a_map_that_would_mislead_is_refused(ax, weights, tokens, message):
    with pytest.raises(ValueError, match=message):
        attention.attention_map(ax, weights, tokens)


def test_each_head_gets_its_map_and_axes_left_over_are_blank():
    fig, axes = plt.subplots(2, 3)
    weights = causal_weights(5, 4, 4)
    flat = attention.attention_grid(axes, weights)
    assert [ax.get_title() for ax in flat] == [*(f"head {i}" for i in range(5)), ""]
    np.testing.assert_array_equal(flat[4].images[0].get_array(), weights[4])
    assert not flat[5].axison
    with pytest.raises(ValueError, match="5 heads need as many axes, but there are 2"):
        attention.attention_grid(axes[0, :2], weights)
    plt.close(fig)


# Ribbons.


@every_config
def test_the_ribbon_counts_the_numbers_of_each_step_per_token(ax, config):
    C, H, D, P = config.n_embd, config.n_head, config.head_dim, config.n_positions
    ribbon.shape_ribbon(ax, ribbon.ATTENTION, config)
    shown = texts(ax)
    assert f"{H} × {D} = {C:,}" in shown
    assert f"{H} × {P:,} = {H * P:,}" in shown
    assert f"{3 * C:,}" in shown
    ax.clear()
    shown = texts(ribbon.shape_ribbon(ax, [*ribbon.MODEL, *ribbon.MLP], config))
    assert {"1", f"{C:,}", f"{4 * C:,}", f"{config.vocab_size:,}"} <= set(shown)
    assert shown.count("(B, T, 4C)") == 2


def test_the_ribbon_is_wider_where_there_are_more_numbers(ax):
    ribbon.shape_ribbon(ax, ribbon.MODEL, PRESETS["gpt2"])
    ids, embedded, after, normed, logits = (p.get_width() for p in ax.patches if isinstance(p, Rectangle))
    assert ids < embedded == after == normed < logits


def test_the_ribbon_of_a_short_context_counts_that_context(ax):
    assert "12 × 8 = 96" in texts(ribbon.shape_ribbon(ax, ribbon.ATTENTION, PRESETS["gpt2"], context=8))


@pytest.mark.parametrize("shape", ["T C", "B C", "B T X", "B T hC"])
def test_a_shape_in_other_letters_is_refused(ax, shape):
    with pytest.raises(ValueError, match=shape):
        ribbon.shape_ribbon(ax, [("x", shape)], ODD)


# Curves.


def test_residual_norms_are_drawn_in_the_models_order(ax):
    curves.residual_norms(ax, [1.0, 2.0, 3.0, 4.0, 5.0])
    drawn = {c.get_label(): c.get_offsets().tolist() for c in ax.collections}
    assert drawn == {
        "embedding": [[0, 1]],
        "after attention": [[1, 2], [3, 4]],
        "after MLP": [[2, 3], [4, 5]],
    }
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1"]


def test_residual_norms_without_one_for_each_sublayer_are_refused(ax):
    with pytest.raises(ValueError, match="2L \\+ 1"):
        curves.residual_norms(ax, [1.0, 2.0])


def test_gradient_norms_are_logarithmic_and_told_apart_without_colour(ax):
    curves.gradient_norms(ax, {"Pre-LN": np.array([1.0, 0.9]), "Post-LN": [0.01, 0.1]})
    first, second = ax.lines
    assert ax.get_yscale() == "log"
    assert [line.get_label() for line in ax.lines] == ["Pre-LN", "Post-LN"]
    assert second.get_ydata().tolist() == [0.01, 0.1]
    assert first.get_linestyle() != second.get_linestyle()
    assert first.get_marker() != second.get_marker()


def test_a_gradient_of_zero_is_not_dropped_in_silence(ax):
    with pytest.raises(ValueError, match=r"'fresh' has a norm that is not positive: \[0.0, 1.0\]"):
        curves.gradient_norms(ax, {"fresh": [0.0, 1.0]})


def test_activation_curves_go_through_the_numbers_given(ax):
    x = np.linspace(-1, 1, 5)
    curves.activation_curves(ax, {"ReLU": (x, x.clip(0)), "x": (x, x)})
    relu = next(line for line in ax.lines if line.get_label() == "ReLU")
    assert relu.get_ydata().tolist() == [0, 0, 0, 0.5, 1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ReLU", "x"]


def test_more_lines_than_can_be_told_apart_are_refused(ax):
    with pytest.raises(ValueError, match="5 lines"):
        curves.gradient_norms(ax, {str(i): [1.0] for i in range(5)})


# The ledger.


@every_config
def test_every_bar_is_as_long_as_its_share(ax, config):
    parts = Ledger.from_config(config).parts()
    pictures.share_bars(ax, {"parameters": parts, "operations": forward_flops(config)})
    bars = [bar for bar in ax.patches if isinstance(bar, Rectangle)]
    first = [bar.get_width() for bar in bars[: len(parts)]]
    assert first == pytest.approx([100 * n / sum(parts.values()) for n in parts.values()])
    assert sum(bar.get_width() for bar in bars) == pytest.approx(200)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["parameters", "operations"]


def test_parts_too_small_to_see_are_drawn_but_not_named(ax):
    pictures.share_bars(ax, {"gpt2": Ledger.from_config(PRESETS["gpt2"]).parts()}, smallest=0.004)
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["token table", "position table", "attention", "MLP"]
    assert len(ax.patches) == 5


def test_parts_are_told_apart_without_colour():
    looks = {(mpl.colors.rgb_to_hsv(mpl.colors.to_rgb(look["facecolor"]))[2] > 0.95, look.get("hatch"))
             for name, look in pictures.LOOKS.items() if name in ("attention", "scores and sums", "head")}  # fmt: skip
    assert len(looks) == 3


@every_config
def test_every_tensor_of_the_map_has_the_area_of_its_parameters(ax, config):
    ledger = Ledger.from_config(config)
    pictures.ledger_map(ax, ledger)
    areas = sorted(patch.get_width() * patch.get_height() for patch in ax.patches)
    assert areas == pytest.approx(sorted(row.parameters / ledger.total for row in ledger))
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert f"{config.n_layer} blocks" in labels
    assert ("head" in labels) is not config.tie_word_embeddings


def test_a_waterfall_shows_each_change_and_the_sums_that_are_asked_for(ax):
    pictures.waterfall(ax, ("from", 1000), [("more", 500), ("between", None), ("less", -200), ("to", None)])
    assert texts(ax) == [" 1,000", " +500", " 1,500", " −200", " 1,300"]
    assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == [
        (0, 1000), (1000, 500), (0, 1500), (1300, 200), (0, 1300),
    ]  # fmt: skip
    assert [label.get_text() for label in ax.get_yticklabels()] == ["from", "more", "between", "less", "to"]


# The card.


@every_config
def test_the_cards_numbers_are_the_ledgers_and_add_up(config):
    ledger = Ledger.from_config(config)
    rows = {name.strip(): (factors, count) for name, factors, count in card.card_rows(config)}
    counts = {name: int(count.replace(",", "")) for name, (_, count) in rows.items() if count}
    C, L = config.n_embd, config.n_layer
    inside = ("attention", "MLP", "biases", "2 LayerNorms")
    assert sum(counts[name] for name in inside) == ledger.subtotal("h.0.") == 12 * C * C + 13 * C
    assert counts["All blocks"] == ledger.subtotal("h.")
    whole = ("tokens", "positions", "All blocks", "Final LayerNorm", "Head")
    assert sum(counts[name] for name in whole) == counts["Total"] == ledger.total
    assert (counts["Head"] == 0) is config.tie_word_embeddings
    for name in ("tokens", "positions", *inside, "All blocks", "Final LayerNorm"):
        factors = [int(factor.replace(",", "")) for factor in rows[name][0].split("×")]
        assert np.prod(factors) == counts[name]
    assert f"One block of {L}" in rows


@every_config
def test_the_card_says_what_tying_does(ax, config):
    card.budget_card(ax, config)
    shown = " ".join(texts(ax))
    V, C, total = config.vocab_size, config.n_embd, Ledger.from_config(config).total
    other = total + V * C if config.tie_word_embeddings else total - V * C
    assert ("Tied: the head is the token table and adds nothing" in shown) is config.tie_word_embeddings
    assert {V * C, other} <= numbers(ax)
    assert f"GPT-2 ({total / 1e6:,.0f}M): Architectural Accounting" in shown


@pytest.mark.parametrize("config", [*CONFIGS.values(), LARGE], ids=[*CONFIGS, "large"])
def test_on_the_card_nothing_overlaps_and_nothing_leaves_it(config):
    figure = plt.figure(figsize=(5.6, 5.6), layout="none")
    ax = card.budget_card(figure.add_axes((0, 0, 1, 1)), config)
    edge = card.BORDER
    side = ax.get_window_extent().width
    placed = [text.get_window_extent() for text in ax.texts if text.get_text()]
    assert all(edge < box.x0 and box.x1 < side - edge for box in placed)
    assert not any(one.overlaps(other) for one, other in combinations(placed, 2))
    plt.close(figure)


def test_the_cards_border_is_eight_pixels_of_navy_round_parchment():
    figure = plt.figure(figsize=(4, 4), dpi=100, layout="none")
    card.budget_card(figure.add_axes((0, 0, 1, 1)), ODD)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[:, :, :3]
    navy, parchment = (0, 0, 128), (0xFC, 0xF0, 0xDB)
    for row in (pixels[200], pixels[:, 200]):
        assert (row[:8] == navy).all()
        assert (row[-8:] == navy).all()
        assert tuple(row[9]) == tuple(row[-10]) == parchment
    plt.close(figure)


def test_drawing_does_not_load_torch():
    names = ("architecture", "ribbon", "curves", "ledger", "card")
    modules = ", ".join(f"gptlab.plots.{name}" for name in names)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
