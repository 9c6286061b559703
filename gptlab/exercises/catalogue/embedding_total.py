"""Chapter 2: how many parameters the two tables have."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_LEDGER = Ledger.from_config(PRESETS["gpt2-medium"])
_V, _P, _C = (
    PRESETS["gpt2-medium"].vocab_size,
    PRESETS["gpt2-medium"].n_positions,
    PRESETS["gpt2-medium"].n_embd,
)

EXERCISE = NumericExercise(
    name="embedding_total",
    chapter=2,
    task="How many parameters do the two tables of GPT-2 medium have together? Its vectors have 1,024 numbers; "
    "vocabulary and positions are those of GPT-2 small.",
    difficulty="easy",
    minutes=5,
    answer=parse(_LEDGER.subtotal("wte", "wpe")),
    wrong=(
        WrongNumber(parse(_V * _C), "that is the token table alone. Add the position table."),
        WrongNumber(parse(_P * _C), "that is the position table alone. Add the token table."),
        WrongNumber(
            parse(Ledger.from_config(PRESETS["gpt2"]).subtotal("wte", "wpe")),
            "that is GPT-2 small, with 768 numbers in a vector. Medium has 1,024.",
        ),
        WrongNumber(
            parse((_V - 1 + _P) * _C), "one token is missing: <|endoftext|> has a row, too. V is 50,257."
        ),
        WrongNumber(
            parse(2 * _V * _C + _P * _C),
            "the token table is counted twice. The output end uses the same table again, it has no second one.",
        ),
        WrongNumber(
            parse(4 * (_V + _P) * _C),
            "that is the number of bytes in float32, four for each parameter. The question asks for parameters.",
        ),
    ),
    hints=(
        "Each table has one row per entry, and all rows are equally wide.",
        "Rows of the token table: the vocabulary. Rows of the position table: the longest context.",
        "(V + P) · C, with V = 50,257, P = 1,024 and C = 1,024.",
        "(50257 + 1024) * ...",
    ),
    solution="(50257 + 1024) * 1024",
)
