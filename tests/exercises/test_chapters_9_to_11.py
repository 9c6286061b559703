"""What learners of chapters 9 to 11 hand in, and the numbers that the catalogue knows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gptlab.exercises.engine import examine, make_cases, tells_apart
from gptlab.exercises.exercise import find
from gptlab.exercises.toy import Toy
from gptlab.generation import generate as package_generate
from gptlab.generation import sample_probs as package_sample_probs
from tests.conftest import make_model, random_ids

# Chapter 11: the known points are those of reported bugs


@pytest.mark.parametrize(
    ("odds", "temperature", "top_k", "top_p", "kept"),
    [
        ((0.45, 0.3, 0.2, 0.05), 1.0, None, 0.7, {0, 1}),
        ((0.45, 0.3, 0.2, 0.05), 1.0, None, 1e-8, {0}),
        ((8, 4, 2, 1), 0.5, None, 0.75, {0}),
        ((8, 4, 2, 1), 2.0, None, 0.75, {0, 1, 2}),
        ((1, 2, 3, 4), 1.0, 100, None, {0, 1, 2, 3}),
        ((1, 2, 3, 4), 0.0, 2, 0.5, {3}),
    ],
)
def test_sample_probs_at_known_points(odds, temperature, top_k, top_p, kept):
    logits = torch.tensor([odds]).log()
    for sample_probs in (find("sample_probs").reference, package_sample_probs):
        probs = sample_probs(logits, temperature, top_k, top_p)
        assert set(probs[0].nonzero()[:, 0].tolist()) == kept
        assert probs.sum() == pytest.approx(1)


def filtered(keep):
    """A learner's sample_probs whose top-p step is ``keep(sorted probabilities, p)``; the rest is right."""

    def sample_probs(logits, temperature, top_k, top_p):
        if temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        logits = logits / temperature
        if top_k is not None:
            kth = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < kth, -math.inf)
        if top_p is not None:
            ordered, order = logits.sort(descending=True)
            ordered = ordered.masked_fill(~keep(ordered.softmax(-1), top_p), -math.inf)
            logits = torch.zeros_like(logits).scatter(-1, order, ordered)
        return logits.softmax(-1)

    return examine(find("sample_probs"), sample_probs)


def test_top_p_as_it_is_often_written():
    def shifted(probs, p):  # as in transformers
        remove = probs.cumsum(-1) > p
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        return ~remove

    def shifted_twice(probs, p):
        remove = probs.cumsum(-1) - probs >= p
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        return ~remove

    assert filtered(shifted).status == "passed"
    assert filtered(shifted_twice).diagnosis.id == "keeps-next"
    assert filtered(lambda probs, p: probs.cumsum(-1) <= p).diagnosis.id == "drops-crossing"


def test_greedy_ids_instead_of_floats_are_said():
    def sample_probs(logits, temperature, top_k, top_p):
        if temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1])
        return package_sample_probs(logits, temperature, top_k, top_p)

    report = examine(find("sample_probs"), sample_probs)
    assert report.right == "12 of 13 cases"
    assert "its type is torch.int64, expected torch.float32" in report.fact


def test_generate_is_that_of_the_package():
    model, ids = make_model(), random_ids(2, 5)
    for n in (1, 14):  # 14: past the last position
        ours = find("generate").reference(model, ids, n)
        assert torch.equal(ours, package_generate(model, ids, n, temperature=0.0))


@pytest.mark.parametrize("seed", range(5))
def test_every_mistake_of_generation_shows_whatever_the_seed(seed):
    for name in ("generate", "generate_cached"):
        assert tells_apart(find(name), make_cases(find(name), seed)[0])


def test_a_text_that_is_cropped_with_its_window_is_named():
    def generate(model, ids, n):
        for _ in range(n):
            ids = ids[:, -model.config.n_positions :]
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        return ids

    report = examine(find("generate"), generate)
    assert report.right == "2 of 4 cases"
    assert report.diagnosis.id == "crops-output"


def test_a_token_drawn_instead_of_chosen_is_no_known_mistake():
    def generate(model, ids, n):
        for _ in range(n):
            probs = model(ids[:, -model.config.n_positions :])[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
        return ids

    report = examine(find("generate"), generate)
    assert report.status == "incorrect"
    assert report.diagnosis is None


def kv_step(attend):
    def learners(q, K, V, k, v):
        longer_K, longer_V = torch.cat([K, k], 2), torch.cat([V, v], 2)
        return attend(q, K, V, longer_K, longer_V), longer_K, longer_V

    return examine(find("kv_step"), learners)


def test_one_query_by_sdpa():
    sdpa = F.scaled_dot_product_attention
    assert kv_step(lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V)).status == "passed"
    for attend, name in [
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V, is_causal=True), "is-causal"),
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_V, longer_K), "exchanged"),
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V, scale=1), "unscaled"),
    ]:
        report = kv_step(attend)
        assert report.diagnosis.id == name
        assert all(len(line) <= 80 for line in str(report).splitlines())


def test_an_output_without_the_cache_is_said():
    report = examine(find("kv_step"), lambda q, K, V, k, v: q)
    assert report.diagnosis.id == "not-three"
    assert "a Tensor" in report.diagnosis.message


def test_a_cache_changes_no_token():
    model, ids, n = make_cases(find("generate_cached"))[0]
    whole = Toy(19, 12, 8, torch.Generator())
    whole.load_state_dict(model.state_dict())
    cached = find("generate_cached").reference(model, ids, n)
    assert torch.equal(cached["ids"], find("generate").reference(whole, ids, n))


def test_right_tokens_without_a_cache_are_not_enough():
    def generate_cached(model, ids, n):
        for _ in range(n):
            logits, _ = model(ids, 0, None)
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        return ids

    assert examine(find("generate_cached"), generate_cached).diagnosis.id == "no-cache"


def test_a_past_that_is_thrown_away_is_named():
    def generate_cached(model, ids, n):
        logits, past = model(ids, 0, None)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        for _ in range(n - 1):
            logits, _ = model(ids[:, -1:], ids.shape[1] - 1, past)
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        return ids

    assert examine(find("generate_cached"), generate_cached).diagnosis.id == "not-updated"
