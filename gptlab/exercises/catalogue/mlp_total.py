"""Chapter 4: how many parameters the MLP has."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_LEDGER = Ledger.from_config(PRESETS["gpt2"])
_TOTAL = _LEDGER.subtotal("h.0.mlp.")
_C = PRESETS["gpt2"].n_embd

EXERCISE = NumericExercise(
    name="mlp_total",
    chapter=4,
    task="How many parameters does the MLP of one block of GPT-2 small have? C is 768. Count weights and biases of "
    "c_fc and c_proj, not the LayerNorm in front.",
    difficulty="easy",
    minutes=5,
    answer=parse(_TOTAL),
    wrong=(
        WrongNumber(
            parse(8 * _C * _C), "those are the weights, 8C². The biases are missing, 4C + C of them."
        ),
        WrongNumber(
            parse(4 * _C * _C + 4 * _C),
            "that is the first matrix with its bias alone: c_proj, back from 4C to C, is missing. It is also the size "
            "of the whole attention sublayer, 4C² + 4C; the two are the same number.",
        ),
        WrongNumber(
            parse(4 * _C * _C + _C), "that is the second matrix with its bias alone. c_fc is missing."
        ),
        WrongNumber(parse(4 * _C * _C), "that is one of the two matrices, without biases. There are two."),
        WrongNumber(
            parse(_TOTAL - _C), "the bias of c_proj is missing, C values: one for each of its outputs."
        ),
        WrongNumber(
            parse(_TOTAL - 4 * _C), "the bias of c_fc is missing, 4C values: one for each of its outputs."
        ),
        WrongNumber(
            parse(8 * _C * _C + 8 * _C), "both biases have 4C values. That of c_proj has C, its outputs."
        ),
        WrongNumber(parse(2 * _C * _C + 2 * _C), "the hidden width is C. GPT-2's is 4C, 3,072."),
        WrongNumber(parse(24 * _C * _C + 9 * _C), "there is a third matrix, 4C × 4C. GPT-2's MLP has two."),
        WrongNumber(parse(_TOTAL + 2 * _C), "the LayerNorm in front is counted. The question leaves it out."),
        WrongNumber(parse(12 * _TOTAL), "that is all twelve blocks. The question asks for one."),
    ),
    hints=(
        "Two linear layers: which sizes do they turn into which?",
        "c_fc turns C features into 4C, c_proj turns them back. A linear layer has inputs · outputs weights and a bias "
        "for each output.",
        "4C² + 4C + 4C² + C = 8C² + 5C, with C = 768.",
        "8 * 768**2 + ...",
    ),
    solution="8 * 768**2 + 5 * 768",
)
