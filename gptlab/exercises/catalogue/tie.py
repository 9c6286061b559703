"""Chapter 7: make the head and the token table one Parameter."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gptlab.config import GPTConfig
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor

APART = frozenset({"not-tied", "copied", "two-parameters", "detached"})
"""Mistakes after which there are two Parameters."""


def reference(
    config: GPTConfig, input_ids: Tensor, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, bool | int]:
    """What is found in the model afterwards; input_ids are read in one training step."""
    one, V = not on & APART, config.vocab_size
    learns = "frozen" not in on
    equal = "not-tied" not in on
    seen = len(input_ids.unique())
    return {
        "lm_head.weight is wte.weight": one,
        "parameters": Ledger.from_config(replace(config, tie_word_embeddings=one)).total,
        "the table is as before": "head-wins" not in on,
        "equal now": equal,
        "equal after a step": equal and "copied" not in on,
        "rows of the table with a gradient": (V if one else seen) if learns else 0,
        "rows of the head with a gradient": V if learns and "detached" not in on else 0,
    }


class Measured:
    """The learner's function as one of a config and ids: it gets an untied model, which is then looked at."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, config: GPTConfig, input_ids: Tensor) -> dict[str, bool | int]:
        import torch

        from gptlab.model import GPT

        model = GPT(config).eval()
        before = model.wte.weight.detach().clone()
        self.attempt(model)
        table, head = model.wte.weight, model.lm_head.weight
        found = {
            "lm_head.weight is wte.weight": head is table,
            "parameters": sum(p.numel() for p in model.parameters()),
            "the table is as before": torch.equal(table, before),
            "equal now": torch.equal(table, head),
        }
        model(input_ids).square().sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        return found | {
            "equal after a step": torch.equal(table, head),
            "rows of the table with a gradient": _rows(table.grad),
            "rows of the head with a gradient": _rows(head.grad),
        }


def _rows(gradient: Tensor | None) -> int:
    return 0 if gradient is None else int(gradient.any(dim=1).sum())


def cases(rng: random.Random) -> list[tuple[GPTConfig, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, P: int, L: int, H: int, D: int) -> tuple[GPTConfig, Tensor]:
        config = GPTConfig(
            vocab_size=V, n_positions=P, n_layer=L, n_head=H, n_embd=H * D, tie_word_embeddings=False
        )
        return config, torch.randint(V, (B, T), generator=generator)  # fewer ids than V: some are not seen

    return [case(2, 4, 13, 7, 1, 2, 3), case(1, 5, 11, 8, 3, 2, 4), case(1, 1, 9, 4, 2, 3, 2)]


EXERCISE = Exercise(
    name="tie",
    chapter=7,
    task="tie(model) ties an untied gptlab.GPT, in place: model.lm_head.weight and model.wte.weight become one "
    "Parameter. The token table's values stay, those of the head are dropped. The check looks at the two names, "
    "then makes a step with SGD and looks again.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "not-tied",
            "the model is as untied as before. Assign the table to the head's attribute: model.lm_head.weight = ..., "
            "not to a name of your own.",
        ),
        Mistake(
            "copied",
            "the head is a copy of the table: equal now, apart after one step, for each gets a gradient of its own. "
            "clone() and copy_() copy values. Assign the Parameter itself.",
        ),
        Mistake(
            "two-parameters",
            "there are two Parameters on one piece of memory. They stay equal, but are counted twice, an optimizer "
            "moves them twice in a step, and a deepcopy or a checkpoint separates them. Look for .data, .detach() or "
            "nn.Parameter(...): none is needed.",
        ),
        Mistake(
            "detached",
            "the head shares the table's memory, but gets no gradient: the rows of tokens that were not read never "
            "learn. Look for detach() or requires_grad=False, and assign the Parameter itself.",
        ),
        Mistake(
            "frozen",
            "there is one Parameter, but it gets no gradient: neither end learns. Leave requires_grad as it is.",
        ),
        Mistake(
            "head-wins",
            "there is one Parameter, but it is not the token table: its values are gone. Assign the other way round, "
            "the table to the head.",
        ),
    ),
    cases=cases,
    adapt=Measured,
    hints=(
        "Two names for one object, not two objects with equal values.",
        "In Python an assignment copies nothing. What should be assigned to which attribute?",
        "model.wte.weight is a Parameter of shape (V, C), and nn.Linear(C, V) holds its weight as (V, C), too. "
        "Afterwards model.lm_head.weight is model.wte.weight.",
        "def tie(model):\n    model.lm_head.weight = ...",
    ),
    solution="""
def tie(model):
    model.lm_head.weight = model.wte.weight
""",
    also_correct=(
        "from gptlab.tying import tie\n",
        "import torch\n"
        "def tie(model):\n"
        "    with torch.no_grad():\n"
        "        model.lm_head.weight.copy_(model.wte.weight)\n"
        "    model.wte.weight = model.lm_head.weight\n",
        "from torch import nn\n"
        "def tie(model):\n"
        "    V, C = model.wte.weight.shape\n"
        "    head = nn.Linear(C, V, bias=False)\n"
        "    head.weight = model.wte.weight\n"
        "    model.lm_head = head\n"
        "    return model\n",
        "def tie(model):\n"
        "    del model.lm_head.weight\n"
        "    model.lm_head.register_parameter('weight', model.get_parameter('wte.weight'))\n",
    ),
)
