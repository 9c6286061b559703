"""The script behind chapter 10's comparison of Pre-LN and Post-LN: it does what it says, and its results are whole."""

from __future__ import annotations

import itertools
import json
from typing import Any

import post_ln
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gptlab.unembedding import next_token_loss


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return json.loads(post_ln.FILE.read_text("utf-8"))


def test_pre_ln_is_gpt2():
    model, ids = post_ln.fresh("scaled", 0), torch.arange(8)[None]
    assert torch.equal(post_ln.loss_of(model, ids, True), next_token_loss(model(ids), ids))


def test_post_ln_ends_with_a_norm_and_pre_ln_does_not():
    model, x = post_ln.fresh("full", 0), torch.randn(1, 8, 64)
    assert torch.allclose(post_ln.blocks(model, x, False).std(-1, correction=0), torch.ones(8), atol=1e-4)
    assert (post_ln.blocks(model, x, True).std(-1, correction=0) > 1.2).all()


def test_only_the_scale_of_what_writes_into_the_stream_differs_between_two_models_of_a_seed():
    full, scaled = (dict(post_ln.fresh(scale, 1).named_parameters()) for scale in ("full", "scaled"))
    ratios = {name: (full[name] / scaled[name]).nan_to_num(1) for name in full}
    for name, ratio in ratios.items():
        expected = 24**0.5 if name.endswith("c_proj.weight") else 1.0
        assert torch.allclose(ratio, torch.tensor(expected))


def test_the_share_that_differs_is_0_for_equal_vectors_and_1_for_opposite_ones():
    same = torch.ones(1, 4, 3)
    assert post_ln.share_that_differs(same) == 0
    assert post_ln.share_that_differs(torch.cat((same, -same))) == 1


def test_every_warm_up_is_over_long_before_its_run():
    assert all(3 * warmup <= post_ln.STEPS for *_, warmup in post_ln.KINDS)


def test_each_warm_up_has_its_control_without_one():
    for order, scale, rate, warmup in post_ln.KINDS:
        assert (order, scale, rate, 0) in post_ln.KINDS, warmup


def test_all_runs_are_stored_whole(stored):
    assert list(stored["runs"]) == list(post_ln.every_run())
    assert all(len(run["loss"]) == post_ln.STEPS // post_ln.EVERY for run in stored["runs"].values())


def test_the_script_repeats_the_start_of_a_stored_run(stored):
    again = post_ln.train(False, "full", 2e-3, 100, 0, steps=post_ln.EVERY)
    assert again["loss"] == pytest.approx(stored["runs"]["Post-LN full 0.002 100 0"]["loss"][:1], abs=1e-3)


def ends(stored: dict[str, Any], kind: str) -> list[tuple[float, float]]:
    return [
        (run["loss"][-1], run["differs"]) for name, run in stored["runs"].items() if name.startswith(kind)
    ]


def test_at_the_high_rate_post_ln_needs_the_warm_up_and_at_half_of_it_does_not(stored):
    for loss, differs in ends(stored, "Post-LN full 0.002 0 "):
        assert loss > 3.2
        assert differs < 0.005
    for kind in "Post-LN full 0.002 100 ", "Post-LN full 0.001 0 ":
        assert all(loss < 2.7 and differs > 0.1 for loss, differs in ends(stored, kind))


def test_pre_ln_needs_no_warm_up_at_either_rate(stored):
    assert all(loss < 2.8 and differs > 0.1 for loss, differs in ends(stored, "Pre-LN"))


def test_fresh_post_ln_s_gradient_grows_only_where_the_second_attention_sends_none_into_its_own_stream(
    stored,
):
    grown = {("Post-LN", "decoder", "xavier"), ("Post-LN", "detached", "xavier")}
    for name, norms in stored["gradients"].items():
        order, stack, draw, _ = name.split()
        ratio = norms[-1] / norms[0]
        assert (ratio > 2) == ((order, stack, draw) in grown), name
        assert ratio > 2 or ratio < 1.15


def test_what_the_second_attention_sends_back_changes_no_number_that_goes_forward(stored):
    """The last layer's W2 comes after the last second attention, so its gradient is the same with it and without."""
    for order, seed in itertools.product(post_ln.ORDERS, post_ln.SEEDS):
        own, detached = (stored["gradients"][f"{order} {kind} xavier {seed}"] for kind in ("own", "detached"))
        assert own[-1] == detached[-1]
        assert own[0] > 1.3 * detached[0]


@pytest.mark.parametrize("kind", ["alone", "own"])
def test_the_script_repeats_a_stored_gradient(stored, kind):
    again = post_ln.gradients(False, kind, "xavier", 0)
    assert again == pytest.approx(stored["gradients"][f"Post-LN {kind} xavier 0"], rel=1e-3)


def test_gradients_of_all_kinds_of_stacks_are_stored(stored):
    assert len(stored["gradients"]) == len(post_ln.STACKS) * len(post_ln.ORDERS) * len(post_ln.SEEDS)


def test_at_the_first_batch_the_last_block_s_gradient_is_somewhat_larger_in_post_ln(stored):
    first = stored["first gradients"]
    ratios = [first[f"Post-LN {seed}"][-1] / first[f"Pre-LN {seed}"][-1] for seed in post_ln.SEEDS_OF_FIRST]
    assert len(first) == 2 * len(ratios)
    assert min(ratios) == pytest.approx(1.03, abs=0.005)
    assert max(ratios) == pytest.approx(1.43, abs=0.005)


def test_the_script_repeats_the_stored_gradients_of_a_first_batch(stored):
    again = post_ln.first_gradients(False, 5)
    assert again == pytest.approx(stored["first gradients"]["Post-LN 5"], rel=1e-2)


def test_a_norm_behind_the_second_attention_shrinks_the_gradient_and_the_others_hardly_do():
    """Why the chapter's gradient grows: the second attention gives nothing back to the stream that it reads."""
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    for parameter in layer.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    states = [F.layer_norm(torch.randn(4, 32, 512), (512,)).requires_grad_()]
    other = F.layer_norm(torch.randn(4, 32, 512), (512,))
    mask, divisors = nn.Transformer.generate_square_subsequent_mask(32), []
    for branch, norm in [
        (lambda x: layer.self_attn(x, x, x, attn_mask=mask, need_weights=False)[0], layer.norm1),
        (lambda x: layer.multihead_attn(x, other, other, need_weights=False)[0], layer.norm2),
        (lambda x: layer.linear2(layer.linear1(x).relu()), layer.norm3),
    ]:
        total = states[-1] + branch(states[-1])
        divisors.append(total.std(dim=-1).mean().item())
        states.append(norm(total))
        states[-1].retain_grad()
    states[-1].backward(torch.randn_like(states[-1]))
    norms = [state.grad.norm().item() for state in states]
    shrinks = [after / before for before, after in itertools.pairwise(norms)]
    assert divisors[2] > 1.1  # the MLP
    assert shrinks[2] == pytest.approx(1, abs=0.05)
    assert shrinks[1] == pytest.approx(divisors[1], abs=0.01)
