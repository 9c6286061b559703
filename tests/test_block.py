from dataclasses import replace

import torch
from torch.testing import assert_close

from gptlab import GPT
from tests.conftest import TINY


def test_attention_then_mlp_each_adding_to_the_stream(model):
    block, x = model.h[1], torch.randn(2, 5, 24)
    after_attention = x + block.attn(block.ln_1(x))
    assert_close(block(x), after_attention + block.mlp(block.ln_2(after_attention)))


def test_nu3_layer_norm_puts_epsilon_inside_the_root(model):
    for norm in GPT(replace(TINY, n_embd=4, n_head=2)).h[0].ln_1, GPT(replace(TINY, n_embd=4, n_head=2)).ln_f:
        values = [-1.3416355, -0.4472118, 0.4472118, 1.3416355]
        assert_close(norm(torch.tensor([1.0, 2, 3, 4])).tolist(), values, atol=1e-6, rtol=0)
        small = norm(torch.tensor([0.0, 1, 2, 3]) * 1e-3)
        assert_close([small[0].item(), small[3].item()], [-0.4472136, 0.4472136], atol=1e-6, rtol=0)


def test_a_block_whose_projections_are_zero_changes_nothing(model):
    block, x = model.h[0], torch.randn(2, 5, 24)
    with torch.no_grad():
        for linear in (block.attn.c_proj, block.mlp.c_proj):
            linear.weight.zero_()
            linear.bias.zero_()
    assert torch.equal(block(x), x)
