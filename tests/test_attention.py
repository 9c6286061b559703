import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from gptlab.attention import attend, attend_sdpa, merge_heads, split_heads

BOTH = pytest.mark.parametrize("attend", [attend, attend_sdpa], ids=["explicit", "sdpa"])


def random_qkv(T: int, S: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, length, 5, generator=generator) for length in (T, S, S)]


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 2**31))
def test_the_readable_and_the_fused_form_agree(T, past, seed):
    q, k, v = random_qkv(T, T + past, seed)
    assert_close(attend(q, k, v), attend_sdpa(q, k, v), atol=1e-6, rtol=1e-5)


def test_by_hand():
    """Two positions, one head, D = 1: the second weighs the first by 1 / (1 + e)."""
    q, k, v = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), torch.tensor([10.0, 20.0])
    out = attend(*(t.view(1, 1, 2, 1) for t in (q, k, v))).flatten()
    assert out[0] == 10.0
    assert out[1].item() == pytest.approx((10 + 20 * math.e) / (1 + math.e))


def test_scores_are_divided_by_the_root_of_the_head_width():
    q, k, v = random_qkv(4, 4)
    weights = torch.softmax(
        (q @ k.transpose(-2, -1) / math.sqrt(5)).masked_fill(~torch.ones(4, 4).tril().bool(), -1e30), -1
    )
    assert_close(attend(q, k, v), weights @ v)


@BOTH
def test_at1_the_last_queries_of_a_cache_see_all_earlier_keys(attend):
    v = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 4, 1)
    zeros = torch.zeros_like(v)
    assert attend(zeros[:, :, :1], zeros, v).flatten().tolist() == [2.5]
    assert attend(zeros[:, :, :2], zeros, v).flatten().tolist() == [2.0, 2.5]


@BOTH
def test_at2_the_mask_is_not_inverted(attend):
    v = torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 3, 1)
    zeros = torch.zeros_like(v)
    assert_close(attend(zeros, zeros, v).flatten(), torch.tensor([1.0, 1.5, 2.0]))


@BOTH
def test_a_later_key_changes_nothing_before_it(attend):
    q, k, v = random_qkv(6, 6)
    before = attend(q, k, v)
    _, k[:, :, 4], v[:, :, 4] = torch.randn(3, 2, 3, 5, generator=torch.Generator().manual_seed(1))
    after = attend(q, k, v)
    assert torch.equal(after[:, :, :4], before[:, :, :4])
    assert (after != before)[:, :, 4:].any(dim=-1).all()


@torch.no_grad()
def test_behind_a_layer_norm_a_later_input_changes_nothing_before_it_and_everything_from_there_on(model):
    """Random vectors: a constant added to every feature would not pass the LayerNorm."""
    block, C = model.h[0], model.config.n_embd
    for j, seed in itertools.product(range(1, 8), range(5)):
        x, new = torch.randn(2, 2, 8, C, generator=torch.Generator().manual_seed(seed))
        changed = x.clone()
        changed[:, j] = new[:, j]
        moved = (block.attn(block.ln_1(changed)) != block.attn(block.ln_1(x))).any(dim=-1)
        assert moved.tolist() == [[t >= j for t in range(8)]] * 2


@BOTH
def test_a_constant_added_to_every_key_changes_nothing(attend):
    q, k, v = random_qkv(6, 6)
    assert_close(attend(q, k + torch.randn(5), v), attend(q, k, v), atol=1e-5, rtol=1e-5)


@BOTH
def test_more_queries_than_keys_are_refused(attend):
    q, k, v = random_qkv(4, 3)
    with pytest.raises(ValueError, match="4 queries but 3 keys"):
        attend(q, k, v)


@BOTH
def test_half_precision_overflows_nowhere(attend):
    q, k, v = (t.half() * 50 for t in random_qkv(6, 6))
    assert attend(q, k, v).isfinite().all()


@BOTH
@pytest.mark.parametrize("T", [1, 2, 1000], ids=["one query", "masked", "causal"])
def test_dropout_zeroes_weights_and_scales_the_others(attend, T):
    torch.manual_seed(0)
    zeros, v = torch.zeros(1, 1, 1000, 1), torch.ones(1, 1, 1000, 1)
    last = attend(zeros[:, :, :T], zeros, v, dropout=0.5)[0, 0, -1].item()
    assert last != 1.0
    assert last == pytest.approx(1.0, abs=0.15)


def test_heads_take_neighbouring_features():
    x = torch.arange(2 * 3 * 8).view(2, 3, 8).float()
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    assert torch.equal(heads[1, 2, 0], x[1, 0, 4:6])
    assert torch.equal(merge_heads(heads), x)


def test_the_key_bias_has_no_gradient(model):
    """Softmax ignores what is added to every score of a row alike, so the 9,216 key biases learn nothing."""
    C = model.config.n_embd
    model(torch.tensor([[1, 2, 3, 4, 5]])).square().sum().backward()
    for block in model.h:
        q, k, v = block.attn.c_attn.bias.grad.split(C)
        assert k.abs().max() < 1e-4 * q.abs().max()
        assert v.abs().max() > q.abs().max() > 0


def test_the_module_is_attention_between_two_linear_layers(model):
    attn, C = model.h[0].attn, model.config.n_embd
    x = torch.randn(2, 5, C)
    q, k, v = F.linear(x, attn.c_attn.weight, attn.c_attn.bias).split(C, dim=-1)
    heads = [
        attend(q[..., s][:, None], k[..., s][:, None], v[..., s][:, None])[:, 0]
        for s in (slice(6 * h, 6 * h + 6) for h in range(4))
    ]
    assert_close(attn(x), attn.c_proj(torch.cat(heads, dim=-1)), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_the_output_is_the_sum_of_what_each_head_writes_through_its_own_slice_of_c_proj_and_the_bias(model):
    """A head's QK product says where it reads, its OV product what it writes (Elhage et al. 2021)."""
    attn, C, H, D = model.h[0].attn, model.config.n_embd, model.config.n_head, model.config.head_dim
    x = torch.randn(2, 5, C, generator=torch.Generator().manual_seed(0))
    W_Q, W_K, W_V = attn.c_attn.weight.T.split(C, dim=1)
    b_Q, b_K, b_V = attn.c_attn.bias.split(C)
    W_O, future = attn.c_proj.weight.T, torch.ones(5, 5, dtype=torch.bool).triu(1)
    out = attn.c_proj.bias.clone()
    assert min(b.abs().max() for b in (b_Q, b_K, b_V, out)) > 0
    for h in range(H):
        own = slice(h * D, (h + 1) * D)
        QK, OV = W_Q[:, own] @ W_K[:, own].T, W_V[:, own] @ W_O[own]
        by_biases = x @ (W_K[:, own] @ b_Q[own])  # (B, T): what b_K adds is the same for all keys
        scores = (x @ QK @ x.mT + by_biases[:, None]) / math.sqrt(D)
        weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        out = out + weights @ x @ OV + b_V[own] @ W_O[own]
    assert_close(out, attn(x), atol=1e-6, rtol=1e-5)


@BOTH
def test_keys_without_a_value_each_are_refused_and_no_memory_is_read_past_the_values(as_a_user, attend):
    q, k, v = random_qkv(3, 3)
    with pytest.raises(ValueError, match=r"keys of shape \(2, 3, 3, 5\) but values of shape \(2, 3, 2, 5\)"):
        attend(q, k, v[:, :, :2])
