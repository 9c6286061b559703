import inspect
import math
import typing
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlab import GPT, generate, generation
from gptlab.generation import sample_probs, stream
from tests.conftest import TINY, make_model, random_ids

MODEL = make_model()


def kept(probs: torch.Tensor) -> set[int]:
    return set(probs.nonzero().flatten().tolist())


def test_gn1_temperature_0_is_greedy():
    assert sample_probs(torch.tensor([1.0, 3.0, 2.0]), temperature=0.0).tolist() == [0, 1, 0]


def test_gn1_top_k_beyond_the_vocabulary_filters_nothing():
    logits = torch.arange(5.0)
    assert torch.equal(sample_probs(logits, top_k=100), logits.softmax(-1))
    with pytest.raises(ValueError, match="top_k=0 must be at least 1"):
        sample_probs(logits, top_k=0)


@pytest.mark.parametrize("logits", [[-5.0, -6, -7, -8], [-3.0e38, -3.1e38, -3.2e38, -3.3e38]])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_gn3_what_is_filtered_out_has_probability_zero(logits, temperature):
    assert sample_probs(torch.tensor(logits), temperature, top_k=1).tolist() == [1, 0, 0, 0]


def test_gn4_the_token_that_crosses_p_stays():
    logits = torch.tensor([0.45, 0.3, 0.2, 0.05]).log()
    assert kept(sample_probs(logits, top_p=0.7)) == {0, 1}
    assert kept(sample_probs(logits, top_p=1e-8)) == {0}
    with pytest.raises(ValueError, match="top_p=0.0 must be above 0"):
        sample_probs(logits, top_p=0.0)


def test_gn6_temperature_comes_before_top_p():
    logits = torch.tensor([8.0, 4, 2, 1]).log()
    assert kept(sample_probs(logits, temperature=0.5, top_p=0.75)) == {0}
    assert kept(sample_probs(logits, temperature=2.0, top_p=0.75)) == {0, 1, 2}


def test_equal_logits_do_not_smuggle_in_more_than_k():
    assert len(kept(sample_probs(torch.zeros(9), top_k=3))) == 3


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=9),
    st.floats(0.05, 20),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(1e-6, 1),
)
def test_the_result_is_a_distribution_that_contains_the_likeliest_token(logits, temperature, top_k, top_p):
    probs = sample_probs(torch.tensor([logits]), temperature, top_k, top_p)[0]
    assert probs.sum().item() == pytest.approx(1, abs=1e-5)
    assert (probs >= 0).all()
    row = torch.tensor(logits)
    assert probs[row > row.max() - 1e-5].any()  # of equal ones, top-k may keep any


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0 must be 0"),
        ({"temperature": math.inf}, "temperature=inf"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"top_k": -2}, "top_k=-2"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_p": math.nan}, "top_p=nan"),
    ],
)
def test_settings_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_probs(torch.zeros(3), **arguments)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="the model's output is not usable"):
        sample_probs(torch.tensor([0.0, bad]))


@given(st.integers(1, 20), st.integers(0, 24), st.integers(1, 3), st.integers(0, 99))
def test_the_cache_changes_no_token_also_past_the_context(T, n, B, seed):
    ids = random_ids(B, T, seed=seed)
    with_cache, without = (
        generate(MODEL, ids, n, generator=torch.Generator().manual_seed(seed), use_cache=use)
        for use in (True, False)
    )
    assert torch.equal(with_cache, without)
    assert with_cache.shape == (B, T + n)
    assert torch.equal(with_cache[:, :T], ids)


@torch.no_grad()
def test_greedy_takes_the_largest_logit_of_the_last_position_each_time(model):
    ids = random_ids(2, 3)
    out = generate(model, ids, 4, temperature=0.0)
    for _ in range(4):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(out, ids)


@pytest.mark.parametrize(("use_cache", "read"), [(True, [3, 1, 1, 1]), (False, [3, 4, 5, 6])])
def test_with_a_cache_each_token_is_read_once(model, monkeypatch, use_cache, read):
    lengths, hidden = [], model.hidden
    monkeypatch.setattr(model, "hidden", lambda ids, *a: lengths.append(ids.shape[1]) or hidden(ids, *a))
    generate(model, random_ids(1, 3), 4, use_cache=use_cache)
    assert lengths == read


def test_past_the_context_the_last_tokens_are_read(model):
    ids = random_ids(1, 20)
    expected = model(ids[:, -16:])[:, -1].argmax(-1)
    assert torch.equal(generate(model, ids, 1, temperature=0.0)[:, -1], expected)


