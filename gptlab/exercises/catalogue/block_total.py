"""Chapter 8: how many parameters one block has."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_LEDGER = Ledger.from_config(_SMALL)
_TOTAL = _LEDGER.subtotal("h.0.")
_C, _H, _P = _SMALL.n_embd, _SMALL.n_head, _SMALL.n_positions

EXERCISE = NumericExercise(
    name="block_total",
    chapter=8,
    task="How many parameters does one block of GPT-2 small have? C is 768. Count everything in it: two LayerNorms, "
    "attention and the MLP.",
    difficulty="easy",
    minutes=5,
    answer=parse(_TOTAL),
    wrong=(
        WrongNumber(
            parse(12 * _C * _C),
            "those are the matrices alone, 12C². Biases and LayerNorms are missing, 13C together.",
        ),
        WrongNumber(parse(_TOTAL - 4 * _C), "the two LayerNorms are missing, a gain and a bias each: 4C."),
        WrongNumber(parse(_TOTAL - 2 * _C), "there is one LayerNorm. A block has two, ln_1 and ln_2."),
        WrongNumber(
            parse(_TOTAL - _C * _C - _C), "attention's output projection, c_proj, is missing: C² + C."
        ),
        WrongNumber(
            parse(_TOTAL - 9 * _C), "the biases of the four linear layers are missing: 3C + C + 4C + C."
        ),
        WrongNumber(parse(_TOTAL - 3 * _C), "the biases of Q, K and V are missing, 3C of them."),
        WrongNumber(
            parse(_TOTAL - 11 * _C), "all biases are missing, those of the LayerNorms included: 11C."
        ),
        WrongNumber(
            parse(_LEDGER.subtotal("h.0.attn.")),
            "that is attention alone, or the first matrix of the MLP with its bias: both have 4C² + 4C. A block has "
            "attention, the whole MLP, and two LayerNorms.",
        ),
        WrongNumber(
            parse(_LEDGER.subtotal("h.0.mlp.")),
            "that is the MLP alone. Attention and the LayerNorms are missing.",
        ),
        WrongNumber(
            parse(_TOTAL - 3 * _C * _C // _H * (_H - 1)),
            "the weights of Q, K and V are divided by the number of heads. The heads share the columns out, together "
            "they have all of them.",
        ),
        WrongNumber(
            parse(_TOTAL - 3 * (_C * _C + _C) // _H * (_H - 1)),
            "weights and biases of Q, K and V are divided by the number of heads. The heads share the columns out, "
            "together they have all of them.",
        ),
        WrongNumber(
            parse(_TOTAL + _P * _P),
            "the causal mask is counted. It is a pattern that nobody learns, no parameter.",
        ),
        WrongNumber(parse(_TOTAL + 2 * _C), "ln_f is counted. It stands behind the last block, not in one."),
        WrongNumber(parse(_LEDGER.subtotal("h.")), "that is all twelve blocks. The question asks for one."),
    ),
    hints=(
        "Two LayerNorms, two linear layers in attention, two in the MLP.",
        "You have counted attention and the MLP in chapters 3 and 4. A LayerNorm has a gain and a bias for each feature.",
        "2 · 2C + (4C² + 4C) + (8C² + 5C) = 12C² + 13C, with C = 768.",
        "12 * 768**2 + ...",
    ),
    solution="12 * 768**2 + 13 * 768",
)
