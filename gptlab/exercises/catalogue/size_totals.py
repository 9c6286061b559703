"""Chapter 8: the other sizes of GPT-2."""

from __future__ import annotations

import random
from dataclasses import replace

from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.catalogue import ledger
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake


def reference(configs: dict[str, GPTConfig], on: frozenset[str] = NOTHING_WRONG) -> dict[str, int]:
    def total(config: GPTConfig) -> int:
        if "twelve-blocks" in on:
            config = replace(config, n_layer=12)
        return sum(ledger.reference(config, on).values())

    return {name: total(config) for name, config in configs.items()}


def cases(rng: random.Random) -> list[tuple[dict[str, GPTConfig]]]:
    published = {name: config for name, config in PRESETS.items() if name != "gpt2"}
    drawn = ledger.config(
        rng.randrange(200, 300), rng.randrange(30, 60), rng.randrange(5, 10), 4, rng.randrange(3, 20)
    )
    return [(published,), ({"a": ledger.config(101, 9, 3, 2, 5), "b": drawn},), ({},)]


EXERCISE = Exercise(
    name="size_totals",
    chapter=8,
    task="size_totals(configs) gets a dict of gptlab.GPTConfig, such as gptlab.config.PRESETS, and returns a dict with "
    "the same names and the number of parameters of each model. All are tied. Write the total as one formula in V, P, C "
    "and L.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake(
            "head-twice",
            "the tied head is counted: these are the totals of untied models. The head is the token table, count "
            "V · C once.",
        ),
        Mistake(
            "fixed-width",
            "the MLP's hidden width is left at 3,072, that of GPT-2 small. It grows with the model: 4C.",
        ),
        Mistake(
            "twelve-blocks", "the number of blocks is left at 12, that of GPT-2 small. Take config.n_layer."
        ),
        Mistake("heads-for-layers", "the blocks are multiplied by n_head. Their number is n_layer."),
        Mistake("one-block", "one block is counted. There are config.n_layer of them."),
        Mistake("no-positions", "the position table is missing, P · C."),
        Mistake("no-norms", "the LayerNorms are missing, 4C in each block and 2C at the end."),
        Mistake("no-final-norm", "the final LayerNorm is missing, 2C."),
        Mistake("no-biases", "the biases of the linear layers are missing, 9C in each block."),
        Mistake("no-qkv-bias", "the biases of Q, K and V are missing, 3C in each block."),
        Mistake("no-projection", "attention's output projection is missing, C² + C in each block."),
    ),
    cases=cases,
    hints=(
        "The four sizes are one model with other numbers in it.",
        "Outside the blocks: two tables and a LayerNorm. Inside: 12C² weights, and how many single C?",
        "V · C + P · C + L · (12C² + 13C) + 2C.",
        "def size_totals(configs):\n    def total(config):\n        V, P, C, L = ...\n        return ...\n\n"
        "    return {name: total(config) for name, config in configs.items()}",
    ),
    solution="""
def size_totals(configs):
    def total(config):
        V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer
        return V * C + P * C + L * (12 * C**2 + 13 * C) + 2 * C

    return {name: total(config) for name, config in configs.items()}
""",
    also_correct=(
        "from gptlab.ledger import Ledger\n"
        "def size_totals(configs):\n"
        "    return {name: Ledger.from_config(configs[name]).total for name in configs}\n",
        "import torch\nfrom gptlab import GPT\n"
        "def size_totals(configs):\n"
        "    totals = {}\n"
        "    for name, config in configs.items():\n"
        "        with torch.device('meta'):\n"
        "            totals[name] = sum(p.numel() for p in GPT(config).parameters())\n"
        "    return totals\n",
        "def size_totals(configs):\n"
        "    def linear(inputs, outputs):\n"
        "        return (inputs + 1) * outputs\n"
        "    totals = {}\n"
        "    for name, c in configs.items():\n"
        "        C = c.n_embd\n"
        "        block = linear(C, 3 * C) + linear(C, C) + linear(C, 4 * C) + linear(4 * C, C) + 4 * C\n"
        "        totals[name] = (c.vocab_size + c.n_positions + 2) * C + block * c.n_layer\n"
        "    return totals\n",
    ),
)
