"""The training step of :mod:`gptlab.memory.step`, run: on real tensors, or on fake ones inside ``FakeTensorMode``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gptlab import attention
from gptlab.fused_loss import fused_token_loss
from gptlab.memory.step import TrainingStep
from gptlab.model import GPT
from gptlab.unembedding import chunked_token_loss, token_loss


def run_steps(
    step: TrainingStep,
    mark: Callable[[str], object] = lambda phase: None,
    *,
    count: int = 2,
    device: torch.device | str = "cpu",
) -> None:
    """Build a model and train it for ``count`` steps on tokens that are all 0: memory does not depend on them.

    Args:
        step: what to run.
        mark: called with the name of each phase as it begins: ``build``, and in each step ``step``, ``forward``,
            ``backward``, ``optimizer`` and ``end``.
        count: how many steps. In the first one AdamW has no moments yet.
        device: where to run them.
    """
    mark("build")
    model = build(step, device)
    x, y = (torch.zeros(step.batch_size, step.context, dtype=torch.long, device=device) for _ in range(2))
    optimizer = make_optimizer(step, model.parameters())
    for _ in range(count):
        mark("step")
        for inputs, targets in zip(x.chunk(step.micro_batches), y.chunk(step.micro_batches), strict=True):
            with switches(step, model):
                mark("forward")
                loss = step_loss(step, model, inputs, targets)
                if step.micro_batches > 1:
                    loss = loss / step.micro_batches
                mark("backward")
                loss.backward()
                del loss
        mark("optimizer")
        optimizer.step()
        optimizer.zero_grad()
        mark("end")


def build(step: TrainingStep, device: torch.device | str = "cpu") -> GPT:
    """The step's model, in training mode, with its weights in the step's type."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if step.precision in ("bf16", "master") else torch.float32)
    try:
        with torch.device(device):
            return GPT(step.config).train()
    finally:
        torch.set_default_dtype(usual)


def step_loss(
    step: TrainingStep, model: GPT, x: Int[Tensor, "B T"], y: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """The loss, in the step's precision and form."""
    amp = step.precision == "amp"
    with torch.autocast(x.device.type, dtype=torch.bfloat16) if amp else nullcontext():
        if step.loss == "full":
            return token_loss(model(x), y)
        form = chunked_token_loss if step.loss == "chunked" else fused_token_loss
        return form(model.hidden(x), model.lm_head.weight.T, y)


@contextmanager
def switches(step: TrainingStep, model: GPT) -> Iterator[None]:
    """The context in which the step's forward and backward pass run."""
    with ExitStack() as stack:
        if step.checkpointing:
            stack.enter_context(checkpointing(model))
        if step.attention == "explicit":
            stack.enter_context(explicit_attention())
        yield


@contextmanager
def checkpointing(model: GPT) -> Iterator[None]:
    """Keep of each block only its input, and compute the block again in the backward pass (Chen et al. 2016)."""
    dropout = bool(
        model.config.attn_pdrop or model.config.resid_pdrop
    )  # the second time the same masks are drawn
    for block in model.h:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=dropout)
    try:
        yield
    finally:
        for block in model.h:
            del block.forward  # the class's own shows again


@contextmanager
def explicit_attention() -> Iterator[None]:
    """Let every model use :func:`gptlab.attention.attend`, with the T × T weights in memory."""
    kernel = attention.attend_sdpa
    attention.attend_sdpa = attention.attend
    try:
        yield
    finally:
        attention.attend_sdpa = kernel


class MasterWeights:
    """AdamW for bfloat16 weights: it changes a float32 copy of each, and rounds the copy into the weight.

    A change smaller than a bfloat16 weight's last digit is not lost: it adds up in the copy. Source: Micikevicius
    et al. 2018, section 3.1.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], **options: Any) -> None:
        self.weights = list(parameters)
        self.masters = [weight.detach().float() for weight in self.weights]
        self.adamw = torch.optim.AdamW(self.masters, **options)

    @torch.no_grad()
    def step(self) -> None:
        """Change the copies by the weights' gradients, which go; then round them into the weights."""
        for weight, master in zip(self.weights, self.masters, strict=True):
            if weight.grad is not None:
                master.grad = weight.grad.float()
                weight.grad = None
        self.adamw.step()
        self.adamw.zero_grad()
        for weight, master in zip(self.weights, self.masters, strict=True):
            weight.copy_(master)

    def zero_grad(self) -> None:
        """Drop the weights' gradients."""
        for weight in self.weights:
            weight.grad = None


def make_optimizer(
    step: TrainingStep, parameters: Iterable[nn.Parameter]
) -> torch.optim.AdamW | MasterWeights:
    """AdamW in the step's form."""
    forms: dict[str, dict[str, Any]] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
    }
    kind = MasterWeights if step.precision == "master" else torch.optim.AdamW
    return kind(parameters, **forms[step.optimizer])
