"""Chapter 7: the share that tying saves."""

from __future__ import annotations

from decimal import Decimal

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import Quantity, parse
from gptlab.ledger import Ledger

_TIED = Ledger.from_config(PRESETS["gpt2"]).total
_TABLE = Ledger.from_config(PRESETS["gpt2"]).subtotal("wte")
_BLOCKS = Ledger.from_config(PRESETS["gpt2"]).subtotal("h.")


def _percent(part: int, whole: int) -> Quantity:
    """A share, known to a hundredth of a percent."""
    return Quantity(Decimal(part) / Decimal(whole), "share", Decimal("0.0001"), "%")


EXERCISE = NumericExercise(
    name="tying_saving",
    chapter=7,
    task="An untied GPT-2 small has a head of its own. What percentage of its parameters does tying save?",
    difficulty="easy",
    minutes=5,
    answer=_percent(_TABLE, _TIED + _TABLE),
    wrong=(
        WrongNumber(
            _percent(_TABLE, _TIED),
            "that is the table's part of the tied model. What is saved is a part of the untied one, which is larger "
            "by the head.",
        ),
        WrongNumber(
            parse("50.00 %"),
            "that is the part of the two tables: two become one. The blocks are parameters, too.",
        ),
        WrongNumber(
            _percent(2 * _TABLE, _TIED + _TABLE),
            "that is the part of both tables in the untied model. One of the two stays.",
        ),
        WrongNumber(
            _percent(2 * _TABLE, _TIED),
            "those are both tables, in percent of the tied model, which has only one. One table is saved, and the "
            "untied model had it.",
        ),
        WrongNumber(
            _percent(_TIED, _TIED + _TABLE), "that is what is left. The question asks for what is saved."
        ),
        WrongNumber(
            _percent(_TABLE, _BLOCKS), "that is the table in percent of the blocks. The tables count as well."
        ),
    ),
    hints=(
        "Saved is one table. Of which total is it a part?",
        "The untied total is the tied one, 124,439,808, and one table more.",
        "V · C / (124,439,808 + V · C), with V = 50,257 and C = 768.",
        "100 * 50257 * 768 / (...)",
    ),
    solution="100 * 50257 * 768 / (124_439_808 + 50257 * 768)",
)
