"""What learners of chapters 3 to 5 hand in: right values that hide something, classes, functions that work in place."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gptlab.exercises.engine import examine, make_cases
from gptlab.exercises.exercise import find
from tests.exercises.test_catalogue import define

# Chapter 3


@pytest.mark.parametrize(
    "masked",
    [
        lambda scores, future: scores.masked_fill(future, -1e9),
        lambda scores, future: scores + future * torch.tensor(-1e9, dtype=scores.dtype),
    ],
)
def test_a_large_negative_number_is_right_in_float32_and_overflows_in_float16(masked):
    def causal_mask(scores):
        T = scores.shape[-1]
        return masked(scores, torch.ones(T, T, dtype=torch.bool).triu(1))

    report = examine(find("causal_mask"), causal_mask)
    assert report.right == "6 of 6 cases"
    assert report.diagnosis.id == "overflows"


def test_a_mask_instead_of_masked_scores_is_said():
    def causal_mask(scores):
        return torch.ones_like(scores, dtype=torch.bool).tril()

    assert "torch.bool" in examine(find("causal_mask"), causal_mask).fact


def test_a_mask_written_into_the_scores_is_found():
    def causal_mask(scores):
        T = scores.shape[-1]
        return scores.masked_fill_(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))

    assert examine(find("causal_mask"), causal_mask).diagnosis.id == "mutates"


def test_weights_copied_into_a_module_get_no_gradient():
    from gptlab import GPTConfig
    from gptlab.attention import CausalSelfAttention

    def causal_attention(x, weights, n_head):
        layer = CausalSelfAttention(GPTConfig(n_embd=x.shape[-1], n_head=n_head)).eval()
        layer.load_state_dict(weights)
        return layer(x)

    report = examine(find("causal_attention"), causal_attention)
    assert report.diagnosis.id == "no-gradient"
    assert "weights['c_attn.weight']" in report.diagnosis.message


def test_attention_without_a_mask_by_sdpa_is_named():
    def causal_attention(x, weights, n_head):
        qkv = F.linear(x, weights["c_attn.weight"], weights["c_attn.bias"])
        q, k, v = (part.unflatten(-1, (n_head, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return F.linear(y, weights["c_proj.weight"], weights["c_proj.bias"])

    report = examine(find("causal_attention"), causal_attention)
    assert report.diagnosis.id == "no-mask"
    assert "4 tensors" in report.diagnosis.evidence


# is_causal: the probe is tried on what it must find and on what it must leave alone


def pre_ln_attention(seed, masked):
    """One head over four features, behind a LayerNorm, with random weights; nothing of the catalogue's is in it."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(3, 4, 4, generator=generator)

    def f(x):
        q, k, v = F.layer_norm(x, (4,)) @ weights[:, None]
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=masked)

    return f


def test_the_solution_finds_a_pre_ln_attention_without_a_mask_in_200_of_200_draws():
    is_causal = define(find("is_causal").solution, "is_causal")
    torch.manual_seed(0)
    assert [is_causal(pre_ln_attention(seed, masked=False)) for seed in range(200)] == [False] * 200


def test_with_its_mask_the_solution_calls_it_causal_in_200_of_200_draws():
    is_causal = define(find("is_causal").solution, "is_causal")
    torch.manual_seed(0)
    assert [is_causal(pre_ln_attention(seed, masked=True)) for seed in range(200)] == [True] * 200


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.cumsum(1) / torch.arange(1, 9)[:, None],
        lambda x: x.cumprod(1),
        lambda x: x.cummax(1).values,
        lambda x: x * F.pad(x, (0, 0, 3, 0))[:, :8],
        lambda x: F.conv1d(F.pad(x.mT, (2, 0)), torch.ones(4, 1, 3), groups=4).mT,
        lambda x: torch.nn.LSTM(4, 4, batch_first=True)(x)[0] if torch.manual_seed(0) else x,
        lambda x: F.layer_norm(x, (4,)).logcumsumexp(1),
    ],
    ids=[
        "mean of the past",
        "product",
        "maximum",
        "product of two",
        "convolution",
        "LSTM",
        "behind LayerNorm",
    ],
)
def test_the_solution_calls_other_causal_functions_causal_and_the_same_turned_round_not(f):
    is_causal = define(find("is_causal").solution, "is_causal")
    torch.manual_seed(0)
    assert [is_causal(f) for _ in range(50)] == [True] * 50
    assert [is_causal(lambda x: f(x.flip(1)).flip(1)) for _ in range(50)] == [False] * 50


