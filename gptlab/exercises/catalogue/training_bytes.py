"""Chapter 9: what training keeps from step to step."""

from __future__ import annotations

import random

from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.catalogue.ledger import config
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

SPLITS = {"fp32": (4, 4, 8), "amp": (4, 4, 8), "bf16": (2, 2, 4), "master": (2, 2, 12)}
"""Bytes for each parameter: weights, gradients, optimizer."""

WRONG_SPLITS = {
    "amp-as-master": ("amp", (2, 2, 12)),
    "amp-half-gradients": ("amp", (4, 2, 8)),
    "bf16-float32-moments": ("bf16", (2, 2, 8)),
    "bf16-with-master": ("bf16", (2, 2, 12)),
    "no-master": ("master", (2, 2, 8)),
    "master-in-weights": ("master", (6, 2, 8)),
    "float32-gradients": ("master", (2, 4, 12)),
    "both-gradients": ("master", (2, 6, 12)),
}


def reference(
    config: GPTConfig, precision: str, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, int | float]:
    if "always-small" in on:
        config = PRESETS["gpt2"]
    V, C, L = config.vocab_size, config.n_embd, config.n_layer
    tied = config.tie_word_embeddings
    tables = 2 if "head-twice" in on or (not tied and "head-never" not in on) else 1
    positions = 0 if "no-positions" in on else config.n_positions
    n_params = tables * V * C + positions * C + L * (12 * C * C + 13 * C) + 2 * C
    weights, gradients, optimizer = SPLITS["fp32" if "always-fp32" in on else precision]
    moment = 2 if weights == 2 and precision == "bf16" else 4
    for name, (changed, split) in WRONG_SPLITS.items():
        if name in on and precision == changed:
            weights, gradients, optimizer = split
    moments = ("three-moments" in on) - ("one-moment" in on) - 2 * ("no-moments" in on)
    unit = 1e6 if "megabytes" in on else 2**20 if "mebibytes" in on else 1
    if "parameters" in on:
        weights, gradients, optimizer, moment = 1, 1, 2, 1
    sizes = {"weights": weights, "gradients": gradients, "optimizer": optimizer + moments * moment}
    return {name: size * n_params if unit == 1 else size * n_params / unit for name, size in sizes.items()}


def cases(rng: random.Random) -> list[tuple[GPTConfig, str]]:
    drawn = config(rng.randrange(200, 300), rng.randrange(30, 60), 5, 4, rng.randrange(3, 20))
    return [
        *((PRESETS["gpt2"], precision) for precision in SPLITS),
        (config(53, 20, 2, 3, 4, tied=False), "fp32"),
        (config(101, 9, 3, 2, 5), "amp"),
        (config(101, 9, 3, 2, 5), "bf16"),
        (drawn, "master"),
    ]


