"""Chapter 7: what tying saves."""

from __future__ import annotations

import random

from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake


def reference(config: GPTConfig, on: frozenset[str] = NOTHING_WRONG) -> dict[str, int | float]:
    if "always-small" in on:
        config = PRESETS["gpt2"]
    V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer
    saved = (V + P) * C if "positions-too" in on else V * C
    if "both-tables" in on:
        saved *= 2
    whole = (1 if "tied-total" in on else 2) * V * C + P * C + L * (12 * C * C + 13 * C) + 2 * C
    if "half" in on:
        whole = 2 * V * C
    share = saved / whole
    percent = share if "share" in on else 100 * share
    size: int | float = saved * (2 if "two-bytes" in on else 16 if "training-state" in on else 4)
    if "megabytes" in on:
        size = size / 1e6
    if "mebibytes" in on:
        size = size / 2**20
    return {
        "parameters": saved,
        "percent": round(percent, 2) if "rounded" in on else percent,
        "bytes": size,
    }


def cases(rng: random.Random) -> list[tuple[GPTConfig]]:
    def case(V: int, P: int, L: int, H: int, D: int) -> tuple[GPTConfig]:
        return (GPTConfig(vocab_size=V, n_positions=P, n_layer=L, n_head=H, n_embd=H * D),)

    drawn = case(rng.randrange(300, 999), rng.randrange(20, 99), 5, 3, rng.randrange(7, 31))
    return [(PRESETS["gpt2"],), (PRESETS["gpt2-medium"],), case(1009, 40, 3, 2, 11), drawn]


EXERCISE = Exercise(
    name="tying_report",
    chapter=7,
    task="tying_report(config) returns a dict with what tying saves for a gptlab.GPTConfig: 'parameters', the number of "
    "parameters that a model with a head of its own has more; 'percent', that number in percent of all parameters of "
    "this untied model, not rounded; 'bytes', what it takes in float32.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "tied-total",
            "the percentage is that of the tied model's parameters. What is saved is a part of the untied model, "
            "which has it: divide by the larger total.",
        ),
        Mistake(
            "half",
            "the percentage is 50: that of the two tables. The blocks and the positions are parameters, too.",
        ),
        Mistake("share", "the share is not in percent. Multiply by 100."),
        Mistake(
            "rounded",
            "the percentage is rounded to two decimals. Leave it as it is, round when you print it.",
        ),
        Mistake(
            "both-tables",
            "both tables are counted as saved. One of them stays: V · C are saved, not 2 · V · C.",
        ),
        Mistake(
            "positions-too",
            "the position table is counted as saved. The head has a row for each token, none for a position.",
        ),
        Mistake("two-bytes", "the bytes are those of half precision, two a value. A float32 has four."),
        Mistake(
            "training-state",
            "there are 16 bytes for each parameter: weights, gradients and AdamW's two moments. The question asks "
            "for the weights, four bytes each.",
        ),
        Mistake("megabytes", "the size is in MB. The question asks for bytes."),
        Mistake("mebibytes", "the size is in MiB. The question asks for bytes."),
        Mistake(
            "always-small",
            "every model gets the numbers of GPT-2 small. Read the sizes from config: vocab_size, n_positions, "
            "n_embd, n_layer.",
        ),
    ),
    cases=cases,
    hints=(
        "An untied model is a tied one with a second table. How large is that, and how large is the untied model?",
        "The tied total: two tables, n_layer blocks, a LayerNorm at the end. Add the head for the untied one.",
        "V · C are saved. A block has 12C² + 13C, the untied total is 2 · V · C + P · C + L · (12C² + 13C) + 2C, and a "
        "float32 takes four bytes.",
        "def tying_report(config):\n    saved = ...\n    untied = ...\n"
        '    return {"parameters": saved, "percent": ..., "bytes": ...}',
    ),
    solution="""
def tying_report(config):
    V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer
    saved = V * C
    untied = 2 * V * C + P * C + L * (12 * C**2 + 13 * C) + 2 * C
    return {"parameters": saved, "percent": 100 * saved / untied, "bytes": 4 * saved}
""",
    also_correct=(
        "from dataclasses import replace\nfrom gptlab.ledger import Ledger\n"
        "def tying_report(config):\n"
        "    tied, untied = (Ledger.from_config(replace(config, tie_word_embeddings=t)).total for t in (True, False))\n"
        "    return dict(parameters=untied - tied, percent=(1 - tied / untied) * 100, bytes=(untied - tied) * 4)\n",
        "from dataclasses import replace\nimport torch\nfrom gptlab import GPT\n"
        "def tying_report(config):\n"
        "    with torch.device('meta'):\n"
        "        model = GPT(replace(config, tie_word_embeddings=False))\n"
        "    head = model.lm_head.weight\n"
        "    total = sum(p.numel() for p in model.parameters())\n"
        "    return {'bytes': head.nbytes, 'parameters': head.numel(), 'percent': head.numel() / total * 100}\n",
        "import numpy as np\n"
        "def tying_report(config):\n"
        "    c = config\n"
        "    C, saved = c.n_embd, np.int64(c.vocab_size * c.n_embd)\n"
        "    attention, mlp, norms = 4 * C * (C + 1), 8 * C * C + 5 * C, 4 * C\n"
        "    total = 2 * saved + c.n_positions * C + c.n_layer * (attention + mlp + norms) + 2 * C\n"
        "    return {'parameters': saved, 'percent': np.float64(saved / total * 100), 'bytes': saved * 32 // 8}\n",
    ),
)
