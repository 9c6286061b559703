"""The script behind chapter 4's comparison of Pre-LN and Post-LN: it does what it says, and its results are whole."""

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


def test_fresh_post_ln_s_gradient_grows_only_with_both_the_second_attention_and_xavier_s_weights(stored):
    for name, norms in stored["gradients"].items():
        order, stack, draw, _ = name.split()
        grows = norms == sorted(norms) and norms[-1] > 2 * norms[0]
        assert grows == ((order, stack, draw) == ("Post-LN", "decoder", "xavier")), name
        assert grows or norms[-1] < norms[0]


def test_the_script_repeats_a_stored_gradient(stored):
    again = post_ln.gradients(False, False, "xavier", 0)
    assert again == pytest.approx(stored["gradients"]["Post-LN alone xavier 0"], rel=1e-3)


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
