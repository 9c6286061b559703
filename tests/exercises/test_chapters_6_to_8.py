"""What learners of chapters 6 to 8 hand in, and the numbers that the catalogue knows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gptlab.config import GPTConfig
from gptlab.exercises.engine import examine
from gptlab.exercises.exercise import find

# Chapter 6


def test_a_bigram_that_knows_the_next_token_loses_nothing_with_one_shift_only():
    tokens = torch.arange(6)[None] % 4
    logits = 100.0 * F.one_hot((tokens + 1) % 4, 4).float()
    loss = find("next_token_loss").reference
    assert loss(logits, tokens) == 0
    for mistake in ("no-shift", "backwards", "shifted-twice"):
        assert loss(logits, tokens, on=frozenset({mistake})) == pytest.approx(100)


def test_a_loss_of_one_token_is_nan_and_named():
    def next_token_loss(logits, tokens):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    report = examine(find("next_token_loss"), next_token_loss)
    assert report.right == "5 of 5 cases"
    assert report.diagnosis.id == "one-token"
    assert "nan" in report.diagnosis.evidence


def test_a_loss_as_a_plain_number_gives_no_gradient():
    def next_token_loss(logits, tokens):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()

    assert examine(find("next_token_loss"), next_token_loss).diagnosis.id == "no-gradient"


def test_a_reshape_for_cross_entropy_is_named():
    def next_token_loss(logits, tokens):
        B, T, V = logits.shape
        return F.cross_entropy(logits[:, :-1].reshape(B, V, T - 1), tokens[:, 1:])

    assert examine(find("next_token_loss"), next_token_loss).diagnosis.id == "reshaped"


def test_a_layer_norm_of_ones_own_learns_nothing():
    def head_logits(x, W_E, ln_f):
        return F.layer_norm(x, x.shape[-1:], ln_f.weight.data, ln_f.bias) @ W_E.T

    report = examine(find("head_logits"), head_logits)
    assert report.diagnosis.id == "no-gradient"
    assert "ln_f.weight" in report.diagnosis.message


def test_a_head_that_changes_the_module_is_found():
    def head_logits(x, W_E, ln_f):
        logits = ln_f(x) @ W_E.T
        with torch.no_grad():
            ln_f.weight.fill_(1)
        return logits

    assert examine(find("head_logits"), head_logits).diagnosis.id == "mutates"


def test_one_tensor_instead_of_two_is_said():
    report = examine(find("make_batch"), lambda data, starts, T: data[:T])
    assert report.diagnosis.id == "not-two"
    assert "a Tensor" in report.diagnosis.message


@pytest.mark.parametrize("answer", [math.log(50257), torch.tensor(50257.0).log().item(), "10.825", 10.82])
def test_the_first_loss_passes_as_finely_as_one_likes(answer):
    assert examine(find("first_loss"), answer).status == "passed"


@pytest.mark.parametrize("answer", [10.96, "10.979", 10.98, math.log2(50257), math.log10(50257), 1 / 50257])
def test_other_first_losses_are_named(answer):
    assert examine(find("first_loss"), answer).diagnosis


# Chapter 7


def clone(model):
    model.lm_head.weight = torch.nn.Parameter(model.wte.weight.clone())


def copy(model):
    model.lm_head.weight.data.copy_(model.wte.weight)


def new_parameter(model):
    model.lm_head.weight = torch.nn.Parameter(model.wte.weight)


def data(model):
    model.lm_head.weight.data = model.wte.weight.data


def detached(model):
    model.lm_head.weight = torch.nn.Parameter(model.wte.weight.detach(), requires_grad=False)


def frozen(model):
    model.wte.weight.requires_grad_(False)
    model.lm_head.weight = model.wte.weight


def the_other_way_round(model):
    model.wte.weight = model.lm_head.weight


def to_a_name(model):
    head = model.lm_head.weight
    head = model.wte.weight  # noqa: F841


@pytest.mark.parametrize(
    ("tie", "name"),
    [
        (clone, "copied"),
        (copy, "copied"),
        (new_parameter, "two-parameters"),
        (data, "two-parameters"),
        (detached, "detached"),
        (frozen, "frozen"),
        (the_other_way_round, "head-wins"),
        (to_a_name, "not-tied"),
    ],
)
def test_the_ways_to_tie_wrongly_are_named(tie, name):
    report = examine(find("tie"), tie)
    assert report.diagnosis, report
    assert report.diagnosis.id == name, report
    assert all(len(line) <= 80 for line in str(report).splitlines())


def test_a_gradient_that_is_added_by_indexing_loses_repeated_tokens():
    def tied_gradient(W, H, tokens, grad_logits):
        G = torch.einsum("btv,btc->vc", grad_logits, H)
        G[tokens.flatten()] += (grad_logits @ W).flatten(0, 1)
        return G

    assert examine(find("tied_gradient"), tied_gradient).diagnosis.id == "overwritten"


def test_the_tied_gradient_is_that_of_autograd():
    W, positions = torch.randn(7, 3, requires_grad=True), torch.randn(5, 3)
    tokens = torch.randint(7, (2, 5))
    H = W[tokens] + positions
    logits = H @ W.T
    logits.retain_grad()
    find("next_token_loss").reference(logits, tokens).backward()
    with torch.no_grad():
        ours = find("tied_gradient").reference(W, H, tokens, logits.grad)
    assert torch.allclose(ours, W.grad, atol=1e-6)


def test_the_report_of_gpt2_small():
    report = find("tying_report").reference(GPTConfig())
    assert report["parameters"] == 38_597_376
    assert report["percent"] == pytest.approx(23.674, abs=1e-3)
    assert report["bytes"] == 154_389_504


@pytest.mark.parametrize("answer", ["23.67 %", 23.67, 0.2367, "23.7 %", 100 * 38_597_376 / 163_037_184])
def test_the_saving_passes_as_a_percentage_or_a_share(answer):
    assert examine(find("tying_saving"), answer).status == "passed"


@pytest.mark.parametrize("answer", ["31.02 %", 31.02, 50.0, "50.0 %", 47.35, 62.03])
def test_other_savings_are_named(answer):
    assert examine(find("tying_saving"), answer).diagnosis
