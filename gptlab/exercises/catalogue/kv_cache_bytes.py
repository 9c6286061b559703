"""Chapter 9: what a conversation takes."""

from __future__ import annotations

import random

from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.catalogue.ledger import config
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake


def reference(
    config: GPTConfig, B: int, T: int, bytes_per_value: int, on: frozenset[str] = NOTHING_WRONG
) -> int | float:
    if "always-small" in on:
        config = PRESETS["gpt2"]
    L = 1 if "one-layer" in on else config.n_head if "heads-for-layers" in on else config.n_layer
    width = config.head_dim if "one-head" in on else config.n_embd
    if "times-heads" in on:
        width *= config.n_head
    if "scores" in on:
        width = config.n_head * T // 2  # times 2 below: a weight for each head, query and key
    size = (1 if "keys-only" in on else 3 if "queries-too" in on else 2) * L * width
    size *= config.n_positions if "full-context" in on else 1 if "one-token" in on else T
    size *= 1 if "one-row" in on else B
    size *= 4 if "always-4" in on else 2 if "always-2" in on else 1 if "values" in on else bytes_per_value
    return size / 2**20 if "mebibytes" in on else size


def cases(rng: random.Random) -> list[tuple[GPTConfig, int, int, int]]:
    drawn = config(rng.randrange(200, 300), rng.randrange(30, 60), 5, 4, rng.randrange(3, 20))
    return [
        (PRESETS["gpt2"], 1, 1024, 2),
        (PRESETS["gpt2-medium"], 1, 1024, 2),
        (PRESETS["gpt2-xl"], 8, 100, 4),
        (config(101, 30, 3, 2, 5), 4, 6, 1),
        (drawn, rng.randrange(2, 9), 2 * rng.randrange(1, 15), 4),
    ]


EXERCISE = Exercise(
    name="kv_cache_bytes",
    chapter=9,
    task="kv_cache_bytes(config, B, T, bytes_per_value) returns the bytes of a full KV cache: the keys and values that "
    "every head of every block keeps of B rows of T tokens, for any gptlab.GPTConfig.",
    difficulty="easy",
    minutes=10,
    reference=reference,
    mistakes=(
        Mistake("keys-only", "one of keys and values is counted. Both are kept: 2."),
        Mistake(
            "queries-too",
            "queries are counted as well. A query is used once, when its token is read. Keys and values are kept: 2.",
        ),
        Mistake(
            "times-heads",
            "the heads are counted twice: C is the width of all of them together, n_head · head_dim. Leave n_head out.",
        ),
        Mistake(
            "one-head",
            "the keys and values of one head are counted. A block has n_head of them, C = n_head · head_dim together.",
        ),
        Mistake(
            "one-layer", "one block is counted. Each of the n_layer blocks keeps keys and values of its own."
        ),
        Mistake(
            "heads-for-layers",
            "the number of blocks is taken to be n_head. It is n_layer; in GPT-2 small both are 12.",
        ),
        Mistake(
            "scores",
            "these are the attention weights, T for each query. They are not kept: the cache holds a key and a value "
            "for each token, and grows with T, not with T².",
        ),
        Mistake("full-context", "the cache always has n_positions tokens. Take T."),
        Mistake("one-token", "this is the size for one token. The cache holds T of them."),
        Mistake(
            "one-row", "this is the size for one row. Each of the B rows has keys and values of its own."
        ),
        Mistake("always-4", "every value takes 4 bytes, as in float32. Take bytes_per_value."),
        Mistake("always-2", "every value takes 2 bytes, as in float16. Take bytes_per_value."),
        Mistake("values", "this is the number of values. Each takes bytes_per_value."),
        Mistake("mebibytes", "these are MiB, 2²⁰ bytes. Bytes are asked for."),
        Mistake(
            "always-small", "every config gets the bytes of GPT-2 small. Take n_layer and n_embd from config."
        ),
    ),
    cases=cases,
    hints=(
        "What does a block keep of a token that has been read, so that later ones can attend to it?",
        "A key and a value for each head. How wide are those of all heads together? And how many blocks are there?",
        "2 · L · C values for a token, B · T tokens, bytes_per_value each.",
        "def kv_cache_bytes(config, B, T, bytes_per_value):\n    per_token = 2 * ...\n    return ...",
    ),
    solution="""
def kv_cache_bytes(config, B, T, bytes_per_value):
    per_token = 2 * config.n_layer * config.n_embd  # a key and a value in each block
    return B * T * per_token * bytes_per_value
""",
    also_correct=(
        "def kv_cache_bytes(config, B, T, bytes_per_value):\n"
        "    one = B * config.n_head * T * (config.n_embd // config.n_head) * bytes_per_value\n"
        "    return sum(one + one for _ in range(config.n_layer))\n",
        "from gptlab import KVCache\n"
        "def kv_cache_bytes(config, B, T, bytes_per_value):\n"
        "    in_float32 = KVCache(config, B, max_length=T, device='meta').nbytes\n"
        "    return in_float32 * bytes_per_value // 4\n",
        "import math\n"
        "def kv_cache_bytes(config, B, T, bytes_per_value):\n"
        "    return math.prod([2, config.n_layer, B, T, config.n_embd]) * (8 * bytes_per_value) / 8\n",
    ),
)
