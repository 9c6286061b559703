import doctest
import inspect
import subprocess
import sys
import typing
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from gptlab import (
    GPT,
    PRESETS,
    KVCache,
    Ledger,
    checkpoint,
    data,
    from_pretrained,
    generate,
    load_checkpoint,
    quantization,
)
from gptlab.checkpoint import SHIPPED
from gptlab.generation import stream
from gptlab.memory import weights
from gptlab.memory.weights import quantized_bytes
from gptlab.quantization import Int8GPT, Int8Linear, Int8Matrix, dequantize, int8_rows, quantize
from gptlab.tying import is_tied
from gptlab.unembedding import token_loss
from tests.conftest import TINY, make_model, random_ids

UNTIED = replace(TINY, tie_word_embeddings=False)
MODEL = make_model()
INT8 = quantize(MODEL)


def tensors(model: nn.Module) -> list[torch.Tensor]:
    """All that a model holds; a tensor that it holds under two names once."""
    return [*model.parameters(), *model.buffers()]


def in_float(model: Int8GPT) -> GPT:
    """The ordinary GPT whose weights are exactly those that the integers and scales stand for."""
    matrices = {
        name: m for name, m in model.named_modules(remove_duplicate=False) if isinstance(m, Int8Matrix)
    }
    state = {name: t for name, t in model.state_dict().items() if not name.endswith((".q", ".scale"))}
    state |= {name: dequantize(matrix.q, matrix.scale) for name, matrix in matrices.items()}
    plain = GPT(model.config).eval()
    plain.load_state_dict(state)
    return plain


# Rows


def test_mm6_a_row_of_zeros_has_a_finite_positive_scale_and_comes_back_as_zeros():
    q, scale = int8_rows(torch.tensor([[0.0, 0, 0], [1, -2, 4]]))
    assert q.tolist() == [[0, 0, 0], [32, -64, 127]]
    assert q.dtype == torch.int8
    assert scale.isfinite().all()
    assert (scale > 0).all()
    assert dequantize(q, scale)[0].tolist() == [0, 0, 0]
    assert dequantize(q, scale)[1].tolist() == pytest.approx([32 * 4 / 127, -64 * 4 / 127, 4])


MATRICES = st.builds(
    lambda rows, columns, seed, powers: (
        torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
        * 10.0 ** torch.tensor(powers[:rows])[:, None]
    ),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 99),
    st.lists(st.integers(-30, 36), min_size=6, max_size=6),
)


@given(MATRICES)
def test_no_weight_moves_by_more_than_half_a_scale_and_the_largest_of_each_row_is_127(W):
    q, scale = int8_rows(W)
    assert ((dequantize(q, scale) - W).abs() <= 0.5001 * scale[:, None]).all()
    assert q.abs().amax(dim=1).tolist() == [127] * len(W)  # in int8, -128 would have the magnitude -128
    assert_close(scale, W.abs().amax(dim=1) / 127)


@given(MATRICES)
def test_each_row_is_quantised_by_itself_and_the_signs_are_treated_alike(W):
    q, scale = int8_rows(W)
    for i in range(len(W)):
        alone, its_scale = int8_rows(W[i : i + 1])
        assert torch.equal(alone[0], q[i])
        assert its_scale == scale[i]
    assert torch.equal(int8_rows(-W)[0], -q)


@given(MATRICES)
def test_what_is_on_the_grid_already_stays_there(W):
    q, scale = int8_rows(W)
    again, _ = int8_rows(dequantize(q, scale))
    assert torch.equal(again, q)


def test_a_row_of_the_smallest_numbers_there_are_divides_by_no_zero():
    q, scale = int8_rows(torch.tensor([[1e-45, -1e-45, 0], [1e-38, 0, -1e-38]]))
    assert (scale > 0).all()
    assert dequantize(q, scale).isfinite().all()


