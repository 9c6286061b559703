"""Chapter 9: weights in one byte each, and back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor

ASYMMETRIC = (
    "the range from the smallest to the largest value is divided into 255 steps, with a zero point. That is asymmetric "
    "quantisation. The symmetric one is asked for: 0 stays 0, and one scale, max|w| / 127, serves both signs."
)
NOT_BACK = (
    "these are the integers themselves. Multiply them by the scale of their row, so that they come back near to the "
    "weights."
)
BY_128 = (
    "the scale is max|w| / 128, so the largest weight becomes 128, and int8 ends at 127. Divide by 127: then both "
    "signs fit."
)
SIGNED = (
    "the scale is made from the largest value, not from the largest magnitude: rows whose largest weight is negative "
    "are cut off. Take abs() first."
)


def reference(W: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch

    dims = (0, 1) if "one-scale" in on else (0,) if "per-column" in on else (1,)
    signed = on & {"signed-max", "signed-max-128"}
    largest = (W if signed else W.abs()).amax(dims, keepdim=True)
    if "zero-row" not in on:
        largest = torch.where(largest == 0, 1.0, largest)
    if on & {"asymmetric", "from-minimum"}:
        low = W.amin(dims, keepdim=True)
        step = (W.amax(dims, keepdim=True) - low) / 255
        if "zero-row" not in on:
            step = torch.where(step == 0, 1.0, step)
        if "from-minimum" in on:
            return ((W - low) / step).round() * step + low
        zero = (-low / step).round()
        return (((W / step).round() + zero).clamp(0, 255) - zero) * step
    by_128 = on & {"by-128", "by-128-wraps"}
    steps = 128 if by_128 else 127.5 if "by-127.5" in on else 1 if "no-127" in on else 127
    scale = largest / steps
    q = W / scale
    q = q.trunc() if "truncates" in on else q.floor() if "floors" in on else q.round()
    if "by-128-wraps" in on:
        q = torch.where(q == 128, -128.0, q)
    q = q.clamp(-128 if on & {"by-128", "by-128-wraps", "signed-max-128"} else -127, 127)
    if "not-back" in on:
        return q
    if "not-back-int8" in on:
        return q.to(torch.int8)
    return q / scale if "divides-back" in on else q * scale


def cases(rng: random.Random) -> list[tuple[Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(R: int, C: int) -> tuple[Tensor]:
        while True:
            # Rows of different sizes, so that one scale for all of them costs something.
            W = torch.randn(R, C, generator=generator) * 10 ** torch.linspace(-2, 1, R)[:, None]
            steps = 127 * W / W.abs().amax(1, keepdim=True)
            if ((steps - steps.floor()) - 0.5).abs().min() > 1e-3:  # no rounding error decides
                return (W,)

    zero_row = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.2, 4.0]])
    negative = torch.tensor([[0.5, -3.0, 1.1, 0.0], [-0.02, -0.01, -0.05, -0.04]])
    return [case(3, 5), (zero_row,), (negative,), case(4, 9), case(6, 6)]


EXERCISE = Exercise(
    name="int8_roundtrip",
    chapter=9,
    task="int8_roundtrip(W) rounds the weights W, shape (outputs, inputs), to int8 and turns them back: the result has "
    "the shape and type of W. Each row has one scale, its largest magnitude divided by 127; a weight divided by the "
    "scale is rounded to the nearest integer, which lies between -127 and 127. A row of zeros comes back as zeros.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "one-scale",
            "one scale serves the whole matrix, so rows of small weights lose nearly everything. Each row has its "
            "own: abs().amax(dim=1, keepdim=True).",
        ),
        Mistake(
            "per-column",
            "each column has a scale. A row holds the weights of one output, and has one: dim=1, keepdim=True.",
        ),
        Mistake("by-128", BY_128),
        Mistake("by-128-wraps", BY_128),
        Mistake(
            "by-127.5",
            "the scale is max|w| / 127.5, that is twice the maximum over 255 steps. Divide by 127, so that the largest "
            "weight comes back exactly.",
        ),
        Mistake(
            "no-127",
            "the scale is the largest magnitude itself, so every weight becomes -1, 0 or 1. Divide it by 127.",
        ),
        Mistake(
            "truncates",
            "the digits behind the point are cut off, as a conversion to int8 does by itself. Round to the nearest "
            "integer: round() before the conversion.",
        ),
        Mistake(
            "floors",
            "every value is rounded down, which shifts all weights to one side. Round to the nearest integer: round().",
        ),
        Mistake("asymmetric", ASYMMETRIC),
        Mistake("from-minimum", ASYMMETRIC),
        Mistake("signed-max", SIGNED),
        Mistake("signed-max-128", SIGNED),
        Mistake("not-back", NOT_BACK),
        Mistake("not-back-int8", NOT_BACK),
        Mistake(
            "divides-back", "on the way back the integers are divided by the scale. Multiply them by it."
        ),
        Mistake(
            "zero-row",
            "a row of zeros gives NaN: its scale is 0, and 0 / 0 is no number. Give such a row another scale, 1 say, "
            "or keep the scale from becoming 0 with clamp(min=...).",
        ),
    ),
    cases=cases,
    hints=(
        "An int8 counts from -127 to 127. How large must a step be, so that the largest weight of a row is 127 steps?",
        "One step size for each row, as a column that broadcasts. And what if all weights of a row are 0?",
        "scale = W.abs().amax(dim=1, keepdim=True) / 127: (outputs, 1), 1 where it would be 0; q = round(W / scale), as "
        "int8; the result is q · scale.",
        "def int8_roundtrip(W):\n    scale = ...\n    scale = torch.where(scale == 0, 1.0, scale)\n"
        "    q = ....to(torch.int8)\n    return ...",
    ),
    solution="""
import torch

def int8_roundtrip(W):
    scale = W.abs().amax(dim=1, keepdim=True) / 127
    scale = torch.where(scale == 0, 1.0, scale)
    q = (W / scale).round().to(torch.int8)
    return q * scale
""",
    also_correct=(
        "import torch\n"
        "def int8_roundtrip(W):\n"
        "    scale = (W.abs().max(-1, keepdim=True).values / 127).clamp(min=1e-12)\n"
        "    return torch.clamp(torch.round(W / scale), -128, 127).to(torch.int8).float() * scale\n",
        "def int8_roundtrip(W):\n"
        "    rows = []\n"
        "    for row in W.tolist():\n"
        "        scale = max(abs(w) for w in row) / 127 or 1.0\n"
        "        rows.append([round(w / scale) * scale for w in row])\n"
        "    return rows\n",
        "import torch\n"
        "def int8_roundtrip(W):\n"
        "    largest = W.abs().amax(1, keepdim=True)\n"
        "    q = torch.nan_to_num(W * 127 / largest).round().to(torch.int8)\n"
        "    return q * largest / 127\n",
        "import torch\n"
        "def int8_roundtrip(W):\n"
        "    scales = W.abs().amax(1).clamp(min=1e-9) / 127\n"
        "    zeros = torch.zeros(len(W), dtype=torch.int32)\n"
        "    return torch.fake_quantize_per_channel_affine(W, scales, zeros, 0, -127, 127)\n",
    ),
)
