"""Chapter 3: no position may look at a later one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gptlab.exercises import compare
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import holds_in_float16

if TYPE_CHECKING:
    from torch import Tensor


def reference(scores: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    """The weights that softmax makes of the masked scores."""
    import torch

    T = scores.shape[-1]
    first = 0 if "diagonal" in on else 2 if "one-ahead" in on else 1
    hidden = torch.ones(T, T, dtype=torch.bool).triu(first)
    if "flipped" in on:
        hidden = hidden.mT
    if "mask-alone" in on:
        scores = torch.zeros(T, T)
    fill = 0.0 if "zeros" in on else -100.0 if "minus-100" in on else float("-inf")
    masked = scores.masked_fill(hidden, fill)
    if "zero-times-infinity" in on:
        masked = masked + torch.nan
    weights = masked.softmax(dim=-1)
    return weights.softmax(dim=-1) if "softmaxed" in on else weights


def then_softmax(attempt: Any) -> Callable[[Tensor], Any]:
    """The learner's masked scores as weights, so that what counts is what the mask does, not what it fills in."""

    def weights(scores: Tensor) -> Any:
        masked = attempt(scores)
        if not compare.is_tensor(masked):
            masked = compare.as_expected_kind(masked, scores)
        floating = compare.is_tensor(masked) and masked.is_floating_point() and masked.ndim > 0
        return masked.softmax(dim=-1) if floating else masked

    return weights


def cases(rng: random.Random) -> list[tuple[Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    sizes = [(2, 3, 5), (1, 1, 1), (3, 1, 4), (1, 4, 2), (2, 4, 7)]
    drawn = [(2 * torch.randn(B, H, T, T, generator=generator),) for B, H, T in sizes]
    return [*drawn, (drawn[0][0] - 300,)]  # to softmax the same as the first, but not to a fill of -100


EXERCISE = Exercise(
    name="causal_mask",
    chapter=3,
    task="causal_mask(scores) returns the scores, shape (B, H, T, T), with the future masked: softmax over the last "
    "dimension then gives row i weights for the keys 0 … i and exactly 0 for later ones. The check looks at those "
    "weights.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "diagonal",
            "the diagonal is masked as well, so a position does not see itself. Row 0 then has no key left, and "
            "its softmax is 0/0, NaN. Mask from the first place above the diagonal on: triu(1).",
        ),
        Mistake(
            "one-ahead",
            "each position also sees the next one, the very token that it is to predict. Mask from the first place "
            "above the diagonal on: triu(1), not triu(2).",
        ),
        Mistake(
            "flipped",
            "the mask is flipped: a position sees itself and the future, and the past is masked. What lies above "
            "the diagonal has to go. Of masked_fill, True marks what is hidden; look at that, too.",
        ),
        Mistake(
            "zeros",
            "the future is filled with 0. A score of 0 still has weight, since e⁰ = 1. Fill with minus infinity: "
            "e to that power is 0.",
        ),
        Mistake(
            "minus-100",
            "the future is filled with -100, which hides it only from scores that are well above -100. Where all "
            "scores of a row are lower, it gets the weight. Minus infinity is below every score: float('-inf').",
        ),
        Mistake(
            "zero-times-infinity",
            "every value is NaN. Is a mask of zeros and ones multiplied by minus infinity? 0 · ∞ is no number. Use "
            "masked_fill, or fill first and cut afterwards: torch.full((T, T), float('-inf')).triu(1).",
        ),
        Mistake(
            "softmaxed",
            "the result is softmaxed already. Return the masked scores; softmax comes in the next step.",
        ),
        Mistake("mask-alone", "this is the mask alone, shape (T, T). Apply it to the scores."),
    ),
    cases=cases,
    adapt=then_softmax,
    probes=(holds_in_float16,),
    hints=(
        "Row i belongs to query i. Which columns are its future?",
        "torch.triu with diagonal=1 keeps what lies above the diagonal. What must stand there so that softmax "
        "makes exactly 0 of it?",
        "future = torch.ones(T, T, dtype=torch.bool).triu(1) is True where j > i; it broadcasts over batch and "
        "heads. scores.masked_fill(future, float('-inf')).",
        "def causal_mask(scores):\n    T = scores.shape[-1]\n    future = ...\n"
        "    return scores.masked_fill(future, ...)",
    ),
    solution="""
import torch

def causal_mask(scores):
    T = scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(future, float("-inf"))
""",
    also_correct=(
        "import torch\n"
        "def causal_mask(scores):\n"
        "    T = scores.shape[-1]\n"
        "    past = torch.tril(torch.ones(T, T))\n"
        "    return scores.masked_fill(past == 0, torch.finfo(scores.dtype).min)\n",
        "import torch\n"
        "def causal_mask(scores):\n"
        "    T = scores.shape[-1]\n"
        "    return scores + torch.full((T, T), float('-inf')).triu(1)\n",
        "import torch\n"
        "def causal_mask(scores):\n"
        "    i = torch.arange(scores.shape[-1])\n"
        "    return torch.where(i[:, None] >= i, scores, -torch.inf)\n",
        "def causal_mask(scores):\n"
        "    masked = scores.clone()\n"
        "    for i in range(scores.shape[-1]):\n"
        "        masked[..., i, i + 1 :] = float('-inf')\n"
        "    return masked\n",
    ),
)