def test_half_precision_weights_have_float32_scales():
    W = torch.randn(3, 5)
    q, scale = int8_rows(W.bfloat16())
    assert scale.dtype == torch.float32
    assert torch.equal(q, int8_rows(W.bfloat16().float())[0])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_matrix_that_holds_no_number_is_refused(bad):
    with pytest.raises(ValueError, match=r"shape \(2, 3\) holds NaN or infinity"):
        int8_rows(torch.tensor([[0.0, 1, 2], [3, bad, 5]]))


@pytest.mark.parametrize("block", [1, 4, 11, 12, 1024])
def test_rows_and_products_are_those_of_the_matrix_however_it_is_cut(monkeypatch, block):
    monkeypatch.setattr(quantization, "ROWS", block)
    matrix = Int8Matrix(torch.randn(11, 7))
    W, x = dequantize(matrix.q, matrix.scale), torch.randn(2, 3, 7)
    assert_close(matrix.product(x), x @ W.T)
    ids = torch.tensor([[10, 0, 10]])
    assert torch.equal(matrix.rows(ids), W[ids])


@pytest.mark.parametrize("bad", [-1, 11])
def test_a_row_that_is_not_there_is_not_another_one(bad):
    with pytest.raises(IndexError):
        Int8Matrix(torch.randn(11, 7)).rows(torch.tensor([[0, bad]]))


# The model


@pytest.mark.parametrize("config", [TINY, UNTIED], ids=["tied", "untied"])
@torch.no_grad()
def test_it_computes_what_a_gpt_with_these_weights_computes(config):
    model, ids = quantize(make_model(config)), random_ids(2, 9)
    plain = in_float(model)
    assert_close(model(ids), plain(ids), atol=1e-5, rtol=1e-5)
    assert_close(model.hidden(ids), plain.hidden(ids), atol=1e-5, rtol=1e-5)
    assert not torch.equal(model(ids), make_model(config)(ids))


def test_every_matrix_is_int8_with_a_float32_scale_per_row_and_nothing_else_is():
    shapes = {name: tuple(p.shape) for name, p in MODEL.named_parameters()}
    found = {name: t for name, t in INT8.state_dict().items() if not name.startswith("lm_head")}
    expected = {}
    for name, shape in shapes.items():
        if len(shape) == 2:
            expected[f"{name}.q"] = (shape, torch.int8)
            expected[f"{name}.scale"] = (shape[:1], torch.float32)
        else:
            expected[name] = (shape, torch.float32)
    assert {name: (tuple(t.shape), t.dtype) for name, t in found.items()} == expected


def test_biases_and_layer_norms_are_equal_to_the_models_and_not_shared_with_it():
    theirs = dict(MODEL.named_parameters())
    ours = dict(INT8.named_parameters())
    assert len(ours) == 8 * TINY.n_layer + 2
    for name, parameter in ours.items():
        assert torch.equal(parameter, theirs[name])
        assert parameter.data_ptr() != theirs[name].data_ptr()


def test_the_model_given_is_left_as_it_was():
    model = make_model().train()
    model.h[1].eval()
    before, modes = deepcopy(model.state_dict()), [module.training for module in model.modules()]
    quantize(model)
    assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    assert [module.training for module in model.modules()] == modes
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert type(model) is GPT
    assert is_tied(model)


def test_it_is_on_the_cpu_in_evaluation_mode_and_learns_nothing():
    model = quantize(make_model(replace(TINY, resid_pdrop=0.5)).train())
    assert {t.device.type for t in tensors(model)} == {"cpu"}
    assert not any(module.training for module in model.modules())
    assert not any(t.requires_grad for t in tensors(model))
    assert not model(random_ids(1, 3)).requires_grad
    assert isinstance(model, GPT)
    assert model.config == replace(TINY, resid_pdrop=0.5)


def test_a_bf16_checkpoint_gives_a_float32_model_with_the_same_integers():
    half, full = load_checkpoint(SHIPPED["shakespeare"]), from_pretrained("shakespeare")
    a, b = quantize(half), quantize(full)
    assert {t.dtype for t in tensors(a)} == {torch.int8, torch.float32}
    assert_close(dict(a.state_dict()), dict(b.state_dict()), rtol=0, atol=0)


