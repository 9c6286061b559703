"""Chapter 9: the cache of one full context."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import in_bytes

_SMALL = PRESETS["gpt2"]
_SIZE = 2 * _SMALL.n_layer * _SMALL.n_positions * _SMALL.n_embd * 2


EXERCISE = NumericExercise(
    name="kv_cache",
    chapter=9,
    task="How large is the KV cache of GPT-2 small in float16, for one row of 1,024 tokens? Write the answer with its "
    "unit, in bytes, MB or MiB.",
    difficulty="easy",
    minutes=5,
    answer=in_bytes(_SIZE),
    wrong=(
        WrongNumber(
            in_bytes(_SIZE // 2),
            "one of keys and values is counted, or one byte for each value. Both are kept, and a float16 has 2 bytes.",
        ),
        WrongNumber(in_bytes(_SIZE * 2), "that is in float32, 4 bytes for each value. A float16 has 2."),
        WrongNumber(
            in_bytes(_SIZE * 3 // 2),
            "queries are counted as well. A query is used once, when its token is read; keys and values are kept.",
        ),
        WrongNumber(
            in_bytes(_SIZE * _SMALL.n_head),
            "the heads are counted twice: C = 768 is the width of all 12 together. Leave n_head out.",
        ),
        WrongNumber(
            in_bytes(_SIZE // 12),
            "a factor of 12 is missing, and GPT-2 small has two of them: one block is counted where there are 12, or "
            "one head of width 64 where there are 12. Both count. The same for GPT-2 medium, with 24 blocks and 16 "
            "heads, tells the two apart: 100,663,296 bytes.",
        ),
        WrongNumber(
            in_bytes(_SIZE // _SMALL.n_positions),
            "that is for one token. There are 1,024.",
        ),
        WrongNumber(
            in_bytes(_SIZE // 2 // 2),
            "that is the number of keys. There are as many values, of 2 bytes each.",
        ),
        WrongNumber(
            in_bytes("37.75 MiB"),
            "the number is that of MB, a million bytes. An MiB is 2²⁰ bytes. Write MB, or divide by 2²⁰.",
        ),
        WrongNumber(
            in_bytes("36.00 MB"),
            "the number is that of MiB, 2²⁰ bytes. An MB is a million bytes. Write MiB, or divide by 10⁶.",
        ),
    ),
    hints=(
        "Every block keeps something of every token that has been read. What, and how much?",
        "A key and a value, each as wide as the model, C = 768 for all heads together.",
        "2 · L · T · C values of 2 bytes each, with L = 12 and T = 1,024.",
        "2 * 12 * 1024 * ... * 2",
    ),
    solution="2 * 12 * 1024 * 768 * 2",
)
