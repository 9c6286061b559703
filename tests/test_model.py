import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from gptlab import GPT, PRESETS, KVCache
from gptlab.unembedding import token_loss
from tests.conftest import TINY, make_model, random_ids

MODEL = make_model()


def test_the_logits_have_shape_b_t_v_and_are_the_head_of_the_hidden_states(model):
    ids = random_ids(2, 5)
    assert model(ids).shape == (2, 5, 59)
    assert torch.equal(model(ids), model.lm_head(model.hidden(ids)))


def test_parameters_bear_the_checkpoints_names(model):
    names = [name for name, _ in model.named_parameters()]
    assert names[:4] == ["wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias"]
    assert names[-2:] == ["ln_f.weight", "ln_f.bias"]


def test_building_prints_nothing_and_the_seed_fixes_the_weights(capsys):
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(GPT(TINY))
    assert capsys.readouterr() == ("", "")
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


@given(st.integers(1, 16), st.integers(0, 15), st.integers(0, 58))
@torch.no_grad()
def test_causality_a_later_token_changes_no_earlier_logit(T, at, token):
    ids = random_ids(2, T)
    before = MODEL(ids)
    ids[:, min(at, T - 1)] = token
    after = MODEL(ids)
    assert torch.equal(after[:, : min(at, T - 1)], before[:, : min(at, T - 1)])


@given(st.integers(2, 16), st.data())
@torch.no_grad()
def test_prefix_cutting_the_end_off_changes_no_earlier_logit(T, data):
    cut = data.draw(st.integers(1, T))
    ids = random_ids(2, T)
    assert_close(MODEL(ids[:, :cut]), MODEL(ids)[:, :cut], atol=1e-5, rtol=1e-5)


@given(st.permutations(range(4)), st.integers(1, 16))
@torch.no_grad()
def test_batch_invariance_rows_do_not_see_each_other(order, T):
    ids = random_ids(4, T)
    together = MODEL(ids[order])
    for row, b in enumerate(order):
        assert_close(together[row : row + 1], MODEL(ids[b : b + 1]), atol=1e-5, rtol=1e-5)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) <= 16))
@torch.no_grad()
def test_cached_equals_uncached_for_any_chunking(sizes):
    ids = random_ids(3, sum(sizes))
    cache = KVCache(TINY, 3)
    chunks = torch.cat([MODEL(part, cache) for part in ids.split(sizes, dim=1)], dim=1)
    assert_close(chunks, MODEL(ids), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_at8_full_context_is_no_special_case():
    model, ids = make_model(replace(TINY, n_positions=1024)), random_ids(1, 1024)
    assert_close(model(ids[:, :1023]), model(ids)[:, :1023], atol=1e-5, rtol=1e-5)


def test_a_sequence_longer_than_the_context_is_refused(model):
    with pytest.raises(ValueError, match="positions 0 to 16 are asked for, but W_P has rows 0 to 15"):
        model(random_ids(1, 17))


def test_ids_of_another_kind_are_refused(model, as_a_user):
    with pytest.raises(TypeError, match=r"not torch.float32: use input_ids.long\(\)"):
        model(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="token id 59"):
        model(torch.tensor([[1, 59]]))
    with pytest.raises(ValueError, match=r"use input_ids\[None\] for one row"):
        model(torch.tensor([1, 2]))


def test_at4_no_dropout_in_eval_and_some_in_train():
    model = make_model(replace(TINY, embd_pdrop=0.5, attn_pdrop=0.5, resid_pdrop=0.5))
    ids = random_ids(2, 5)
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("rate", ["embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_each_dropout_rate_is_used(rate):
    none = replace(TINY, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
    ids = random_ids(2, 5)
    model = make_model(none).train()
    assert torch.equal(model(ids), model(ids))
    model = make_model(replace(none, **{rate: 0.5})).train()
    assert not torch.equal(model(ids), model(ids))


def test_every_layer_norm_has_the_epsilon_of_the_config():
    model = GPT(replace(TINY, layer_norm_epsilon=0.1))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 * TINY.n_layer + 1
    assert {norm.eps for norm in norms} == {0.1}


@pytest.mark.parametrize("part", ["attn", "mlp"])
def test_both_sublayers_drop_from_what_they_add(part):
    config = replace(TINY, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.5)
    sublayer = getattr(make_model(config).train().h[0], part)
    zeros = (sublayer(torch.randn(4, 16, 24)) == 0).double().mean().item()
    assert zeros == pytest.approx(0.5, abs=0.05)


def test_the_spread_of_fresh_weights_is_the_configs():
    torch.manual_seed(0)
    model = GPT(replace(TINY, vocab_size=5000, initializer_range=0.5))
    assert model.wte.weight.std().item() == pytest.approx(0.5, rel=0.02)
    assert model.h[0].mlp.c_proj.weight.std().item() == pytest.approx(0.5 / math.sqrt(6), rel=0.05)


@pytest.mark.slow
def test_nu1_initial_weights_have_gpt2s_spread():
    torch.manual_seed(0)
    model = GPT(PRESETS["gpt2"])
    projections = 0
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            assert not parameter.any()
        elif "ln_" in name:
            assert (parameter == 1).all()
        elif name.endswith("c_proj.weight"):
            projections += 1
            assert parameter.std().item() == pytest.approx(0.02 / math.sqrt(24), rel=0.01)
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.01)
    assert projections == 24


@pytest.mark.slow
@torch.no_grad()
def test_nu2_the_first_loss_is_ln_v_and_half_the_logit_variance():
    torch.manual_seed(0)
    model = GPT(PRESETS["gpt2"]).eval()
    ids, targets = random_ids(2, 256, 50257, seed=1), random_ids(2, 256, 50257, seed=2)
    loss = token_loss(model(ids), targets).item()
    assert loss == pytest.approx(math.log(50257) + 768 * 0.02**2 / 2, abs=0.03)


def test_hooks_on_every_module_run_once_in_a_forward_pass(model):
    """What prunes, adapts, counts or watches modules hooks into them: a module that is not called is not seen."""
    calls = {name: 0 for name, _ in model.named_modules() if name != "h"}  # a list of modules, never called
    for name in calls:

        def count(module, args, output, name=name):
            calls[name] += 1

        model.get_submodule(name).register_forward_hook(count)
    model(random_ids(2, 5))
    assert set(calls.values()) == {1}


@pytest.mark.parametrize("table", ["wte", "wpe"])
@torch.no_grad()
def test_what_stands_in_the_place_of_a_table_is_what_the_model_reads(table):
    model, ids = make_model(replace(TINY, tie_word_embeddings=False)), random_ids(2, 5)
    before = model.get_submodule(table)

    class Doubled(torch.nn.Module):
        def forward(self, ids):
            return 2 * before(ids)

    setattr(model, table, Doubled())
    found = model(ids)
    setattr(model, table, before)
    before.weight.mul_(2)
    assert_close(found, model(ids))