def test_quantising_twice_is_refused():
    with pytest.raises(TypeError, match="quantised already: pass the GPT that it was made from"):
        quantize(INT8)


def test_a_model_with_a_nan_is_refused(model):
    with torch.no_grad():
        model.h[1].mlp.c_fc.weight[2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"shape \(96, 24\) holds NaN"):
        quantize(model)


# The tie


SURVIVED = {
    "nothing": lambda model: model,
    "deepcopy": deepcopy,
    "to": lambda model: model.to("cpu"),
    "double": lambda model: model.double(),
    "train and eval": lambda model: model.train().eval(),
}


@pytest.mark.parametrize("change", SURVIVED.values(), ids=SURVIVED)
def test_head_and_token_table_are_one_int8_tensor_and_one_scale(change):
    model = change(quantize(MODEL))
    assert is_tied(model)
    assert model.lm_head.weight.q is model.wte.weight.q
    assert model.lm_head.weight.scale is model.wte.weight.scale
    names = [name for name, _ in model.named_buffers()]
    assert len(names) == 2 * (2 + 4 * TINY.n_layer)
    assert not any(name.startswith("lm_head") for name in names)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_goes_into_another_quantised_model_and_the_tie_stays(assign):
    other = quantize(make_model(seed=5))
    assert not torch.equal(other(random_ids(2, 5)), INT8(random_ids(2, 5)))
    other.load_state_dict(deepcopy(INT8.state_dict()), assign=assign)
    assert torch.equal(other(random_ids(2, 5)), INT8(random_ids(2, 5)))
    assert other.lm_head.weight.q is other.wte.weight.q


def test_an_untied_model_has_two_tables():
    given_model = make_model(UNTIED)
    model = quantize(given_model)
    assert not is_tied(model)
    assert torch.equal(model.wte.weight.q, int8_rows(given_model.wte.weight)[0])
    assert torch.equal(model.lm_head.weight.q, int8_rows(given_model.lm_head.weight)[0])
    assert not torch.equal(model.wte.weight.q, model.lm_head.weight.q)


# Bytes


@settings(max_examples=15)
@given(
    st.integers(1, 70),
    st.integers(1, 20),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_bytes_are_those_of_the_formula(V, P, L, D, H, tied):
    config = replace(
        TINY, vocab_size=V, n_positions=P, n_layer=L, n_embd=D * H, n_head=H, tie_word_embeddings=tied
    )
    assert sum(t.nbytes for t in tensors(quantize(GPT(config)))) == quantized_bytes(config)


def test_gpt2_takes_125_mb_and_without_the_tie_164():
    tied, untied = PRESETS["gpt2"], replace(PRESETS["gpt2"], tie_word_embeddings=False)
    assert quantized_bytes(tied) == 125_340_740 == 124_318_464 + 4 * 134_225 + 4 * 121_344
    assert quantized_bytes(untied) - quantized_bytes(tied) == 50257 * (768 + 4) == 38_798_404


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_bytes_of_gpt2_itself_are_those_of_the_formula(tied):
    config = replace(PRESETS["gpt2"], tie_word_embeddings=tied)
    model = quantize(GPT(config))
    assert sum(t.nbytes for t in tensors(model)) == quantized_bytes(config)


def test_the_formula_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gptlab.memory.weights import quantized_bytes\n"
        "from gptlab.config import PRESETS\n"
        "print(quantized_bytes(PRESETS['gpt2']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "125340740\n"


# Generation


@settings(max_examples=15)
@given(st.integers(1, 20), st.integers(0, 8), st.integers(1, 3), st.integers(0, 99))
def test_the_cache_changes_no_token_also_past_the_context(T, n, B, seed):
    ids = random_ids(B, T, seed=seed)
    with_cache, without = (
        generate(INT8, ids, n, generator=torch.Generator().manual_seed(seed), use_cache=use)
        for use in (True, False)
    )
    assert torch.equal(with_cache, without)
    assert with_cache.shape == (B, T + n)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) <= 16))