EXERCISE = Exercise(
    name="training_bytes",
    chapter=9,
    task="training_bytes(config, precision) returns a dict with the bytes that AdamW keeps from one step to the next, "
    "for any gptlab.GPTConfig: 'weights', 'gradients' and 'optimizer'. precision is 'fp32'; 'amp', PyTorch's autocast "
    "around a float32 model; 'bf16', where all is bfloat16; or 'master', where weights and gradients are bfloat16 and "
    "the optimizer also holds a float32 copy of the weights, and float32 moments. Activations, the copies that autocast "
    "makes on the way, and the step counters are left out. gptlab.Ledger.from_config(config).total is the number of "
    "parameters.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "amp-as-master",
            "'amp' has the bytes of half-precision weights with a float32 copy, 2 + 2 + 12. Autocast leaves the model "
            "as it is: weights, gradients and moments are float32. What it makes smaller are the activations.",
        ),
        Mistake(
            "amp-half-gradients",
            "under 'amp' the gradients have 2 bytes. A gradient has the type of its weight, and autocast leaves the "
            "weights in float32.",
        ),
        Mistake(
            "bf16-float32-moments",
            "under 'bf16' the moments have 4 bytes each. PyTorch's AdamW makes them in the type of the weights: 2.",
        ),
        Mistake(
            "bf16-with-master",
            "'bf16' has a float32 copy of the weights and float32 moments. That is 'master'; where all is bfloat16, "
            "there are 2 + 2 + 4 bytes.",
        ),
        Mistake(
            "no-master",
            "under 'master' the optimizer holds the two moments alone. The float32 copy of the weights is missing, 4 "
            "bytes more.",
        ),
        Mistake(
            "master-in-weights",
            "the total under 'master' is right, but the float32 copy is counted among the weights. It is the "
            "optimizer's: 2 + 2 + 12.",
        ),
        Mistake(
            "float32-gradients",
            "under 'master' the gradients have 4 bytes, which makes 18 for each parameter. Here they are bfloat16, "
            "like the weights that the model computes with: 2.",
        ),
        Mistake(
            "both-gradients",
            "under 'master' the gradients are counted in bfloat16 and in float32, which makes 20 bytes for each "
            "parameter. Here there is one, in bfloat16: 2.",
        ),
        Mistake(
            "one-moment",
            "the optimizer has one moment. AdamW keeps two, the mean of the gradients and that of their squares.",
        ),
        Mistake(
            "three-moments",
            "the optimizer has three moments. AdamW keeps two, the mean of the gradients and that of their squares. "
            "The gradient itself has an entry of its own.",
        ),
        Mistake(
            "no-moments",
            "AdamW's two moments are missing. They are tensors as large as the weights, and stay from step to step.",
        ),
        Mistake(
            "always-fp32",
            "every precision gets float32's bytes. Under 'bf16' and 'master' weights and gradients have 2.",
        ),
        Mistake(
            "head-twice",
            "the tied head is counted. It is the token table under a second name: one weight, one gradient, one pair "
            "of moments.",
        ),
        Mistake(
            "head-never",
            "an untied head is not counted. Where config.tie_word_embeddings is False, it is a tensor of its own.",
        ),
        Mistake("no-positions", "the position table is missing, n_positions · n_embd parameters."),
        Mistake("always-small", "every config gets the bytes of GPT-2 small. Count the config's parameters."),
        Mistake(
            "parameters",
            "these are numbers of parameters, whatever the precision. Each takes 4 bytes in float32 and 2 in bfloat16.",
        ),
        Mistake("megabytes", "these are MB, millions of bytes. Bytes are asked for."),
        Mistake("mebibytes", "these are MiB, 2²⁰ bytes. Bytes are asked for."),
    ),
    cases=cases,
    hints=(
        "Three kinds of tensors, each as large as the model: weights, gradients, and what the optimizer remembers. How "
        "many of each, and how many bytes for a value?",
        "Write a small table: for each precision the bytes of a parameter in 'weights', 'gradients' and 'optimizer'. "
        "Autocast changes what is computed with, not what is kept.",
        "n_params · (4, 4, 8) for 'fp32' and 'amp', (2, 2, 4) for 'bf16', (2, 2, 4 + 8) for 'master'.",
        "def training_bytes(config, precision):\n    n_params = gptlab.Ledger.from_config(config).total\n"
        '    split = {"fp32": (4, 4, 8), "amp": ..., "bf16": ..., "master": ...}[precision]\n'
        '    return {"weights": ..., "gradients": ..., "optimizer": ...}',
    ),
    solution="""
import gptlab

def training_bytes(config, precision):
    n_params = gptlab.Ledger.from_config(config).total
    weights, gradients, optimizer = {
        "fp32": (4, 4, 8),
        "amp": (4, 4, 8),  # autocast leaves all three in float32
        "bf16": (2, 2, 4),
        "master": (2, 2, 4 + 8),  # a float32 copy of the weights, and two moments
    }[precision]
    return {"weights": weights * n_params, "gradients": gradients * n_params, "optimizer": optimizer * n_params}
""",
    also_correct=(
        "def training_bytes(config, precision):\n"
        "    V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer\n"
        "    heads = 1 if config.tie_word_embeddings else 2\n"
        "    count = heads * V * C + P * C + L * (12 * C**2 + 13 * C) + 2 * C\n"
        "    half = precision in ('bf16', 'master')\n"
        "    value = 2 if half else 4\n"
        "    moments = 2 * (2 if precision == 'bf16' else 4)\n"
        "    copy = 4 if precision == 'master' else 0\n"
        "    return dict(weights=value * count, gradients=value * count, optimizer=(moments + copy) * count)\n",
        "import torch\nfrom gptlab import GPT\n"
        "def training_bytes(config, precision):\n"
        "    with torch.device('meta'):\n"
        "        model = GPT(config)\n"
        "    if precision in ('bf16', 'master'):\n"
        "        model = model.bfloat16()\n"
        "    sizes = {'weights': sum(p.nbytes for p in model.parameters())}\n"
        "    sizes['gradients'] = sum(torch.empty_like(p).nbytes for p in model.parameters())\n"
        "    kept = [p.float() if precision == 'master' else p for p in model.parameters()]\n"
        "    sizes['optimizer'] = (3 if precision == 'master' else 2) * sum(p.nbytes for p in kept)\n"
        "    return sizes\n",
        "import numpy as np\nfrom gptlab.ledger import Ledger\n"
        "def training_bytes(config, precision):\n"
        "    n = sum(row.parameters for row in Ledger.from_config(config))\n"
        "    per = {'bf16': [16, 16, 32], 'master': [16, 16, 96]}.get(precision, [32, 32, 64])  # bits\n"
        "    return dict(zip(('weights', 'gradients', 'optimizer'), np.array(per) / 8 * n))\n",
    ),
)
