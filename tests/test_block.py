import torch
from torch.testing import assert_close


def test_attention_then_mlp_each_adding_to_the_stream(model):
    block, x = model.h[1], torch.randn(2, 5, 24)
    after_attention = x + block.attn(block.ln_1(x))
    assert_close(block(x), after_attention + block.mlp(block.ln_2(after_attention)))


def test_nu3_layer_norm_puts_epsilon_inside_the_root(model):
    norm = model.h[0].ln_1
    assert norm.eps == 1e-5
    plain = torch.nn.LayerNorm(4, eps=norm.eps)
    assert_close(plain(torch.tensor([1.0, 2, 3, 4]))[0].item(), -1.3416355, atol=1e-6, rtol=0)
    assert_close(plain(torch.tensor([0.0, 1, 2, 3]) * 1e-3)[3].item(), 0.4472136, atol=1e-6, rtol=0)


def test_a_block_whose_projections_are_zero_changes_nothing(model):
    block, x = model.h[0], torch.randn(2, 5, 24)
    with torch.no_grad():
        for linear in (block.attn.c_proj, block.mlp.c_proj):
            linear.weight.zero_()
            linear.bias.zero_()
    assert torch.equal(block(x), x)
