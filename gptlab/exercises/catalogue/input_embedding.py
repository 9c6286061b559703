"""Chapter 2: the two tables as a module that learns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises.catalogue import input_tensor
from gptlab.exercises.exercise import Diagnosis, Exercise, Misbuilt
from gptlab.exercises.modules import build

if TYPE_CHECKING:
    from torch import Tensor


class AsFunction:
    """The learner's class as a function of ids and tables, which it puts into the module's parameters."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, tokens: Tensor, W_E: Tensor, W_P: Tensor) -> Any:
        module = _build(self.attempt, len(W_E), len(W_P), W_E.shape[1])
        module(tokens)  # an error of its own, NotImplementedError for one, comes before ours
        for name, table in ("W_E", W_E), ("W_P", W_P):
            _parameter(module, name, table.shape).data.copy_(table)
        return module.eval()(tokens)


def _build(attempt: Any, V: int, P: int, C: int) -> Any:
    return build(attempt, "InputEmbedding", V, P, C)


def _parameter(module: Any, name: str, shape: Any) -> Any:
    """The parameter of that shape, or the reason why there is none."""
    import torch

    found = [p for p in module.parameters() if p.shape == shape]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise Misbuilt(
            "twice", f"the module has {len(found)} parameters of {name}'s shape. One table is enough."
        )
    if any(b.shape == shape for b in module.buffers()):
        raise Misbuilt(
            "buffer",
            f"{name} is a buffer: it is saved with the module, but no optimizer sees it, so it would never learn. "
            f"Use nn.Parameter or nn.Embedding.",
        )
    plain = [
        key
        for part in module.modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.Tensor) and value.shape == shape
    ]
    if plain:
        raise Misbuilt(
            "plain-tensor",
            f"{name} is a plain tensor (self.{plain[0]}): no optimizer sees it, .to(device) does not move it, and "
            f"it would never learn. Use nn.Parameter or nn.Embedding.",
        )
    total = sum(p.numel() for p in module.parameters())
    raise Misbuilt(
        "missing",
        f"the module has no parameter of {name}'s shape {tuple(shape)}.",
        f"it has {total} parameter values",
    )


def learns(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """[G] A gradient of the output reaches both tables."""
    tokens, W_E, W_P = case
    module = _build(function.attempt, len(W_E), len(W_P), W_E.shape[1]).eval()
    output = module(tokens)
    if output.requires_grad:
        output.square().sum().backward()
    for name, table in ("W_E", W_E), ("W_P", W_P):
        parameter = _parameter(module, name, table.shape)
        if parameter.grad is None or not parameter.grad.any():
            return Diagnosis(
                "no-gradient",
                f"the values are right, but no gradient reaches {name}, so it would never learn. Look for "
                f"detach(), .data, torch.no_grad() or requires_grad=False.",
            )
    return None


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Those of input_tensor in which the two tables have different shapes."""
    return [case for case in input_tensor.cases(rng) if case[1].shape != case[2].shape]


EXERCISE = Exercise(
    name="InputEmbedding",
    chapter=2,
    task="InputEmbedding(vocab_size, n_positions, n_embd) is an nn.Module that holds the two tables and whose "
    "forward(tokens) returns W_E[t] + W_P[p]. Both tables should learn.",
    difficulty="medium",
    minutes=15,
    reference=input_tensor.reference,
    mistakes=input_tensor.EXERCISE.mistakes,
    cases=cases,
    probes=(learns,),
    adapt=AsFunction,
    hints=(
        "A module finds its parameters by itself, if they are parameters.",
        "A tensor stored with self.W_P = torch.randn(...) is no parameter. nn.Embedding(rows, width) holds one.",
        "Two nn.Embedding: (vocab_size, n_embd) and (n_positions, n_embd). In forward: positions 0 … T - 1 from "
        "torch.arange(T, device=tokens.device).",
        "class InputEmbedding(nn.Module):\n    def __init__(self, vocab_size, n_positions, n_embd):\n"
        "        super().__init__()\n        self.wte = ...\n        self.wpe = ...\n\n"
        "    def forward(self, tokens):\n        ...",
    ),
    solution="""
import torch
from torch import nn

class InputEmbedding(nn.Module):
    def __init__(self, vocab_size, n_positions, n_embd):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(n_positions, n_embd)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.wte(tokens) + self.wpe(positions)
""",
    also_correct=(
        "import torch\nfrom torch import nn\n"
        "class InputEmbedding(nn.Module):\n"
        "    def __init__(self, V, P, C):\n"
        "        super().__init__()\n"
        "        self.W_E = nn.Parameter(torch.randn(V, C))\n"
        "        self.W_P = nn.Parameter(torch.randn(P, C))\n"
        "    def forward(self, t):\n"
        "        return self.W_E[t] + self.W_P[: t.shape[1]]\n",
        "import torch\nfrom torch import nn\nfrom gptlab import embeddings\n"
        "class InputEmbedding(nn.Module):\n"
        "    def __init__(self, V, P, C):\n"
        "        super().__init__()\n"
        "        self.tables = nn.ParameterDict({'E': torch.randn(V, C), 'P': torch.randn(P, C)})\n"
        "    def forward(self, t):\n"
        "        return embeddings.input_tensor(t, self.tables['E'], self.tables['P'])\n",
        "import torch\nfrom torch import nn\n"
        "class InputEmbedding(nn.Module):\n"
        "    def __init__(self, V, P, C):\n"
        "        super().__init__()\n"
        "        self.token, self.place = nn.Embedding(V, C), nn.Embedding(P, C)\n"
        "        self.drop = nn.Dropout(0.1)\n"
        "    def forward(self, t):\n"
        "        places = torch.arange(t.shape[1]).expand_as(t)\n"
        "        return self.drop(self.token(t) + self.place(places))\n",
    ),
)
