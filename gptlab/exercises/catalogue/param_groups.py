"""Chapter 10: what decays and what does not."""

from __future__ import annotations

import random
from typing import Any

from gptlab.config import GPTConfig
from gptlab.exercises import compare
from gptlab.exercises.catalogue.ledger import config
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Misbuilt, Mistake
from gptlab.ledger import Ledger

ADAMW_DECAY = 0.01
"""What torch.optim.AdamW takes for a group that does not say."""


def reference(config: GPTConfig, weight_decay: float, on: frozenset[str] = NOTHING_WRONG) -> dict[str, float]:
    """The decay of each parameter, by its name; one that no group holds is missing."""
    full = 0.1 if "always-0.1" in on else 0.0 if "none" in on else weight_decay
    rest = ADAMW_DECAY if "default-decay" in on else 0.0
    decays = {}
    for row in Ledger.from_config(config):
        name, norm, bias = row.name, "ln_" in row.name, row.name.endswith(".bias")
        matrix = len(row.shape) == 2
        if "tables-spared" in on and name.startswith(("wte", "wpe")):
            matrix = False
        if "positions-spared" in on and name.startswith("wpe"):
            matrix = False
        if (
            "all" in on
            or ("gains" in on and norm and not bias)
            or ("biases" in on and bias)
            or ("linear-biases" in on and bias and not norm)
        ):
            matrix = True
        if "exchanged" in on:
            matrix = not matrix
        if (matrix or "rest-missing" not in on) and not ("head-missing" in on and name.startswith("lm_head")):
            decays[name] = full if matrix else rest
    return decays


class Measured:
    """The learner's function as one of a config: it gets a model, and its groups are read as AdamW reads them."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, config: GPTConfig, weight_decay: float) -> dict[str, float]:
        from gptlab.model import GPT

        model = GPT(config)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        groups = [_as_group(group) for group in _as_groups(self.attempt(model, weight_decay))]
        held = [id(parameter) for group in groups for parameter in group["params"]]
        for key in held:
            if key not in names:
                raise Misbuilt(
                    "not-a-parameter",
                    "a group holds something that is no parameter of the model: a name, or a copy. Put the "
                    "parameters themselves in it.",
                )
            if held.count(key) > 1:
                raise Misbuilt(
                    "twice",
                    f"{names[key]} is in the groups twice. A tied head is the token table under a second name; "
                    f"model.named_parameters() lists every parameter once.",
                )
        decays = {
            names[id(parameter)]: float(group.get("weight_decay", ADAMW_DECAY))
            for group in groups
            for parameter in group["params"]
        }
        return {name: decays[name] for name in names.values() if name in decays}  # in the model's order


def _as_groups(result: Any) -> list[Any]:
    groups = list(result) if isinstance(result, list | tuple) else []
    if not groups or not all(isinstance(group, dict) and "params" in group for group in groups):
        raise Misbuilt(
            "not-groups",
            f"it returns {compare.a_kind(result)}. A list of two dicts is asked for, each with 'params', a list of "
            f"parameters, and 'weight_decay'.",
        )
    return groups


def _as_group(group: dict[str, Any]) -> dict[str, Any]:
    """The group with its parameters as a list, be they a generator, one tensor, or pairs of name and tensor."""
    params = [group["params"]] if compare.is_tensor(group["params"]) else list(group["params"])
    return {**group, "params": [p[1] if isinstance(p, tuple) else p for p in params]}


def cases(rng: random.Random) -> list[tuple[GPTConfig, float]]:
    return [
        (config(13, 7, 2, 3, 2), 0.3),
        (config(11, 9, 1, 2, 4, tied=False), 0.05),
        (config(rng.randrange(20, 40), 6, 3, 2, 3), 0.2),
    ]


EXERCISE = Exercise(
    name="param_groups",
    chapter=10,
    task="param_groups(model, weight_decay) returns the groups that torch.optim.AdamW takes in place of the parameters, "
    "a list of two dicts with 'params' and 'weight_decay'. Matrices and tables of a gptlab.GPT decay by weight_decay; "
    "biases, and LayerNorm's gains and biases, do not. Every parameter is in one group, once.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "all",
            "everything decays, biases and LayerNorms too, in GPT-2 small 121,344 values. What has one dimension goes "
            "to a group of its own, with weight_decay 0.",
        ),
        Mistake(
            "gains",
            "LayerNorm's gains decay: their names end in .weight, but they are vectors, and are drawn from 1 towards "
            "0. Go by the number of dimensions: p.ndim >= 2 decays.",
        ),
        Mistake(
            "biases",
            "the biases decay. They are vectors. Go by the number of dimensions: p.ndim >= 2 decays.",
        ),
        Mistake(
            "linear-biases",
            "LayerNorms are spared, but the biases of the linear layers decay. They are vectors, too: p.ndim >= 2 "
            "decays.",
        ),
        Mistake(
            "tables-spared", "the two tables do not decay. They are matrices like the others, 2 dimensions."
        ),
        Mistake("positions-spared", "the position table does not decay. It is a matrix, 2 dimensions."),
        Mistake("exchanged", "the two groups are exchanged: matrices decay, vectors do not."),
        Mistake(
            "rest-missing",
            "what does not decay is in no group, so it would never be trained. Give it a second group, with "
            "weight_decay 0.",
        ),
        Mistake(
            "head-missing",
            "an untied head is in no group, so it would never be trained. A tied one is the token table, and "
            "named_parameters() leaves it out by itself.",
        ),
        Mistake(
            "default-decay",
            "the second group does not say its weight_decay, and AdamW fills in its own, 0.01. Write it down: 0.0.",
        ),
        Mistake("always-0.1", "the decay is 0.1, whatever was asked for. Use the argument weight_decay."),
        Mistake("none", "nothing decays. The group of the matrices gets weight_decay."),
    ),
    cases=cases,
    adapt=Measured,
    hints=(
        "A decay draws values towards 0. It is meant for the many weights of matrices and tables. The few values that "
        "shift or scale a feature are left alone.",
        "Matrices and tables have two dimensions, biases and gains one. What does model.parameters() list, and how "
        "often?",
        "p.ndim >= 2 for p in model.parameters(): one group with weight_decay, the others in a second one with 0.0.",
        "def param_groups(model, weight_decay):\n    matrices = [p for p in model.parameters() if ...]\n"
        '    others = ...\n    return [{"params": matrices, "weight_decay": weight_decay}, {...}]',
    ),
    solution="""
def param_groups(model, weight_decay):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
""",
    also_correct=(
        "from gptlab.training import parameter_groups as param_groups\n",
        "def param_groups(model, weight_decay):\n"
        "    decay, rest = {}, {}\n"
        "    for name, p in model.named_parameters():\n"
        "        spared = name.endswith('.bias') or 'ln_' in name\n"
        "        (rest if spared else decay)[name] = p\n"
        "    return (\n"
        "        {'weight_decay': 0, 'params': rest.values()},\n"
        "        {'weight_decay': weight_decay, 'params': decay.values()},\n"
        "    )\n",
        "from torch import nn\n"
        "def param_groups(model, weight_decay):\n"
        "    groups, seen = [], set()\n"
        "    for module in model.modules():\n"
        "        for name, p in module.named_parameters(recurse=False):\n"
        "            if p not in seen:\n"
        "                seen.add(p)\n"
        "                decays = isinstance(module, (nn.Linear, nn.Embedding)) and name == 'weight'\n"
        "                groups.append({'params': p, 'weight_decay': weight_decay if decays else 0.0})\n"
        "    return groups\n",
    ),
)