def test_cached_equals_uncached_for_any_chunking(sizes):
    ids, cache = random_ids(3, sum(sizes)), KVCache(TINY, 3)
    chunks = torch.cat([INT8(part, cache) for part in ids.split(sizes, dim=1)], dim=1)
    assert_close(chunks, INT8(ids), atol=1e-5, rtol=1e-5)


def test_greedy_tokens_and_their_stream_are_those_of_a_gpt_with_these_weights():
    ids = random_ids(2, 3)
    tokens = generate(INT8, ids, 12, temperature=0.0)
    assert torch.equal(tokens, generate(in_float(INT8), ids, 12, temperature=0.0))
    assert torch.equal(torch.stack(list(stream(INT8, ids, 12, temperature=0.0)), dim=1), tokens[:, 3:])


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (
            torch.tensor([[1, 59]]),
            ValueError,
            r"token id 59 at \[0, 1\] is out of range: valid ids are 0 to 58",
        ),
        (torch.tensor([[-1]]), ValueError, r"token id -1 at \[0, 0\]"),
        (torch.zeros(1, 17, dtype=torch.long), ValueError, "positions 0 to 16 are asked for"),
        (torch.zeros(1, 3), TypeError, r"not torch.float32: use input_ids.long\(\)"),
        (torch.tensor([1, 2]), ValueError, r"use input_ids\[None\] for one row"),
    ],
)
def test_ids_are_refused_as_by_the_model_that_was_given(as_a_user, ids, error, message):
    for model in (MODEL, INT8):
        with pytest.raises(error, match=message):
            model(ids)


def test_int32_ids_give_the_same_logits():
    ids = random_ids(2, 5)
    assert torch.equal(INT8(ids.int()), INT8(ids))


# Accuracy


def differences(model: GPT, ids: torch.Tensor, targets: torch.Tensor) -> tuple[float, float, float]:
    """Of the quantised model's logits: the largest error over the largest logit, equal choices, extra loss."""
    with torch.no_grad():
        expected, found = model(ids), quantize(model)(ids)
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    same = (found.argmax(-1) == expected.argmax(-1)).double().mean().item()
    return error, same, (token_loss(found, targets) - token_loss(expected, targets)).item()


def test_the_shipped_model_predicts_held_out_text_as_well_as_before():
    model = from_pretrained("shakespeare")
    T = model.config.n_positions
    tokens = torch.from_numpy(
        data.encode_documents(data.shakespeare("validation"))[: 4 * T + 1].astype("int64")
    )
    error, same, extra_loss = differences(model, tokens[:-1].view(4, T), tokens[1:].view(4, T))
    assert error < 0.05
    assert same > 0.98
    assert abs(extra_loss) < 0.005


@pytest.mark.slow
def test_gpt2_sized_random_weights_give_nearly_the_same_logits():
    torch.manual_seed(0)
    model = GPT(PRESETS["gpt2"]).eval()
    ids = random_ids(1, 128, 50257)
    error, same, extra_loss = differences(model, ids, ids)
    assert error < 0.05
    assert same > 0.85
    assert abs(extra_loss) < 0.005


# Documentation


@pytest.mark.parametrize("module", [quantization, weights])
def test_the_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_every_annotation_can_be_resolved():
    for function in (int8_rows, dequantize, quantize, Int8Matrix.product, Int8Linear.forward, Int8GPT.hidden):
        assert typing.get_type_hints(inspect.unwrap(function))


def test_a_compiled_model_is_quantised_like_the_model_in_it(as_a_user):
    ids = random_ids(2, 5)
    assert torch.equal(quantize(torch.compile(MODEL, backend="eager"))(ids), INT8(ids))


def test_a_quantised_model_cannot_be_saved_and_the_error_says_what_can(tmp_path):
    with pytest.raises(ValueError, match=r"has no parameter wte.weight .*save the GPT that it was made from"):
        checkpoint.save_checkpoint(INT8, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_int8_model_has_no_ledger_of_its_own():
    with pytest.raises(
        TypeError, match="Int8GPT has no parameter wte.weight.* Count the model that it was made from"
    ):
        Ledger.from_model(quantize(make_model()))
