"""Chapter 8: where the parameters sit."""

from __future__ import annotations

import random

from gptlab.config import GPTConfig
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake


def reference(config: GPTConfig, on: frozenset[str] = NOTHING_WRONG) -> dict[str, int]:
    V, P, C = config.vocab_size, config.n_positions, config.n_embd
    L = 1 if "one-block" in on else config.n_head if "heads-for-layers" in on else config.n_layer
    qkv, projection = 3 * C * C, C * C
    if "divided-by-heads" in on:
        qkv //= config.n_head
    if "no-projection" in on:
        projection = 0
    qkv_bias = 0 if on & {"no-biases", "no-qkv-bias"} else 3 * C
    projection_bias = 0 if on & {"no-biases", "no-projection"} else C
    wide = 3072 if "fixed-width" in on else C if "narrow" in on else 4 * C
    mlp = wide * C + (wide if "no-biases" not in on else 0)
    if "one-matrix" not in on:
        mlp += wide * C + (0 if "no-biases" in on else wide if "wide-biases" in on else C)
    norms = (1 if "one-norm" in on else 2) * L + ("no-final-norm" not in on)
    head = 0 if config.tie_word_embeddings else V * C
    if "head-twice" in on:
        head = V * C
    if "head-never" in on:
        head = 0
    counts = {
        "wte": V * C,
        "wpe": (1024 if "always-1024" in on else P) * C,
        "attn": L * (qkv + qkv_bias + projection + projection_bias + ("mask" in on) * P * P),
        "mlp": L * mlp,
        "ln": norms * (1 if "gains-only" in on else 2) * C,
        "lm_head": head + V if "head-bias" in on else head,
    }
    for key, mistake in ("wpe", "no-positions"), ("ln", "no-norms"):
        if mistake in on:
            del counts[key]
    return counts


def config(V: int, P: int, L: int, H: int, D: int, tied: bool = True) -> GPTConfig:
    return GPTConfig(vocab_size=V, n_positions=P, n_layer=L, n_head=H, n_embd=H * D, tie_word_embeddings=tied)


def cases(rng: random.Random) -> list[tuple[GPTConfig]]:
    """Layers and heads differ in number, tied and untied."""
    return [
        (config(101, 9, 3, 2, 5),),
        (config(53, 20, 2, 3, 4, tied=False),),
        (GPTConfig(n_layer=24, n_head=16, n_embd=1024),),
        (config(rng.randrange(200, 300), rng.randrange(30, 60), 5, 4, rng.randrange(3, 20)),),
    ]


