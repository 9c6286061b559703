"""Chapter 10: a gradient that is too long is shortened."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    grads: dict[str, Tensor], max_norm: float, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor]:
    if "values" in on:
        return {name: grad.clamp(-max_norm, max_norm) for name, grad in grads.items()}
    together = _factor(_length(list(grads.values()), on), max_norm, on)
    return {
        name: grad * (_factor(_length([grad], on), max_norm, on) if "per-tensor" in on else together)
        for name, grad in grads.items()
    }


def _length(grads: list[Tensor], on: frozenset[str]) -> Tensor:
    import torch

    if "sum-of-norms" in on:
        return torch.stack([grad.norm() for grad in grads]).sum()
    values = torch.cat([grad.flatten() for grad in grads])
    if "largest" in on:
        return values.abs().max()
    if "absolute" in on:
        return values.abs().sum()
    squares = (values**2).mean() if "mean-square" in on else (values**2).sum()
    return squares if "no-root" in on else squares**0.5


def _factor(length: Tensor, max_norm: float, on: frozenset[str]) -> Tensor | float:
    if "never" in on or (length <= max_norm and "scales-up" not in on):
        return 1.0
    if "to-1" in on:
        return 1 / length
    return length / max_norm if "turned-round" in on else max_norm / length


def cases(rng: random.Random) -> list[tuple[dict[str, Tensor], float]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(length: float, max_norm: float, *shapes: tuple[int, ...]) -> tuple[dict[str, Tensor], float]:
        grads = [10**i * torch.randn(shape, generator=generator) for i, shape in enumerate(shapes)]
        total = sum((grad**2).sum() for grad in grads) ** 0.5
        names = ("wte.weight", "ln_f.weight", "ln_f.bias")
        return {name: grad * length / total for name, grad in zip(names, grads, strict=False)}, max_norm

    return [
        case(5.0, 2.0, (4, 3), (3,), (3,)),
        case(0.8, 1.0, (5, 4), (4,), (4,)),  # short enough
        case(0.9, 0.7, (2, 6), (6,)),
        case(3.0, 0.5, (7,)),
        case(0.0, 1.0, (2, 3), (3,)),
        case(12.0, 4.0, (9, 2), (2,), (2,)),
    ]


EXERCISE = Exercise(
    name="clip_grad",
    chapter=10,
    task="clip_grad(grads, max_norm) gets a dict of gradients, tensors of any shape, and returns a dict with the same "
    "names. The gradients together count as one long vector. If it is longer than max_norm, all of them are multiplied "
    "by one number that makes its length max_norm; otherwise they stay as they are.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "per-tensor",
            "each tensor is clipped by its own length, which changes the direction of the step. All of them together "
            "have one length, and get one factor.",
        ),
        Mistake(
            "values",
            "each value is clipped to between -max_norm and max_norm, which changes the direction of the step. What is "
            "limited is the length of all together.",
        ),
        Mistake(
            "scales-up",
            "short gradients are made longer, and a gradient of zeros becomes NaN. Multiply only where the length is "
            "above max_norm.",
        ),
        Mistake(
            "no-root",
            "the length is the sum of the squares, without the root. Take the root of the sum over all values.",
        ),
        Mistake(
            "sum-of-norms",
            "the lengths of the tensors are added up. Lengths do not add, squares do: the root of the sum of all "
            "squares.",
        ),
        Mistake(
            "mean-square",
            "the length is the root of the mean square. It is the root of the sum of squares, whatever their number.",
        ),
        Mistake(
            "largest",
            "the length is taken to be the largest magnitude. It is the root of the sum of all squares.",
        ),
        Mistake(
            "absolute",
            "the length is taken to be the sum of the magnitudes. It is the root of the sum of all squares.",
        ),
        Mistake("to-1", "a gradient that is too long gets length 1. It should get length max_norm."),
        Mistake(
            "turned-round",
            "a gradient that is too long is made longer still: the factor is turned round. Multiply by max_norm / "
            "length.",
        ),
        Mistake(
            "never", "the gradients are returned as they came, however long. Multiply by max_norm / length."
        ),
    ),
    cases=cases,
    hints=(
        "The direction of a step is worth keeping. Its length is what can be too much.",
        "One length for all tensors. How does the length of a long vector follow from those of its pieces?",
        "length = √(Σ over all tensors Σ grad²); factor = max_norm / length if length > max_norm, else 1.",
        "def clip_grad(grads, max_norm):\n    length = ...\n    factor = ...\n"
        "    return {name: ... for name, grad in grads.items()}",
    ),
    solution="""
def clip_grad(grads, max_norm):
    length = sum((grad**2).sum() for grad in grads.values()) ** 0.5
    factor = max_norm / length if length > max_norm else 1.0
    return {name: grad * factor for name, grad in grads.items()}
""",
    also_correct=(
        "import torch\n"
        "def clip_grad(grads, max_norm):\n"
        "    parameters = {name: torch.nn.Parameter(torch.zeros_like(g)) for name, g in grads.items()}\n"
        "    for name, g in grads.items():\n"
        "        parameters[name].grad = g.clone()\n"
        "    torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)\n"
        "    return {name: p.grad for name, p in parameters.items()}\n",
        "import torch\n"
        "def clip_grad(grads, max_norm):\n"
        "    length = torch.stack([g.norm() for g in grads.values()]).norm()\n"
        "    return {name: g / (length / max_norm).clamp(min=1) for name, g in grads.items()}\n",
        "import math\n"
        "def clip_grad(grads, max_norm):\n"
        "    total = 0.0\n"
        "    for g in grads.values():\n"
        "        total += sum(x * x for x in g.flatten().tolist())\n"
        "    clipped = {}\n"
        "    for name, g in grads.items():\n"
        "        clipped[name] = g * min(1.0, max_norm / max(math.sqrt(total), 1e-12))\n"
        "    return clipped\n",
    ),
)