@pytest.mark.parametrize("seed", range(5))
def test_the_solution_is_right_about_every_case_in_every_draw(seed):
    """What a case is follows from how it is built, and not from a probe."""
    exercise = find("is_causal")
    is_causal = define(exercise.solution, "is_causal")
    torch.manual_seed(seed)
    for (f,) in make_cases(exercise, seed):
        attention = getattr(f, "diagonal", 1) == 1
        mixer = getattr(f, "leak", None) is None or f.leak[0] >= f.leak[1]
        assert is_causal(f) is (attention and mixer), f


def test_among_the_cases_are_leaks_of_every_kind_and_all_move_an_output_by_more_than_1e_5():
    leaky = [f for (f,) in make_cases(find("is_causal")) if not find("is_causal").reference(f)]
    mixers = [f for f in leaky if hasattr(f, "leak")]
    assert {"before", "after", ""} <= {f.norm for f in mixers}
    assert {0, 1, 2, 3} <= {f.feature for f in mixers}
    assert {0, 1} <= {f.row for f in mixers}
    assert {f.diagonal for f in leaky if hasattr(f, "diagonal")} == {2, None}
    assert any(f.amount < 0 for f in mixers)
    assert any(f.times is not None and f.times > f.leak[0] for f in mixers)  # of two later inputs
    assert any(f.times is not None and f.times <= f.leak[0] for f in mixers)
    torch.manual_seed(0)
    for f in leaky:
        x, other = torch.randn(2, 2, 8, 4)
        moved = [(f(torch.cat([x[:, :t], other[:, t:]], 1)) - f(x))[:, :t].abs().max() for t in range(1, 8)]
        assert max(moved) > 1e-5, f


PROBE = """
import torch

def is_causal(f):
    x = torch.randn(2, 8, 4)
    before = f(x)
    for t in range(1, 8):
        changed = x.clone()
        changed[:, t:] = torch.randn(2, 8 - t, 4)
        if (f(changed) - before)[:, :t].abs().max() > 1e-6:
            return False
    return True
"""


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ([], None),
        ([(" > 1e-6", " > 0")], None),
        ([("= torch.randn(2, 8 - t, 4)", "+= 1")], "constant"),
        ([("= torch.randn(2, 8 - t, 4)", "+= 1"), (" > 1e-6", " > 0")], "constant-exactly"),
        ([("= torch.randn(2, 8 - t, 4)", "+= torch.randn(1)")], "constant"),
        ([("x = torch.randn", "x = torch.ones"), ("= torch.randn(2, 8 - t, 4)", "= 100.0")], "constant"),
        ([("= torch.randn(2, 8 - t, 4)", "+= 1"), ("(2, 8, 4)", "(1, 8, 4)")], "constant+first-row"),
        ([("range(1, 8)", "[7]")], "last-input"),
        ([("[:, :t]", "[:, 0]")], "first-output"),
        ([("[:, t:]", "[:, t]"), ("8 - t, ", ""), ("[:, :t]", "[:, t - 1]")], "neighbour"),
        ([("[:, t:]", "[:, t:, 0]"), ("8 - t, 4", "8 - t")], "one-feature"),
        ([("[:, :t]", "[:, :t, 0]")], "one-feature"),
        ([("[:, :t]", "[0, :t]")], "first-row"),
        ([("(2, 8, 4)", "(1, 8, 4)"), ("(2, 8 - t", "(1, 8 - t")], "first-row"),
        ([("x = torch.randn", "x = torch.zeros")], "zeros"),
        ([("[:, :t].abs()", "[:, :t].sum(-1).abs()")], "summed"),
        ([("= torch.randn(2, 8 - t, 4)", "+= torch.rand(2, 8 - t, 4)"), (".abs()", "")], "signed"),
        ([("1e-6", "1e-3")], "loose"),
        ([("[:, :t]", "[:, t:]")], "later"),
        ([("x.clone()", "x")], "later"),  # what is changed for one t stays so for the next
        ([("[:, :t]", "[:, : t + 1]")], "counts-itself"),
    ],
)
def test_a_probe_with_one_thing_wrong_is_named_whatever_it_draws(changes, name):
    source = PROBE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    for seed in range(2):
        report = examine(find("is_causal"), define(f"{source}# {seed}", "is_causal"), seed)
        assert (report.diagnosis.id if report.diagnosis else None) == name, report
        assert (report.status == "passed") is (name is None), report


