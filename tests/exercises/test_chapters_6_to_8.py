"""What learners of chapters 6 to 8 hand in, and the numbers that the catalogue knows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gptlab.config import PRESETS, GPTConfig
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
    assert report.right == "6 of 6 cases"
    assert report.diagnosis.id == "one-token"
    assert "nan" in report.diagnosis.evidence


@pytest.mark.parametrize(("floor", "name"), [(1e-8, "floored"), (1e-10, "floored-lower"), (1e-12, None)])
def test_a_floor_under_the_probabilities_does_not_pass(floor, name):
    def next_token_loss(logits, tokens):
        p = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None])
        return -(p + floor).log().mean()

    report = examine(find("next_token_loss"), next_token_loss)
    assert report.right == "5 of 6 cases"
    assert getattr(report.diagnosis, "id", None) == name


def test_a_loss_as_a_plain_number_gives_no_gradient():
    def next_token_loss(logits, tokens):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()

    assert examine(find("next_token_loss"), next_token_loss).diagnosis.id == "no-gradient"


def test_a_reshape_for_cross_entropy_is_named():
    def next_token_loss(logits, tokens):
        B, T, V = logits.shape
        return F.cross_entropy(logits[:, :-1].reshape(B, V, T - 1), tokens[:, 1:])

    report = examine(find("next_token_loss"), next_token_loss)
    assert report.diagnosis.id == "reshaped"
    assert "got" in report.diagnosis.evidence, "a single number is shown"


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


# Chapter 8: the tables of numbers, written out, not computed

TOTALS = {
    124_439_808: None,
    117_000_000: "paper's label",
    163_037_184: "second name",
    123_653_376: "position table is missing",
    85_054_464: "blocks alone",
    85_056_000: "blocks and ln_f",
    84_934_656: "matrices of the blocks alone",
    85_842_432: "token table is missing",
    46_473_216: "one block",
    124_438_272: "final LayerNorm",
    124_401_408: "LayerNorms are missing",
    124_421_376: "one LayerNorm",
    124_356_864: "biases of the linear layers",
    124_337_664: "all biases are missing",
    124_318_464: "matrices and tables alone",
    124_412_160: "biases of Q, K and V",
    163_009_536: "two things",
    117_352_704: "output projection",
    116_929_536: "GPT-1",
    104_975_616: "the weights of Q, K and V are divided",
    104_950_272: "weights and biases of Q, K and V are divided",
    137_022_720: "masks are counted",
    175_620_096: "two things",
    124_475_904: "50,304",
    163_109_376: "50,304",
    124_439_040: "one token is missing",
    124_490_065: "head has a bias",
}
BLOCKS = {
    7_087_872: None,
    7_077_888: "12C²",
    7_084_800: "two LayerNorms are missing",
    6_497_280: "output projection",
    7_080_960: "four linear layers",
    2_362_368: "first matrix of the MLP",
    4_722_432: "MLP alone",
    85_054_464: "twelve",
}
FLOPS = {
    284_812_800: None,
    207_618_048: "77,194,752",
    142_406_400: "as one",
    265_938_432: "masked half",
    247_064_064: "attention's own products are missing",
    248_879_616: "twice the number of parameters",
}


@pytest.mark.parametrize(
    ("name", "table"), [("gpt2_total", TOTALS), ("block_total", BLOCKS), ("forward_flops", FLOPS)]
)
def test_the_numbers_of_the_ledger(name, table):
    for answer, words in table.items():
        report = examine(find(name), answer)
        if words is None:
            assert report.status == "passed"
        else:
            assert words in report.diagnosis.message, report


@pytest.mark.parametrize(("answer", "words"), [("117M", "paper's label"), ("163M", "second name")])
def test_a_total_as_people_say_it_is_recognised(answer, words):
    assert examine(find("gpt2_total"), "124M").status == "passed"
    assert words in examine(find("gpt2_total"), answer).diagnosis.message


@pytest.mark.parametrize(
    ("on", "totals"),
    [
        ((), [354_823_168, 774_030_080, 1_557_611_200]),
        (("head-twice",), [406_286_336, 838_359_040, 1_638_022_400]),
        (("fixed-width",), [304_466_944, 585_212_672, 1_046_270_656]),
    ],
)
def test_the_totals_of_the_other_sizes(on, totals):
    configs = {name: PRESETS[name] for name in ("gpt2-medium", "gpt2-large", "gpt2-xl")}
    assert list(find("size_totals").reference(configs, on=frozenset(on)).values()) == totals


def test_a_ledger_with_layers_and_heads_exchanged_is_right_for_small_only():
    ledger = find("ledger").reference
    wrong = frozenset({"heads-for-layers"})
    assert ledger(GPTConfig(), on=wrong) == ledger(GPTConfig())
    assert sum(ledger(GPTConfig()).values()) == 124_439_808

    report = examine(find("ledger"), lambda config: ledger(config, on=wrong))
    assert report.diagnosis.id == "heads-for-layers"
    assert "expected" in report.diagnosis.evidence