EXERCISE = Exercise(
    name="ledger",
    chapter=8,
    task="ledger(config) returns a dict that says where the parameters of a GPT-2 sit, for any gptlab.GPTConfig: 'wte' "
    "and 'wpe', the two tables; 'attn' and 'mlp', those of all blocks together, weights and biases; 'ln', all "
    "LayerNorms, ln_f included; 'lm_head', what a head of its own adds: 0 if config.tie_word_embeddings. The values "
    "add up to the total.",
    difficulty="medium",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "head-twice",
            "the tied head is counted. It is the token table, which 'wte' holds already: 0, unless "
            "config.tie_word_embeddings is False.",
        ),
        Mistake(
            "head-never",
            "an untied head is not counted. Where config.tie_word_embeddings is False, it adds V · C.",
        ),
        Mistake("head-bias", "the head is given a bias, V values. GPT-2's head has none."),
        Mistake("no-positions", "the position table is missing: 'wpe', n_positions rows of C."),
        Mistake(
            "always-1024", "the position table always has 1,024 rows. Read their number: config.n_positions."
        ),
        Mistake("one-block", "one block is counted. There are config.n_layer of them."),
        Mistake(
            "heads-for-layers",
            "the blocks are multiplied by n_head. Their number is n_layer; in GPT-2 small both are 12, so the total "
            "does not show it.",
        ),
        Mistake(
            "divided-by-heads",
            "the weights of Q, K and V are divided by the number of heads. A head has C/H of the columns, and there "
            "are H heads: together they have all of them.",
        ),
        Mistake("no-qkv-bias", "the biases of Q, K and V are missing, 3C in each block. c_attn has a bias."),
        Mistake(
            "no-projection",
            "attention's output projection is missing: c_proj, C² weights and C biases in each block.",
        ),
        Mistake(
            "mask",
            "the causal mask is counted, P² in each block. It is a pattern that nobody learns, no parameter.",
        ),
        Mistake(
            "no-biases",
            "the biases of the linear layers are missing: 3C + C in attention, 4C + C in the MLP, in each block.",
        ),
        Mistake("one-matrix", "the MLP has one matrix. It has two: up from C to 4C, and back."),
        Mistake(
            "fixed-width",
            "the MLP's hidden width is always 3,072. That is 4C in GPT-2 small; make it 4 * n_embd.",
        ),
        Mistake("narrow", "the MLP's hidden width is C. GPT-2's is 4C."),
        Mistake(
            "wide-biases", "both biases of the MLP have 4C values. That of c_proj has C, one for each output."
        ),
        Mistake("no-norms", "the LayerNorms are missing: 'ln', two in each block and ln_f."),
        Mistake("no-final-norm", "the final LayerNorm, ln_f, is missing: 2C."),
        Mistake("one-norm", "each block has one LayerNorm. It has two, ln_1 and ln_2."),
        Mistake("gains-only", "the LayerNorms have gains only. Each has a bias, too: 2C."),
    ),
    cases=cases,
    hints=(
        "Every parameter is in a table, in a linear layer or in a LayerNorm. What does each kind have?",
        "A table has rows · C. A linear layer has inputs · outputs weights and a bias for each output. A LayerNorm has a "
        "gain and a bias for each feature.",
        "wte V · C, wpe P · C, attn L · (4C² + 4C), mlp L · (8C² + 5C), ln (2L + 1) · 2C, lm_head 0 or V · C.",
        "def ledger(config):\n    V, P, C, L = ...\n"
        '    return {"wte": V * C, "wpe": ..., "attn": ..., "mlp": ..., "ln": ..., "lm_head": ...}',
    ),
    solution="""
def ledger(config):
    V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer
    return {
        "wte": V * C,
        "wpe": P * C,
        "attn": L * (4 * C**2 + 4 * C),
        "mlp": L * (8 * C**2 + 5 * C),
        "ln": (2 * L + 1) * 2 * C,
        "lm_head": 0 if config.tie_word_embeddings else V * C,
    }
""",
    also_correct=(
        "from gptlab.ledger import Ledger\n"
        "def ledger(config):\n"
        "    rows = list(Ledger.from_config(config))\n"
        "    parts = {'wte': 'wte', 'wpe': 'wpe', 'attn': '.attn.', 'mlp': '.mlp.', 'ln': 'ln_', 'lm_head': 'lm_head'}\n"
        "    return {key: sum(r.parameters for r in rows if part in r.name) for key, part in parts.items()}\n",
        "from collections import Counter\nimport torch\nfrom gptlab import GPT\n"
        "def ledger(config):\n"
        "    with torch.device('meta'):\n"
        "        model = GPT(config)\n"
        "    counts = Counter(lm_head=0)\n"
        "    for name, p in model.named_parameters():\n"
        "        words = name.split('.')\n"
        "        part = words[2] if words[0] == 'h' else words[0]\n"
        "        counts['ln' if part.startswith('ln') else part] += p.numel()\n"
        "    return counts\n",
        "def ledger(config):\n"
        "    def linear(inputs, outputs):\n"
        "        return inputs * outputs + outputs\n"
        "    C = config.n_embd\n"
        "    counts = dict(wte=config.vocab_size * C, wpe=config.n_positions * C, attn=0, mlp=0, ln=2 * C, lm_head=0)\n"
        "    for _ in range(config.n_layer):\n"
        "        counts['attn'] += linear(C, 3 * C) + linear(C, C)\n"
        "        counts['mlp'] += linear(C, 4 * C) + linear(4 * C, C)\n"
        "        counts['ln'] += 2 * (C + C)\n"
        "    if not config.tie_word_embeddings:\n"
        "        counts['lm_head'] = counts['wte']\n"
        "    return counts\n",
    ),
)
