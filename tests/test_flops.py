import doctest

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gptlab import GPT, PRESETS, GPTConfig, flops
from gptlab.flops import forward_flops

ODD = GPTConfig(vocab_size=101, n_positions=40, n_embd=48, n_layer=3, n_head=4)


def test_the_example_in_the_docstring():
    assert doctest.testmod(flops).failed == 0


@pytest.mark.parametrize("context", [1, 7, 40])
def test_the_sum_is_what_pytorch_counts(context):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:  # attention as plain products
        GPT(ODD)(torch.zeros(1, context, dtype=torch.long))
    assert counter.get_total_flops() == context * sum(forward_flops(ODD, context).values())


def test_gpt2s_parts():
    parts = forward_flops(PRESETS["gpt2"])
    assert sum(parts.values()) == 284_812_800
    assert parts["head"] == 77_194_752
    assert sum(parts.values()) - parts["scores and sums"] // 2 == 265_938_432


@pytest.mark.parametrize("context", [0, 41])
def test_a_context_that_the_model_has_not_is_refused(context):
    with pytest.raises(ValueError, match=f"context={context} must be from 1 to n_positions=40"):
        forward_flops(ODD, context)
