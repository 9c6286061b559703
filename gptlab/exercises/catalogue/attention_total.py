"""Chapter 3: how many parameters the attention sublayer has."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_TOTAL = Ledger.from_config(_SMALL).subtotal("h.0.attn.")
_MLP = Ledger.from_config(_SMALL).subtotal("h.0.mlp.")
_C, _H, _T = _SMALL.n_embd, _SMALL.n_head, _SMALL.n_positions

EXERCISE = NumericExercise(
    name="attention_total",
    chapter=3,
    task="How many parameters does the attention sublayer of one block of GPT-2 small have? C is 768, there are 12 "
    "heads. Count weights and biases of c_attn and c_proj, not the LayerNorm in front.",
    difficulty="easy",
    minutes=5,
    answer=parse(_TOTAL),
    wrong=(
        WrongNumber(
            parse(_TOTAL - _C * _C - _C),
            "that is Q, K and V alone. The output projection c_proj is missing: another C² weights and C biases.",
        ),
        WrongNumber(
            parse(_TOTAL - 3 * _C), "the biases of Q, K and V are missing, 3C of them. GPT-2 has them."
        ),
        WrongNumber(parse(_TOTAL - _C), "the output projection's bias is missing, C values."),
        WrongNumber(parse(4 * _C * _C), "those are the weights, 4C². The biases are missing, 4C of them."),
        WrongNumber(parse(3 * _C * _C), "those are the weights of Q, K and V alone, 3C²."),
        WrongNumber(parse(_C * _C + _C), "that is the output projection alone. Add Q, K and V."),
        WrongNumber(
            parse(3 * _C * _C // _H + 3 * _C + _C * _C + _C),
            "the weights of Q, K and V are divided by the number of heads. A head has C/H of the columns, and there "
            "are H heads: together they have all of them. The count does not depend on H.",
        ),
        WrongNumber(
            parse(3 * (_C * _C + _C) // _H + _C * _C + _C),
            "weights and biases of Q, K and V are divided by the number of heads. A head has C/H of the columns, and "
            "there are H heads: together they have all of them. The count does not depend on H.",
        ),
        WrongNumber(
            parse(_TOTAL + _T * _T),
            "the causal mask is counted. It is a pattern that nobody learns, no parameter.",
        ),
        WrongNumber(parse(_TOTAL + 2 * _C), "the LayerNorm in front is counted. The question leaves it out."),
        WrongNumber(parse(12 * _TOTAL), "that is all twelve blocks. The question asks for one."),
        WrongNumber(parse(_MLP), "that is the MLP. Attention has four C × C matrices, the MLP eight."),
    ),
    hints=(
        "Two linear layers: which sizes do they turn into which?",
        "c_attn turns C numbers into 3C, c_proj C into C. A linear layer has inputs · outputs weights and a bias "
        "for each output. The heads are a way of cutting, they add nothing.",
        "3C² + 3C + C² + C = 4C² + 4C, with C = 768.",
        "4 * 768**2 + ...",
    ),
    solution="4 * 768**2 + 4 * 768",
)
