from dataclasses import replace

import pytest
import torch

from gptlab import GPT, PRESETS, KVCache
from tests.conftest import TINY, random_ids


def test_the_cache_takes_two_times_layers_times_width_per_token():
    cache = KVCache(TINY, 5, max_length=7)
    assert cache.nbytes == 2 * TINY.n_layer * TINY.n_embd * 7 * 5 * 4
    assert cache.length == 0


def test_mm3_no_extra_factor_for_the_heads():
    with torch.device("meta"):
        cache = KVCache(PRESETS["gpt2"], 1, dtype=torch.float16, device="meta")
    assert cache.nbytes == 37_748_736 == 1024 * 36_864


@torch.no_grad()
def test_the_length_counts_what_the_model_has_read(model):
    cache = KVCache(TINY, 2)
    model(random_ids(2, 3), cache)
    model(random_ids(2, 4), cache)
    assert cache.length == 7


@torch.no_grad()
def test_a_full_cache_says_so_and_keeps_what_it_has(model):
    cache = KVCache(TINY, 1, max_length=5)
    model(random_ids(1, 4), cache)
    with pytest.raises(ValueError, match="the cache holds 5 positions, 4 are filled and 2 more do not fit"):
        model(random_ids(1, 2), cache)
    assert cache.length == 4
    assert model(random_ids(1, 1), cache).shape == (1, 1, TINY.vocab_size)


@torch.no_grad()
def test_another_batch_size_is_refused(model):
    with pytest.raises(ValueError, match="the cache is for batch_size=1, but the input has 3 rows"):
        model(random_ids(3, 2), KVCache(TINY, 1))


@torch.no_grad()
def test_the_cache_of_another_model_is_refused(model):
    with pytest.raises(ValueError, match="the cache has 2 layers, the model 3 blocks"):
        model(random_ids(1, 2), KVCache(replace(TINY, n_layer=2), 1))


@torch.no_grad()
def test_a_step_that_failed_half_way_leaves_the_cache_as_it_was(model, monkeypatch):
    ids, cache = random_ids(1, 9), KVCache(TINY, 1)
    model(ids[:, :5], cache)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model.h[2], "forward", fail)
        with pytest.raises(MemoryError):
            model(ids[:, 5:], cache)
    assert cache.length == 5
    torch.testing.assert_close(model(ids[:, 5:], cache), model(ids)[:, 5:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_cache_of_other_heads_is_refused(model):
    with pytest.raises(ValueError, match="the cache is for 6 heads of width 4, the model has 4 of width 6"):
        model(random_ids(1, 2), KVCache(replace(TINY, n_head=6), 1))


def test_gradients_and_a_cache_do_not_go_together(model):
    with pytest.raises(RuntimeError, match=r"call the model under torch.no_grad\(\)"):
        model(random_ids(1, 2), KVCache(TINY, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, {}), "batch_size=0"),
        ((1, {"max_length": 0}), "max_length=0"),
        ((1, {"max_length": 17}), "n_positions=16"),
    ],
)
def test_sizes_that_make_no_sense_are_named(arguments, message):
    batch_size, options = arguments
    with pytest.raises(ValueError, match=message):
        KVCache(TINY, batch_size, **options)


@torch.no_grad()
def test_the_model_holds_nothing_of_it(model):
    before = set(model.state_dict()), {name for name, _ in model.named_buffers()}
    model(random_ids(1, 2), KVCache(TINY, 1))
    assert before == (set(model.state_dict()), {name for name, _ in model.named_buffers()})
    assert isinstance(model, GPT)
