"""Chapter 10: a large batch in small parts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gptlab.exercises.exercise import NOTHING_WRONG, Diagnosis, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

Parts = list[tuple["Tensor", "Tensor"]]

ALONE = (
    "each part but the last counts whole, only the last is divided: the division stands behind the loop. Each part's "
    "loss is divided before its own backward()."
)


def reference(model: nn.Module, parts: Parts, on: frozenset[str] = NOTHING_WRONG) -> dict[str, Tensor]:
    """The gradients that are left, by parameter."""
    import torch
    import torch.nn.functional as F

    tokens, rows = sum(y.numel() for _, y in parts), sum(len(y) for _, y in parts)
    names, parameters = zip(*model.named_parameters(), strict=True)
    sums = [torch.zeros_like(p) for p in parameters]
    for i, (x, y) in enumerate(parts):
        last = i == len(parts) - 1
        share = len(y) / rows if "by-rows" in on else y.numel() / tokens
        if "mean-of-means" in on or ("last-divided-evenly" in on and last):
            share = 1 / len(parts)
        if "not-divided" in on or (on & {"last-divided", "last-divided-evenly"} and not last):
            share = 1.0
        if "divided-twice" in on:
            share /= len(parts)
        if "added-up" in on:
            share = y.numel()
        if "nothing-left" in on or ("first-alone" in on and i):
            share = 0.0
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        if "zeroed-between" in on:
            sums = [torch.zeros_like(p) for p in parameters]
        sums = [s + share * g for s, g in zip(sums, torch.autograd.grad(loss, parameters), strict=True)]
    return dict(zip(names, sums, strict=True))


class Gradients:
    """The learner's function as one that returns the gradients that it leaves in the model."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, model: nn.Module, parts: Parts) -> dict[str, Tensor]:
        import torch

        self.attempt(model, parts)
        return {
            name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()
        }


def holds_one_part_at_a_time(function: Callable[..., Any], case: tuple[Any, ...]) -> Diagnosis | None:
    """Each part's graph is used up by backward() before the next part goes through the model."""
    model, parts = case
    waiting: set[int] = set()
    most = calls = 0

    def after(module: nn.Module, inputs: Any, logits: Tensor) -> None:
        nonlocal most, calls
        if logits.requires_grad:
            calls += 1
            waiting.add(calls)
            most = max(most, len(waiting))
            logits.register_hook(lambda gradient, call=calls: waiting.discard(call))

    model.register_forward_hook(after)
    function(model, parts)
    if most < 2:
        return None
    return Diagnosis(
        "holds-all",
        "the gradient is right, but several parts wait for backward() together, each with all that its forward pass "
        "kept. Parts are there to save that memory: call backward() on each before the next goes through the model.",
        f"of {len(parts)} parts {most} waited at once",
    )


def bigram_model(V: int, C: int, generator: Generator) -> nn.Module:
    """Ids (B, T) to logits (B, T, V), without attention: each token alone predicts the next."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Embedding(V, C), nn.Linear(C, V))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def cases(rng: random.Random) -> list[tuple[nn.Module, Parts]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(V: int, C: int, *shapes: tuple[int, int]) -> tuple[nn.Module, Parts]:
        parts = [tuple(torch.randint(V, (2, *shape), generator=generator)) for shape in shapes]
        return bigram_model(V, C, generator), parts

    return [
        case(7, 4, (4, 3), (1, 5), (2, 2)),
        case(5, 3, (2, 4), (2, 4)),
        case(6, 5, (3, 3)),
        case(8, 3, (1, 6), (3, 6), (2, 6), (1, 6)),
    ]


EXERCISE = Exercise(
    name="accumulate",
    chapter=10,
    task="accumulate(model, parts) leaves in the parameters of model, as .grad, the gradient of the mean loss over a "
    "whole batch that comes in parts. Of these it holds one at a time: backward() comes before the next. parts is "
    "a list of pairs x, y of token ids, both of shape (b, T), where y holds the token that follows at each "
    "position; b and T may differ from part to part, and every token of the batch counts alike. model(x) gives "
    "logits (b, T, V). The gradients are empty at the start, and gptlab.unembedding.token_loss(logits, y) is the "
    "mean loss of a part.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "not-divided",
            "the losses of the parts are not divided: the gradient is the sum of those of the parts' means, and grows "
            "with their number. Each part counts by its share of the tokens.",
        ),
        Mistake(
            "mean-of-means",
            "each part counts alike, whatever its size: that is a mean of means. A part counts by its share of the "
            "tokens, y.numel() divided by that of all parts.",
        ),
        Mistake(
            "by-rows",
            "each part counts by its rows. They may be of different lengths: count tokens, y.numel().",
        ),
        Mistake("last-divided", ALONE),
        Mistake("last-divided-evenly", ALONE),
        Mistake(
            "zeroed-between",
            "only the last part is left: the gradients are set to zero in between. backward() adds to what is there; "
            "leave it.",
        ),
        Mistake(
            "first-alone", "only the first part counts. Go on to the others: is there a return in the loop?"
        ),
        Mistake(
            "divided-twice",
            "each part is divided by the number of parts as well as by its share. The shares add up to 1 already.",
        ),
        Mistake(
            "added-up",
            "the losses of all tokens are added up. Their mean is asked for: divide by the number of all tokens.",
        ),
        Mistake(
            "nothing-left",
            "no gradient is left. Call backward() on each part's loss, and let nothing set the gradients to zero "
            "afterwards: no zero_grad() at the end.",
        ),
    ),
    cases=cases,
    adapt=Gradients,
    probes=(holds_one_part_at_a_time,),
    hints=(
        "backward() adds to the gradients that are there. So the parts' gradients sum up by themselves, if each has "
        "the right weight.",
        "The mean over all tokens is the sum over the parts of what? A part of 12 tokens in a batch of 21 counts 12/21.",
        "total = Σ y.numel(); for each part (token_loss(model(x), y) · y.numel() / total).backward().",
        "def accumulate(model, parts):\n    total = ...\n    for x, y in parts:\n"
        "        loss = token_loss(model(x), y)\n        ...",
    ),
    solution="""
from gptlab.unembedding import token_loss

def accumulate(model, parts):
    total = sum(y.numel() for x, y in parts)
    for x, y in parts:
        loss = token_loss(model(x), y)
        (loss * y.numel() / total).backward()
""",
    also_correct=(
        "import torch\nimport torch.nn.functional as F\n"
        "def accumulate(model, parts):\n"
        "    everything = torch.cat([y.flatten() for x, y in parts])\n"
        "    for x, y in parts:\n"
        "        losses = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction='none')\n"
        "        losses.backward(torch.full_like(losses, 1 / len(everything)))\n",
        "import torch.nn.functional as F\n"
        "def accumulate(model, parts):\n"
        "    model.zero_grad()\n"
        "    n = 0\n"
        "    for x, y in parts:\n"
        "        F.cross_entropy(model(x).transpose(1, 2), y, reduction='sum').backward()\n"
        "        n += y.numel()\n"
        "    for p in model.parameters():\n"
        "        p.grad /= n\n",
        "import torch\nfrom gptlab.unembedding import token_loss\n"
        "def accumulate(model, parts):\n"
        "    sizes = torch.tensor([float(y.numel()) for _, y in parts])\n"
        "    for (x, y), share in zip(parts, sizes / sizes.sum()):\n"
        "        loss = share * token_loss(model(x), y)\n"
        "        for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):\n"
        "            p.grad = g if p.grad is None else p.grad + g\n",
    ),
)
