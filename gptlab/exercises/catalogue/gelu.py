"""Chapter 4: the activation between the MLP's two matrices."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    if "relu" in on:
        return x.clamp(min=0)
    if "silu" in on:
        return x * x.sigmoid()
    if "sigmoid" in on:
        return x * (1.702 * x).sigmoid()
    half = 1.0 if "no-half" in on else 0.5
    if "erf" in on:
        return half * x * (1 + (x / 2**0.5).erf())
    coefficient = 0.44715 if "0.44715" in on else 0.044715
    cube = x**2 if "square" in on else x**3
    factor = 2 / math.pi
    if "no-root" not in on:
        factor = math.sqrt(factor)
    return half * x * (1 + (factor * (x + coefficient * cube)).tanh())


def cases(rng: random.Random) -> list[tuple[Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    fixed = [torch.linspace(-3.2, 3.2, 33), torch.tensor([-20.0, -2.7, 0.0, 2.7, 20.0])]
    sizes = [(2, 3, 5), (4, 7), (1, 6, 2)]
    return [(x,) for x in fixed] + [(torch.rand(size, generator=generator) * 6 - 3,) for size in sizes]


EXERCISE = Exercise(
    name="gelu",
    chapter=4,
    task="gelu(x) returns GPT-2's activation of each value of the tensor x: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).",
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "erf",
            "this is the exact GELU, with erf. GPT-2 was trained with the tanh form; the two differ by up to 4.7e-4, "
            "near |x| = 2.7. In PyTorch: F.gelu(x, approximate='tanh').",
        ),
        Mistake(
            "sigmoid",
            "this is x · sigmoid(1.702 x), the shorter approximation of the same paper. GPT-2 uses the one with tanh.",
        ),
        Mistake("relu", "this is ReLU: negative values give exactly 0. GELU lets a little of them through."),
        Mistake("silu", "this is SiLU, x · sigmoid(x), of later models. GPT-2 uses GELU, in its tanh form."),
        Mistake("0.44715", "the coefficient is ten times too large: it is 0.044715, not 0.44715."),
        Mistake("no-root", "the factor is 2/π. It should be the root of that, √(2/π) = 0.7979."),
        Mistake("no-half", "the factor ½ is missing: for large x the result is 2x, not x."),
        Mistake("square", "0.044715 multiplies x². It multiplies the cube, x³."),
    ),
    cases=cases,
    probes=(gradient_reaches("x"),),
    hints=(
        "GELU is x times a number that goes smoothly from 0 for very negative x to 1 for large x.",
        "The formula can be written down as it stands: tensors know **, and torch.tanh works value by value.",
        "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))). gelu(1) is 0.84119.",
        "def gelu(x):\n    inner = math.sqrt(...) * (x + ...)\n    return 0.5 * x * (1 + ...)",
    ),
    solution="""
import math

import torch

def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
""",
    also_correct=(
        "import torch.nn.functional as F\ndef gelu(x):\n    return F.gelu(x, approximate='tanh')\n",
        "from torch import nn\ngelu = nn.GELU('tanh')\n",
        "import math\n"
        "def gelu(x):\n"
        "    # (1 + tanh(u)) / 2 is sigmoid(2u)\n"
        "    return x * (2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).sigmoid()\n",
        "import torch\n"
        "from gptlab import GPTConfig\nfrom gptlab.mlp import MLP\n"
        "def gelu(x):\n"
        "    mlp = MLP(GPTConfig(n_embd=1, n_head=1)).eval()\n"
        "    weights = {'c_fc.weight': torch.ones(4, 1), 'c_fc.bias': torch.zeros(4)}\n"
        "    weights |= {'c_proj.weight': torch.full((1, 4), 0.25), 'c_proj.bias': torch.zeros(1)}\n"
        "    return torch.func.functional_call(mlp, weights, x.reshape(1, -1, 1)).reshape(x.shape)\n",
    ),
)