def test_a_probe_that_changes_its_input_in_place_calls_everything_causal():
    def is_causal(f):
        x = torch.randn(2, 8, 4)
        changed = x
        changed[:, -1] += 1
        return torch.allclose(f(x)[:, :-1], f(changed)[:, :-1])

    assert examine(find("is_causal"), is_causal).diagnosis.id == "always"


def test_a_probe_that_changes_the_last_input_alone_is_named():
    def is_causal(f):
        x = torch.randn(2, 8, 4)
        changed = x.clone()
        changed[:, -1] = 0
        return torch.allclose(f(x)[:, :-1], f(changed)[:, :-1])

    assert examine(find("is_causal"), is_causal).diagnosis.id == "last-input"


# Chapter 4: values from nowhere else than arithmetic (cases NU3)


def test_gelu_and_layer_norm_at_known_points():
    got = find("gelu").reference(torch.tensor([1.0, -3.0]))
    assert torch.allclose(got, torch.tensor([0.8411920, -0.0036374]), atol=1e-6)
    x = torch.tensor([[[1.0, 2, 3, 4], [0, 1e-3, 2e-3, 3e-3]]])
    ones, zeros = torch.ones(4), torch.zeros(4)
    got = find("layer_norm").reference(x, ones, zeros, 1e-5)[0]
    assert torch.allclose(got[0], torch.tensor([-1.3416355, -0.4472118, 0.4472118, 1.3416355]), atol=1e-6)
    assert torch.allclose(got[1, [0, -1]], torch.tensor([-0.4472136, 0.4472136]), atol=1e-6)
    outside = find("layer_norm").reference(x, ones, zeros, 1e-5, on=frozenset({"eps-outside"}))
    assert outside[0, 1, -1] == pytest.approx(1.33, abs=0.01)


def test_what_layer_norm_asks_for_cannot_be_read_as_the_mistake_of_eps_outside_the_root():
    assert "divide by √(variance + eps)" in find("layer_norm").task
    assert "plus eps" not in find("layer_norm").task


def test_torchs_default_gelu_and_std_are_named():
    assert examine(find("gelu"), F.gelu).diagnosis.id == "erf"

    def layer_norm(x, gain, bias, eps):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt() * gain + bias

    assert examine(find("layer_norm"), layer_norm).diagnosis.id == "unbiased"


# Chapter 5

GPT2 = """
import torch
from torch import nn
import torch.nn.functional as F
from gptlab.block import Block

class Plain:
    pass

class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))
"""


