"""Chapter 9: why 498 MB of weights become two gigabytes."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import in_bytes
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_P = Ledger.from_config(_SMALL).total
_HEAD = _SMALL.vocab_size * _SMALL.n_embd


EXERCISE = NumericExercise(
    name="training_state",
    chapter=9,
    task="GPT-2 small is trained in float32 with AdamW. How much memory do its weights, their gradients and the "
    "optimizer's moments take? Write the answer with its unit, in bytes, GB or GiB.",
    difficulty="easy",
    minutes=10,
    answer=in_bytes(16 * _P),
    wrong=(
        WrongNumber(in_bytes(4 * _P), "those are the weights alone. Gradients and moments are as large."),
        WrongNumber(
            in_bytes(8 * _P),
            "those are 8 bytes for each parameter: weights and gradients without the moments, or all four in half "
            "precision. It is float32, and AdamW has two moments: 16.",
        ),
        WrongNumber(
            in_bytes(12 * _P),
            "those are 12 bytes for each parameter, three tensors as large as the model. There are four: weights, "
            "gradients, and AdamW's two moments.",
        ),
        WrongNumber(
            in_bytes(16 * (_P + _HEAD)),
            "the tied head is counted. It is the token table under a second name: one weight, one gradient, one pair "
            "of moments.",
        ),
        WrongNumber(
            in_bytes(18 * _P),
            "those are 18 bytes for each parameter: bfloat16 weights, and float32 for the rest, a copy of the "
            "weights included. Here all is float32 and there is no copy: 16.",
        ),
        WrongNumber(
            in_bytes(20 * _P),
            "those are 20 bytes for each parameter, five tensors. AdamW keeps two moments, not three copies; weights "
            "and gradients are the other two: 16.",
        ),
        WrongNumber(
            in_bytes("1.991 GiB"),
            "the number is that of GB, a thousand million bytes. A GiB is 2³⁰ bytes. Write GB, or divide by 2³⁰.",
        ),
        WrongNumber(
            in_bytes("1.854 GB"),
            "the number is that of GiB, 2³⁰ bytes. A GB is a thousand million bytes. Write GiB, or divide by 10⁹.",
        ),
        WrongNumber(
            in_bytes(_P), "that is the number of parameters. Each takes 4 bytes, in each of four tensors."
        ),
    ),
    hints=(
        "Four tensors as large as the model. Which?",
        "Weights, gradients, and two moments. How many bytes has a float32?",
        "16 bytes for each of 124,439,808 parameters; divide by 10⁹ for GB, by 2³⁰ for GiB.",
        "(4 + 4 + ...) * 124_439_808",
    ),
    solution="(4 + 4 + 4 + 4) * 124_439_808",
)
