"""Chapter 10: forward, backward, step."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises.catalogue.accumulate import bigram_model
from gptlab.exercises.exercise import NOTHING_WRONG, Diagnosis, Exercise, Misbuilt, Mistake

if TYPE_CHECKING:
    from torch import Tensor, nn

Batches = list[tuple["Tensor", "Tensor"]]
LR = 0.5
TOO_EARLY = (
    "optimizer.step() stands between the forward pass and loss.backward(): it changes the weights that backward() needs "
    "as they were, and PyTorch refuses. First backward(), then step()."
)


def reference(
    model: nn.Module, batches: Batches, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor | float]:
    """The loss of each step, and all weights after it."""
    import torch
    import torch.nn.functional as F
    from torch.func import functional_call

    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}

    def moved(weights: dict[str, Tensor], gradients: dict[str, Any], rate: float) -> dict[str, Tensor]:
        return {name: (w.detach() - rate * gradients[name]).requires_grad_() for name, w in weights.items()}

    def loss_on(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, weights, x)
        if "predicts-itself" in on:
            y = x
        if "shifted-again" in on:
            logits, y = logits[:, :-1], y[:, 1:]
        return F.cross_entropy(
            logits.flatten(0, 1), y.flatten(), reduction="sum" if "added-up" in on else "mean"
        )

    found: dict[str, Tensor | float] = {}
    kept: dict[str, Any] = dict.fromkeys(weights, 0.0)
    rate = 0.0 if "never-moves" in on else -LR if "ascent" in on else LR
    for i, (x, y) in enumerate(batches, 1):
        if "step-first" in on:
            weights = moved(weights, kept, rate)
        loss = loss_on(weights, x, y)
        fresh = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
        kept = {name: kept[name] + fresh[name] if "not-zeroed" in on else fresh[name] for name in weights}
        if "step-first" not in on:
            weights = moved(weights, kept, rate)
        found[f"loss of step {i}"] = (loss_on(weights, x, y) if "loss-after" in on else loss).item()
        found[f"weights after step {i}"] = torch.cat([w.detach().flatten() for w in weights.values()])
    return found


class Trained:
    """The learner's function as one of a model and batches: it is called for each with SGD, on a copy."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, model: nn.Module, batches: Batches) -> dict[str, Any]:
        import torch

        model = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        found: dict[str, Any] = {}
        for i, (x, y) in enumerate(batches, 1):
            try:
                found[f"loss of step {i}"] = self.attempt(model, optimizer, x, y)
            except RuntimeError as error:
                if "modified by an inplace operation" in str(error):
                    raise Misbuilt(
                        "step-before-backward", TOO_EARLY, "RuntimeError: " + str(error)[:98]
                    ) from error
                raise
            found[f"weights after step {i}"] = torch.cat([p.detach().flatten() for p in model.parameters()])
        return found


def leaves_nothing_behind(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """The loss is no tensor, and the model is in training mode afterwards."""
    import torch

    model, [(x, y), *_] = case
    loss = function.attempt(model, torch.optim.SGD(model.parameters(), lr=LR), x, y)
    if isinstance(loss, torch.Tensor):
        graph = ", and with it the graph of the whole step" if loss.requires_grad else ""
        return Diagnosis(
            "a-tensor",
            f"the values are right, but the loss is a tensor: whoever collects losses keeps it{graph}. A float is asked "
            "for: loss.item().",
        )
    if not model.training:
        return Diagnosis(
            "eval-mode",
            "the values are right, but the model is in evaluation mode afterwards, where dropout does nothing. It came "
            "in training mode: leave it there, without model.eval().",
        )
    return None


def cases(rng: random.Random) -> list[tuple[nn.Module, Batches]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, C: int, steps: int) -> tuple[nn.Module, Batches]:
        batches = [tuple(torch.randint(V, (2, B, T), generator=generator)) for _ in range(steps)]
        return bigram_model(V, C, generator), batches

    same_again = case(2, 5, 6, 3, 1)
    return [case(3, 4, 7, 5, 3), (same_again[0], 2 * same_again[1]), case(1, 6, 9, 4, 3)]


EXERCISE = Exercise(
    name="train_step",
    chapter=10,
    task="train_step(model, optimizer, x, y) trains model on one batch, in place, and returns the loss, a float, as it "
    "was before the step. model is in training mode, and stays so. x and y hold token ids, shape (B, T), and y "
    "the token that follows at each position; model(x) gives logits (B, T, V). The loss is "
    "gptlab.unembedding.token_loss(logits, y), the gradients are empty at first, and train_step is called again "
    "and again. The check calls it for two or three batches, with SGD.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "not-zeroed",
            "the first step is right, and each later one adds the gradients of those before it: backward() adds to "
            "what is there. The same batch again gives exactly twice the gradient. Call optimizer.zero_grad() once a "
            "step.",
        ),
        Mistake(
            "step-first",
            "each step uses the gradient of the batch before, the first one none: optimizer.step() comes first. It "
            "belongs behind loss.backward().",
        ),
        Mistake(
            "never-moves",
            "the weights stay as they are. Either optimizer.step() or loss.backward() is missing, or "
            "optimizer.zero_grad() stands between them and throws the gradient away.",
        ),
        Mistake(
            "loss-after",
            "the weights are right, but the loss is that after the step. Return the one that backward() was called "
            "on.",
        ),
        Mistake(
            "shifted-again",
            "the targets are shifted once more: y holds the next tokens already, and each position is scored on the "
            "one after that. Use token_loss, which shifts nothing.",
        ),
        Mistake(
            "predicts-itself",
            "the loss compares with x, the tokens that were read. Compare with y, the tokens that follow.",
        ),
        Mistake(
            "added-up",
            "the losses of all tokens are added up, so a larger batch makes larger steps. Take the mean.",
        ),
        Mistake(
            "ascent",
            "the weights go up the gradient, and the loss grows. Call backward() on the loss itself.",
        ),
    ),
    cases=cases,
    adapt=Trained,
    probes=(leaves_nothing_behind,),
    hints=(
        "Three calls in a fixed order: how wrong is the model, which way is down, one step that way. And the next call "
        "must not find anything left over.",
        "backward() adds to the gradients. Where should they be emptied: before it, or after the step? Between the two "
        "they are needed.",
        "loss = token_loss(model(x), y), a scalar; optimizer.zero_grad(); loss.backward(); optimizer.step(); "
        "loss.item().",
        "def train_step(model, optimizer, x, y):\n    loss = token_loss(...)\n    ...\n    return loss.item()",
    ),
    solution="""
from gptlab.unembedding import token_loss

def train_step(model, optimizer, x, y):
    loss = token_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
""",
    also_correct=(
        "import torch.nn.functional as F\n"
        "def train_step(model, optimizer, x, y):\n"
        "    model.train()\n"
        "    optimizer.zero_grad(set_to_none=False)\n"
        "    loss = F.cross_entropy(model(x).transpose(1, 2), y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    return loss.tolist()\n",
        "def train_step(model, optimizer, x, y):\n"
        "    logits = model(x)\n"
        "    loss = (logits.logsumexp(-1) - logits.gather(-1, y[..., None])[..., 0]).mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    model.zero_grad()\n"
        "    return loss.detach().numpy()\n",
        "import torch\nfrom gptlab.unembedding import token_loss\n"
        "def train_step(model, optimizer, x, y):\n"
        "    def closure():\n"
        "        optimizer.zero_grad()\n"
        "        loss = token_loss(model(x), y)\n"
        "        for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):\n"
        "            p.grad = g\n"
        "        return loss\n"
        "    return optimizer.step(closure).item()\n",
    ),
)