def gpt2(old: str = "", new: str = ""):
    assert old in GPT2
    return examine(find("GPT2"), define(GPT2.replace(old, new), "GPT2"))


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (
            "nn.ModuleList([Block(config) for _ in range(config.n_layer)])",
            "[Block(config)] * 9",
            "plain-list",
        ),
        ("[Block(config) for _ in range(config.n_layer)]", "[Block(config)] * config.n_layer", "one-block"),
        ("        self.lm_head.weight = self.wte.weight\n", "", "untied"),
        (
            "self.lm_head.weight = self.wte.weight",
            "self.lm_head.weight.data = self.wte.weight.data",
            "untied",
        ),
        ("bias=False", "bias=True", "extra"),
        ("self.ln_f", "self.norm", "missing"),
        ("self.lm_head(self.ln_f(x))", "self.lm_head(x)", "no-final-norm"),
        ("self.lm_head(self.ln_f(x))", "self.lm_head(self.ln_f(x)).detach()", "no-gradient"),
        ("for block in self.h:", "x = F.dropout(x, 0.1)\n        for block in self.h:", "random"),
        ("torch.arange(ids.shape[1])", "torch.arange(ids.shape[1]) % self.config.n_positions", "too-long"),
        ("x = block(x)", "x = self.h[0](x)", "first-block"),
        ("(nn.Module)", "(Plain)", "not-a-module"),
        ("return self.lm_head(self.ln_f(x))", "return self.lm_head(self.ln_f(x)), None", "tuple"),
    ],
)
def test_the_ways_to_build_a_model_wrongly_are_named(old, new, name):
    report = gpt2(old, new)
    assert report.diagnosis, report
    assert report.diagnosis.id == name, report
    assert all(len(line) <= 80 for line in str(report).splitlines())


def test_the_model_passes_and_a_stub_of_it_is_not_attempted():
    assert gpt2().status == "passed"

    class Stub(torch.nn.Module):
        def forward(self, ids): ...

    assert examine(find("GPT2"), Stub).status == "not_attempted"


def test_a_forgotten_scale_shows_the_parameter_and_both_numbers():
    def init_weights(model):
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.02)

    report = examine(find("init_weights"), init_weights)
    assert report.diagnosis.id == "unscaled+vectors-drawn"

    def almost(model):
        for name, p in model.named_parameters():
            if p.ndim == 2:
                torch.nn.init.normal_(p, std=0.02)
            else:
                torch.nn.init.constant_(p, float(name.endswith("weight")))

    report = examine(find("init_weights"), almost)
    assert report.diagnosis.id == "unscaled"
    assert "'h.0.attn.c_proj.weight' has 0.02, expected 0.00816497" in report.diagnosis.evidence
    assert str(report) == str(examine(find("init_weights"), almost))


def test_a_spread_that_is_no_known_mistake_is_a_fact():
    def init_weights(model):
        from gptlab.model import init_weights

        init_weights(model)
        model.wpe.weight.data.normal_(std=0.05)

    assert "'wpe.weight' has 0.05, expected 0.02" in examine(find("init_weights"), init_weights).fact


def load_by(change):
    def load_gpt2(model, state_dict):
        model.load_state_dict(change(state_dict))

    return examine(find("load_gpt2"), load_gpt2)


def is_mask(name: str) -> bool:
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def test_what_load_state_dict_says_is_explained():
    assert load_by(lambda state: state).diagnosis.id == "sizes"
    transposed = load_by(
        lambda state: {n: t.T if ".c_" in n and t.ndim == 2 else t for n, t in state.items()}
    )
    assert transposed.diagnosis.id == "mask-buffers"
    assert (
        load_by(lambda s: {n: t.T for n, t in s.items() if t.ndim < 3 and not is_mask(n)}).status
        == "incorrect"
    )


def test_the_square_matrix_loads_without_an_error_and_is_found_by_its_values():
    def load_gpt2(model, state_dict):
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, tensor in state_dict.items():
                if not is_mask(name):
                    own[name].copy_(tensor if tensor.shape == own[name].shape else tensor.T)

    report = examine(find("load_gpt2"), load_gpt2)
    assert report.diagnosis.id == "square"
    assert "'h.0.attn.c_proj.weight': the last two dimensions are exchanged" in report.diagnosis.evidence


def test_a_head_that_comes_apart_and_a_state_dict_that_is_emptied_are_found():
    def untied(model, state_dict):
        right(model, state_dict)
        model.wte.weight = torch.nn.Parameter(state_dict["wte.weight"])

    def emptied(model, state_dict):
        right(model, state_dict)
        state_dict.popitem()

    right = define(find("load_gpt2").solution, "load_gpt2")
    assert examine(find("load_gpt2"), untied).diagnosis.id == "untied"
    assert examine(find("load_gpt2"), emptied).diagnosis.id == "mutates"
