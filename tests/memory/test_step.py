"""What a step may be."""

import pytest

from tests.memory.steps import tiny_step


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"batch_size": -4}, "batch_size=-4 must be at least 1"),
        ({"context": 41}, "context=41 is more than the model's n_positions=40"),
        ({"micro_batches": 3}, "batch_size=2 must be divisible by micro_batches=3"),
        ({"precision": "fp8"}, "precision='fp8' must be one of fp32, amp, bf16, master"),
        ({"attention": "flash"}, "attention='flash' must be one of sdpa, explicit"),
        ({"loss": "half"}, "loss='half' must be one of full, chunked, fused"),
        ({"optimizer": "sgd"}, "optimizer='sgd' must be one of fused, foreach, loop"),
        ({"loss": "fused", "precision": "bf16"}, "loss='fused' computes in fp32, not bf16"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_a_step_that_cannot_be_is_refused_with_the_value_and_what_may_be(wrong, message):
    with pytest.raises(ValueError, match=message):
        tiny_step(**wrong)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("value", [2.0, True, "2"])
def test_a_number_that_is_no_integer_is_refused(value):
    with pytest.raises(TypeError, match="batch_size=.* must be an integer"):
        tiny_step(batch_size=value)


def test_micro_batches_divide_the_rows():
    assert tiny_step(batch_size=6, micro_batches=3).rows == 2
