"""Compiled, everything has the gradients that it has uncompiled.

``aot_eager`` traces forward and backward pass as ``inductor`` does, and needs no C++ compiler.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from gptlab import GPT
from gptlab.fused_loss import fused_token_loss
from gptlab.training import TrainingSettings, backward, make_optimizer
from gptlab.unembedding import chunked_token_loss, next_token_loss, token_loss
from tests.conftest import TINY, make_model, random_ids

B, T, C, V = 4, 9, TINY.n_embd, TINY.vocab_size
STILL = replace(TINY, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)  # dropout's draws differ when compiled
FORMS = {
    "plain": lambda hidden, W_U, targets: token_loss(hidden @ W_U, targets),
    "next token": lambda hidden, W_U, targets: next_token_loss(hidden @ W_U, targets),
    "chunked": partial(chunked_token_loss, n_chunks=2),
    "fused": fused_token_loss,
}

pytestmark = [
    pytest.mark.usefixtures("as_a_user"),  # the tests' own shape checks cannot be compiled
    # PyTorch's own, while it compiles
    pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Micro-batches with unequally many targets."""
    y = random_ids(B, T, seed=2)
    y[0, :5] = -100
    return random_ids(B, T), y


def gradients_of(model: GPT) -> list[torch.Tensor]:
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return gradients


@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_loss_multiplied_by_a_factor_has_the_factor_in_its_gradients(form, factor):
    targets = batch()[1].clamp(min=0)

    def gradients(loss_of):
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(B, T, C, generator=generator, requires_grad=True)
        W_U = torch.randn(C, V, generator=generator, requires_grad=True)
        return torch.autograd.grad(factor * loss_of(hidden, W_U, targets), [hidden, W_U])

    assert_close(gradients(torch.compile(FORMS[form], backend="aot_eager")), gradients(FORMS[form]))


@pytest.mark.parametrize("form", FORMS)
def test_compiled_autograd_has_the_factor_in_its_gradients(form):
    targets = batch()[1].clamp(min=0)

    def gradients(run) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(B, T, C, generator=generator, requires_grad=True)
        W_U = torch.randn(C, V, generator=generator, requires_grad=True)
        run(0.25 * FORMS[form](hidden, W_U, targets))
        return [hidden.grad, W_U.grad]

    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = gradients(torch.compile(torch.Tensor.backward, backend="aot_eager"))
    assert_close(compiled, gradients(torch.Tensor.backward))


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_the_whole_backward_pass_compiled_accumulates_the_same_gradients(precision, micro_batches):
    model, (x, y) = make_model(STILL).train(), batch()
    expected_loss = backward(model, x, y, micro_batches, precision)
    expected = gradients_of(model)
    loss = torch.compile(backward, backend="aot_eager")(model, x, y, micro_batches, precision)
    assert_close(loss, expected_loss)
    assert_close(gradients_of(model), expected)


def test_steps_compiled_whole_change_the_weights_as_they_do_uncompiled():
    def trained(compiled: bool) -> list[torch.Tensor]:
        model, (x, y) = make_model(STILL).train(), batch()
        optimizer = make_optimizer(model, TrainingSettings(steps=3, warmup=0))

        def step() -> None:
            backward(model, x, y, 2)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        run = torch.compile(step, backend="aot_eager") if compiled else step
        for _ in range(3):
            run()
        return list(model.parameters())

    assert_close(trained(compiled=True), trained(compiled=False))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++, and there is no g++")
def test_inductor_accumulates_the_same_gradients():
    model, (x, y) = make_model(STILL).train(), batch()
    backward(model, x, y, 2)
    expected = gradients_of(model)
    torch.compile(backward)(model, x, y, 2)
    assert_close(gradients_of(model), expected)
