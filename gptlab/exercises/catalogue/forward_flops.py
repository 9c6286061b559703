"""Chapter 8: the arithmetic of one token."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_P = Ledger.from_config(_SMALL).total
_T = 1024
_BLOCKS = 2 * 12 * _SMALL.n_embd**2 * _SMALL.n_layer
_HEAD = 2 * _SMALL.vocab_size * _SMALL.n_embd
_SCORES = 4 * _T * _SMALL.n_embd * _SMALL.n_layer
_TOTAL = _BLOCKS + _HEAD + _SCORES

EXERCISE = NumericExercise(
    name="forward_flops",
    chapter=8,
    task="How many floating-point operations does a forward pass of GPT-2 small take per token, at T = 1024? Count the "
    "matrix products alone, the head included, a multiplication and an addition as two, and in attention all T keys "
    "for each query.",
    difficulty="hard",
    minutes=15,
    answer=parse(_TOTAL),
    wrong=(
        WrongNumber(
            parse(_TOTAL - _HEAD),
            f"the head is missing. Tying removes parameters, not the head's {_HEAD:,} operations: 2 · V · C.",
        ),
        WrongNumber(
            parse(_TOTAL // 2),
            "those are multiplications with their additions as one. Each counts as two operations.",
        ),
        WrongNumber(
            parse(_BLOCKS + _HEAD),
            "attention's own products are missing: q kᵀ and the weights times v, 2 · T · C each, in every block.",
        ),
        WrongNumber(
            parse(_TOTAL - _SCORES // 2),
            "attention's own products are counted by half: one of q kᵀ and weights times v is missing, or the masked "
            "half is left out. The question counts both, with all T keys.",
        ),
        WrongNumber(
            parse(_BLOCKS),
            "those are the matrices of the blocks. The head and attention's own products are missing.",
        ),
        WrongNumber(parse(_HEAD), "that is the head alone. The blocks are missing."),
        WrongNumber(parse(_SCORES), "those are attention's own products alone."),
        WrongNumber(
            parse(2 * _P),
            "that is twice the number of parameters. The position table multiplies nothing, nor do biases and "
            "LayerNorms count, and attention's own products, which have no parameters, are missing.",
        ),
        WrongNumber(parse(_P), "that is the number of parameters."),
        WrongNumber(
            parse(_TOTAL + _HEAD),
            "the token table is counted at the input as well. There a row is looked up, nothing is multiplied.",
        ),
        WrongNumber(
            parse(_TOTAL + _SCORES * (_SMALL.n_head - 1)),
            "attention's own products are multiplied by the number of heads. Each head has C/H features: all of them "
            "together take 2 · T · C for each product.",
        ),
        WrongNumber(
            parse(3 * _TOTAL),
            "that is a training step, forward and backward. The question asks for the forward pass.",
        ),
        WrongNumber(parse(_T * _TOTAL), "that is all 1,024 tokens. The question asks for one."),
    ),
    hints=(
        "A matrix product with an (n, m) matrix takes n · m multiplications and as many additions for each token.",
        "There are the matrices of the blocks, the head, and in attention two products without parameters: with T keys "
        "and with T values.",
        "2 · (12C²L + V · C) + 4 · T · C · L, with C = 768, L = 12, V = 50,257, T = 1024.",
        "2 * (12 * 768**2 * 12 + ...) + 4 * ...",
    ),
    solution="2 * (12 * 768**2 * 12 + 50257 * 768) + 4 * 1024 * 768 * 12",
)