def test_the_same_generator_gives_the_same_tokens_and_another_seed_others(model):
    def sample(seed):
        return generate(model, random_ids(2, 3), 12, generator=torch.Generator().manual_seed(seed)).tolist()

    assert sample(0) == sample(0) != sample(1)


class Scripted(GPT):
    """A model whose greedy choice is known: after t new tokens, row b continues with script[b][t]."""

    def __init__(self, script: list[list[int]], prompt: int) -> None:
        super().__init__(replace(TINY, n_embd=60))
        self.script, self.prompt = script, prompt
        self.lm_head = torch.nn.Identity()

    def hidden(self, input_ids, cache=None):
        step = input_ids.shape[1] - self.prompt
        wanted = torch.tensor([row[step] for row in self.script])
        return torch.nn.functional.one_hot(wanted, 60).float()[:, None]


def test_gn7_end_of_text_is_kept_per_row_and_stops_when_all_have_it():
    model = Scripted([[50, 1, 2, 3], [4, 5, 50, 6]], prompt=2)
    out = generate(model, random_ids(2, 2), 4, temperature=0.0, eos_token_id=50, use_cache=False)
    assert out[:, 2:].tolist() == [[50, 50, 50], [4, 5, 50]]


def test_dropout_is_off_while_generating_and_the_mode_comes_back():
    model = make_model(replace(TINY, resid_pdrop=0.9)).train()
    ids = random_ids(1, 3)
    assert torch.equal(generate(model, ids, 5, temperature=0.0), generate(model, ids, 5, temperature=0.0))
    assert model.training
    with pytest.raises(ValueError):
        generate(model, ids, 5, top_k=0)
    assert model.training


def test_a_part_that_was_frozen_in_evaluation_mode_stays_so(model):
    model.train()
    model.h[1].eval()
    generate(model, random_ids(1, 3), 2)
    assert [block.training for block in model.h] == [True, False, True]


def test_generating_leaves_the_global_random_state_alone_if_given_a_generator(model):
    before = torch.get_rng_state()
    generate(model, random_ids(1, 3), 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_annotation_can_be_resolved():
    """A shape that is no string any more, Int[Tensor, B], is a name that does not exist."""
    for function in (
        sample_probs,
        stream,
        generate,
        generation.draw,
        generation.next_logits,
        generation.new_cache,
    ):
        assert typing.get_type_hints(inspect.unwrap(function))


def test_streaming_yields_the_tokens_that_generate_returns(model):
    ids = random_ids(2, 3)
    tokens = torch.stack(list(stream(model, ids, 6, temperature=0.0)), dim=1)
    assert torch.equal(tokens, generate(model, ids, 6, temperature=0.0)[:, 3:])


@pytest.mark.parametrize(
    ("ids", "n", "error", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.long), 3, ValueError, "give at least one"),
        (torch.tensor([[59]]), 3, ValueError, r"token id 59 at \[0, 0\]"),
        (torch.tensor([[1.0]]), 3, TypeError, "token ids are integers"),
        (torch.tensor([[1]]), -1, ValueError, "max_new_tokens=-1"),
        ([[1, 2]], 3, TypeError, r"must be a tensor, not list: use torch.tensor\(ids\)"),
    ],
)
def test_prompts_that_cannot_be_continued_are_refused(model, as_a_user, ids, n, error, message):
    with pytest.raises(error, match=message):
        generate(model, ids, n)


def test_an_end_of_text_that_is_no_token_is_refused(model):
    with pytest.raises(ValueError, match="eos_token_id=59 is no token: ids are 0 to 58"):
        generate(model, random_ids(1, 3), 2, eos_token_id=59)


def test_extreme_logits_and_temperatures_give_numbers():
    half = torch.tensor([60000.0, -60000.0, 0.0]).half()
    assert sample_probs(half, temperature=1e6).tolist() == pytest.approx([0.3538, 0.3138, 0.3332], abs=1e-3)
    assert sample_probs(torch.tensor([0.0, 1.0]), temperature=1e-320).tolist() == [0, 1]
    assert sample_probs(half, temperature=0.0).dtype == torch.float32


def test_banned_tokens_keep_probability_zero():
    assert sample_probs(torch.tensor([0.0, -math.inf, 0.0])).tolist() == [0.5, 0, 0.5]


def test_a_bf16_model_generates(model):
    out = generate(model.to(torch.bfloat16), random_ids(1, 3), 5, temperature=0.8, top_k=10, top_p=0.9)
    assert out.shape == (1, 8)
