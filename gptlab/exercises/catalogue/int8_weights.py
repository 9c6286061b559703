"""Chapter 9: the weights in one byte each."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import in_bytes
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_P = Ledger.from_config(_SMALL).total
_HEAD = _SMALL.vocab_size * _SMALL.n_embd
_MATRICES = 12 * _SMALL.n_embd**2 * _SMALL.n_layer


EXERCISE = NumericExercise(
    name="int8_weights",
    chapter=9,
    task="How much memory do the weights of GPT-2 small take when every parameter is an int8? Leave the scales out. "
    "Write the answer with its unit, in bytes, MB or MiB.",
    difficulty="easy",
    minutes=5,
    answer=in_bytes(_P),
    wrong=(
        WrongNumber(
            in_bytes("118.68 MB"),
            "the number is that of MiB, 2²⁰ bytes. An MB is a million bytes. Write MiB, or divide by 10⁶.",
        ),
        WrongNumber(
            in_bytes("124.44 MiB"),
            "the number is that of MB, a million bytes. An MiB is 2²⁰ bytes. Write MB, or divide by 2²⁰.",
        ),
        WrongNumber(
            in_bytes(_P // 4),
            "the number of parameters is divided by 4. It is 4 bytes for each that become 1: as many bytes as "
            "parameters.",
        ),
        WrongNumber(in_bytes(4 * _P), "those are the weights in float32, 4 bytes each. An int8 has one."),
        WrongNumber(
            in_bytes(2 * _P), "those are the weights in half precision, 2 bytes each. An int8 has one."
        ),
        WrongNumber(in_bytes(8 * _P), "those are bits, 8 in an int8. A byte has 8 bits."),
        WrongNumber(
            in_bytes(_P + _HEAD),
            "the tied head is counted. It is the token table under a second name. (Tools that break the tie do store "
            "it twice.)",
        ),
        WrongNumber(
            in_bytes(_MATRICES),
            "those are the matrices of the blocks alone. The question has every parameter as int8, the tables too.",
        ),
        WrongNumber(
            in_bytes(_MATRICES + 4 * (_P - _MATRICES)),
            "that is with the matrices of the blocks as int8 and all else in float32, as many tools do it. The "
            "question has every parameter as int8.",
        ),
    ),
    hints=(
        "How many bits has an int8, and how many a byte?",
        "One byte for each parameter. In which unit do you write it?",
        "124,439,808 bytes; divide by 10⁶ for MB, by 2²⁰ for MiB.",
        "124_439_808 * ...",
    ),
    solution="124_439_808 * 1",
)
