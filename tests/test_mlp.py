import math

import torch
from torch.testing import assert_close

from gptlab.mlp import MLP
from tests.conftest import TINY


def make_mlp() -> MLP:
    torch.manual_seed(0)
    return MLP(TINY).eval()


def test_the_hidden_layer_is_four_times_as_wide():
    mlp = make_mlp()
    assert mlp.c_fc.weight.shape == (96, 24)
    assert mlp.c_proj.weight.shape == (24, 96)


def test_nu3_gelu_is_the_tanh_form():
    mlp, x = make_mlp(), torch.randn(2, 3, 24)
    h = mlp.c_fc(x)
    gelu = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    assert_close(mlp(x), mlp.c_proj(gelu), atol=1e-7, rtol=1e-5)
    one = torch.nn.functional.gelu(torch.tensor([1.0, -3.0]), approximate="tanh")
    assert_close(one, torch.tensor([0.8411920, -0.0036374]), atol=1e-7, rtol=0)


def test_each_position_is_treated_alone():
    mlp, x = make_mlp(), torch.randn(2, 5, 24)
    assert_close(mlp(x)[:, 3:4], mlp(x[:, 3:4]))
