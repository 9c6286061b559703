"""What learners of chapters 9 to 11 hand in, and the numbers that the catalogue knows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gptlab.cache import KVCache
from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.engine import examine, make_cases, tells_apart
from gptlab.exercises.exercise import find
from gptlab.exercises.toy import Toy
from gptlab.generation import generate as package_generate
from gptlab.generation import sample_probs as package_sample_probs
from tests.conftest import make_model, random_ids

# Chapter 9: the tables of numbers, written out, not computed

STATE = {
    1_991_036_928: None,
    "1.991 GB": None,
    "1.854 GiB": None,
    "1,991 MB": None,
    497_759_232: "weights alone",
    "474.7 MiB": "weights alone",
    995_518_464: "8 bytes",
    1_493_277_696: "12 bytes",
    2_608_594_944: "tied head",
    2_239_916_544: "18 bytes",
    2_488_796_160: "20 bytes",
    "1.991 GiB": "that of GB",
    "1.99 GiB": "that of GB",
    "1.854 GB": "that of GiB",
    124_439_808: "number of parameters",
}
INT8 = {
    124_439_808: None,
    "124.44 MB": None,
    "118.68 MiB": None,
    "118.68 MB": "that of MiB",
    "124.4 MiB": "that of MB",
    31_109_952: "divided by 4",
    497_759_232: "float32",
    248_879_616: "half precision",
    163_037_184: "tied head",
    84_934_656: "matrices of the blocks alone",
    242_955_264: "all else in float32",
    995_518_464: "bits",
}
CACHE = {
    37_748_736: None,
    "36 MiB": None,
    "37.75 MB": None,
    18_874_368: "one of keys and values",
    75_497_472: "float32",
    452_984_832: "heads are counted twice",
    3_145_728: "factor of 12",
    "3 MiB": "factor of 12",
    56_623_104: "queries",
    36_864: "one token",
    "36 MB": "that of MiB",
    "37.7 MiB": "that of MB",
}


@pytest.mark.parametrize(
    ("name", "table"), [("training_state", STATE), ("int8_weights", INT8), ("kv_cache", CACHE)]
)
def test_the_numbers_of_memory(name, table):
    for answer, words in table.items():
        report = examine(find(name), answer)
        if words is None:
            assert report.status == "passed", report
        else:
            assert words in report.diagnosis.message, report


@pytest.mark.parametrize("answer", ["2 GB", "1.9 GiB"])
def test_a_size_of_two_digits_is_rounded_too_much(answer):
    assert "rounded too much" in examine(find("training_state"), answer).fact


@pytest.mark.parametrize(
    ("precision", "total", "optimizer"),
    [
        ("fp32", 1_991_036_928, 995_518_464),
        ("amp", 1_991_036_928, 995_518_464),
        ("bf16", 995_518_464, 497_759_232),
        ("master", 1_991_036_928, 1_493_277_696),
    ],
)
def test_the_training_state_of_gpt2_small(precision, total, optimizer):
    sizes = find("training_bytes").reference(GPTConfig(), precision)
    assert sum(sizes.values()) == total
    assert sizes["optimizer"] == optimizer


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_training_state_is_what_pytorch_keeps(precision, dtype):
    model = make_model().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    model(random_ids(1, 4)).float().sum().backward()
    optimizer.step()
    moments = [t for state in optimizer.state.values() for key, t in state.items() if key != "step"]
    assert find("training_bytes").reference(model.config, precision) == {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters()),
        "optimizer": sum(t.nbytes for t in moments),
    }


def test_eighteen_bytes_a_parameter_are_named():
    def training_bytes(config, precision):
        sizes = find("training_bytes").reference(config, precision)
        return {**sizes, "gradients": sizes["gradients"] * (2 if precision == "master" else 1)}

    report = examine(find("training_bytes"), training_bytes)
    assert report.diagnosis.id == "float32-gradients"
    assert "18" in report.diagnosis.message


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ((4, 4, 8), [1_991_036_928, 1_119_958_272, 684_418_944, 248_879_616]),
        ((2, 2, 12), [1_991_036_928, 684_418_944, 466_649_280, 248_879_616]),
    ],
)
def test_the_stages_of_zero_on_eight_ranks(split, sizes):
    zero_bytes = find("zero_bytes").reference
    assert [zero_bytes(124_439_808, 8, stage, split) for stage in range(4)] == sizes


def test_a_stage_compared_with_the_wrong_sign_is_named():
    def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):
        w, g, o = split
        o = o / world_size if stage > 1 else o
        g = g / world_size if stage > 2 else g
        w = w / world_size if stage > 3 else w
        return n_params * (w + g + o)

    assert examine(find("zero_bytes"), zero_bytes).diagnosis.id == "one-stage-less"


@pytest.mark.parametrize(("preset", "size"), [("gpt2", 37_748_736), ("gpt2-medium", 100_663_296)])
def test_a_cache_takes_what_its_buffers_take(preset, size):
    config = PRESETS[preset]
    assert find("kv_cache_bytes").reference(config, 1, 1024, 2) == size
    assert KVCache(config, 1, dtype=torch.float16, device="meta").nbytes == size


def test_layers_and_heads_are_told_apart_only_by_another_model():
    size = find("kv_cache_bytes").reference
    one_layer, one_head = frozenset({"one-layer"}), frozenset({"one-head"})
    small, medium = PRESETS["gpt2"], PRESETS["gpt2-medium"]
    assert size(small, 1, 1024, 2, on=one_layer) == size(small, 1, 1024, 2, on=one_head) == 3_145_728
    assert size(medium, 1, 1024, 2, on=one_layer) != size(medium, 1, 1024, 2, on=one_head)


def test_a_row_of_zeros_survives_int8():
    W = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.2, 4.0]])
    back = find("int8_roundtrip").reference(W)
    assert torch.allclose(back * 127 / 4, torch.tensor([[0.0, 0, 0], [32, -70, 127]]))
    assert find("int8_roundtrip").reference(W, on=frozenset({"zero-row"}))[0].isnan().all()


@pytest.mark.parametrize(
    ("quantise", "name"),
    [
        (lambda W, scale: (W / scale).to(torch.int8) * scale, "truncates"),
        (lambda W, scale: (W / scale).round().to(torch.int8), "not-back-int8"),
        (lambda W, scale: (W / scale * 128 / 127).round().to(torch.int8) * scale * 127 / 128, "by-128"),
    ],
)
def test_int8_as_it_is_often_written(quantise, name):
    def int8_roundtrip(W):
        scale = W.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
        return quantise(W, scale)

    report = examine(find("int8_roundtrip"), int8_roundtrip)
    assert report.diagnosis.id.startswith(name)


def test_one_scale_over_zeros_is_still_one_scale():
    def int8_roundtrip(W):
        scale = W.abs().max() / 127
        return (W / scale).round() * scale

    assert examine(find("int8_roundtrip"), int8_roundtrip).diagnosis.id == "one-scale"


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
