import io
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gptlab import GPT, PRESETS
from gptlab.model import init_weights
from gptlab.tying import is_tied, same_values, tie, untie
from gptlab.unembedding import next_token_loss, token_loss
from tests.conftest import TINY, make_model, random_ids


def test_gpt2_is_tied_by_identity(model):
    assert model.lm_head.weight is model.wte.weight
    assert is_tied(model)


def test_an_equal_copy_is_not_a_tie_and_one_step_separates_it(model):
    model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    assert not is_tied(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(random_ids(2, 5)).square().mean().backward()
    optimizer.step()
    assert not torch.equal(model.lm_head.weight, model.wte.weight)


SURVIVED = {
    "deepcopy": deepcopy,
    "half": lambda model: model.half(),
    "double": lambda model: model.double(),
    "to": lambda model: model.to(torch.bfloat16),
    "to_empty": lambda model: model.to_empty(device="cpu"),
    "train and eval": lambda model: model.train().eval(),
    "requires_grad_": lambda model: model.requires_grad_(False),
}


@pytest.mark.parametrize("change", SURVIVED.values(), ids=SURVIVED)
def test_the_tie_survives(model, change):
    changed = change(model)
    assert changed.lm_head.weight is changed.wte.weight
    assert len(list(changed.parameters())) == 2 + 12 * TINY.n_layer + 2


def test_the_tie_survives_an_optimizer_step(model):
    optimizer = torch.optim.AdamW(model.parameters())
    model(random_ids(2, 5)).square().mean().backward()
    optimizer.step()
    assert is_tied(model)


@pytest.mark.slow
def test_ld8_meta_then_to_empty_then_init_keeps_the_tie():
    with torch.device("meta"):
        model = GPT(PRESETS["gpt2"])
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    init_weights(model)
    assert model.wte.weight.std().item() == pytest.approx(0.02, rel=0.01)
    assert model.lm_head.weight is model.wte.weight
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


@pytest.mark.parametrize("with_head", [True, False])
def test_ld8_load_state_dict_with_assign_keeps_the_tie(model, with_head):
    state = deepcopy(model.state_dict())
    if not with_head:
        del state["lm_head.weight"]
    with torch.device("meta"):
        other = GPT(TINY)
    other.load_state_dict(state, assign=True)
    assert other.lm_head.weight is other.wte.weight
    assert torch.equal(other.eval()(random_ids(2, 5)), model(random_ids(2, 5)))


def test_a_state_dict_saved_by_torch_keeps_the_tie(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = GPT(TINY)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert is_tied(other)
    assert torch.equal(other.wte.weight, model.wte.weight)


def test_the_weights_of_an_untied_model_do_not_overwrite_the_token_table():
    untied = make_model(replace(TINY, tie_word_embeddings=False))
    tied = make_model(seed=1)
    before = tied.wte.weight.detach().clone()
    with pytest.raises(ValueError, match="load them into one with tie_word_embeddings=False"):
        tied.load_state_dict(untied.state_dict())
    assert torch.equal(tied.wte.weight, before)


def test_ld9_the_order_of_tying_and_initialising_changes_nothing():
    config, ids = replace(TINY, vocab_size=997), random_ids(2, 9, 997)
    models = []
    for tied_before in (True, False):
        model = GPT(replace(config, tie_word_embeddings=tied_before)).eval()
        torch.manual_seed(7)
        init_weights(model)
        tie(model)
        models.append(model)
    before, after = models
    for model in models:
        assert model.lm_head.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(before.wte.weight, after.wte.weight)
    assert next_token_loss(before(ids), ids).item() == next_token_loss(after(ids), ids).item()


WRAPPERS = {
    "compile": (torch.compile, "_orig_mod."),
    "DataParallel": (nn.DataParallel, "module."),
    "Sequential": (nn.Sequential, "0."),
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize(("wrap", "prefix"), WRAPPERS.values(), ids=WRAPPERS)
def test_ld8_loading_through_a_wrapper_keeps_the_tie(model, wrap, prefix, assign):
    other = GPT(TINY).eval()
    state = {prefix + name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    wrap(other).load_state_dict(state, assign=assign)
    assert other.lm_head.weight is other.wte.weight
    assert torch.equal(other(random_ids(2, 5)), model(random_ids(2, 5)))


@pytest.mark.parametrize(("wrap", "prefix"), WRAPPERS.values(), ids=WRAPPERS)
def test_the_weights_of_an_untied_model_are_refused_through_a_wrapper_too(model, wrap, prefix):
    untied = make_model(replace(TINY, tie_word_embeddings=False))
    before = model.wte.weight.detach().clone()
    with pytest.raises(ValueError, match="load them into one with tie_word_embeddings=False"):
        wrap(model).load_state_dict({prefix + name: tensor for name, tensor in untied.state_dict().items()})
    assert torch.equal(model.wte.weight, before)


ONE_NAME = pytest.mark.parametrize("kept", ["wte.weight", "lm_head.weight"])


@ONE_NAME
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize(("wrap", "prefix"), [(lambda model: model, ""), *WRAPPERS.values()])
def test_either_name_of_a_tied_pair_fills_both(model, kept, assign, wrap, prefix):
    other = make_model(seed=1)
    dropped = {"wte.weight": "lm_head.weight", "lm_head.weight": "wte.weight"}[kept]
    state = {
        prefix + name: tensor for name, tensor in deepcopy(model.state_dict()).items() if name != dropped
    }
    result = wrap(other).load_state_dict(state, assign=assign)
    assert result.missing_keys == result.unexpected_keys == []
    assert other.lm_head.weight is other.wte.weight
    assert torch.equal(other(random_ids(2, 5)), model(random_ids(2, 5)))
    assert prefix + dropped not in state  # the caller's dict is left alone


@pytest.mark.parametrize("missing", ["wte.weight", "lm_head.weight"])
def test_an_untied_model_needs_both_names(missing):
    untied = make_model(replace(TINY, tie_word_embeddings=False))
    state = {name: tensor for name, tensor in untied.state_dict().items() if name != missing}
    with pytest.raises(RuntimeError, match=f'Missing key.*"{missing}"'):
        untied.load_state_dict(state)


def test_a_file_of_safetensors_save_model_loads(tmp_path, model):
    save_model(model, str(tmp_path / "x.safetensors"))
    assert "wte.weight" not in load_file(tmp_path / "x.safetensors")
    other = make_model(seed=1)
    other.load_state_dict(load_file(tmp_path / "x.safetensors"))
    assert torch.equal(other.wte.weight, model.wte.weight)
    assert is_tied(other)


def test_a_model_with_a_nan_loads_its_own_state(model):
    with torch.no_grad():
        model.wte.weight[0, 0] = torch.nan
    model.load_state_dict(deepcopy(model.state_dict()))
    assert is_tied(model)


def test_equal_values_of_another_type_are_not_the_same():
    a = torch.ones(2, 3)
    assert same_values(a, a.clone())
    assert not same_values(a, a.half())
    assert not same_values(a, torch.ones(3, 2))


def test_moving_a_model_neither_ties_nor_rewrites_its_config(model):
    model.config = replace(TINY, tie_word_embeddings=False)  # wrong, and for saving to find
    model.half()
    assert model.config.tie_word_embeddings is False
    model.lm_head = nn.Identity()
    assert model.float().lm_head.__class__ is nn.Identity


def test_under_fake_tensors_a_model_is_built_loaded_and_scored():
    with FakeTensorMode():
        model = GPT(TINY)
        model.load_state_dict(model.state_dict())
        ids = torch.zeros(2, 5, dtype=torch.long)
        token_loss(model(ids), ids).backward()
    assert is_tied(model)


def test_untie_gives_the_head_its_own_weights_and_tie_takes_them_back(model):
    before = model(random_ids(2, 5))
    untie(model)
    assert not is_tied(model)
    assert model.config.tie_word_embeddings is False
    assert torch.equal(model(random_ids(2, 5)), before)
    with torch.no_grad():
        model.lm_head.weight[0] += 1
    assert not torch.equal(model.lm_head.weight[0], model.wte.weight[0])
    tie(model)
    assert is_tied(model)
    assert model.config == TINY


def test_a_head_that_cannot_be_tied_is_refused(model):
    model.lm_head = nn.Linear(24, 60, bias=False)
    with pytest.raises(
        ValueError, match=r"shape \(60, 24\) cannot be tied to a token table of shape \(59, 24\)"
    ):
        tie(model)
    model.lm_head = nn.Linear(24, 59)
    with pytest.raises(ValueError, match="the head has a bias, GPT-2's has none"):
        tie(model)


def test_both_uses_of_the_table_contribute_to_its_gradient(model):
    ids = torch.tensor([[3, 3, 8]])
    model(ids)[..., 0].sum().backward()
    tied_gradient = model.wte.weight.grad.clone()
    untie(model)
    model.zero_grad()
    model(ids)[..., 0].sum().backward()
    torch.testing.assert_close(tied_gradient, model.wte.weight.grad + model.lm_head.weight.grad)
    assert model.wte.weight.grad.abs().sum(-1).nonzero().flatten().tolist() == [3, 8]
