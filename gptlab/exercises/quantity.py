"""Numbers as people write them: "124,439,808", "38.6M", "1.854 GiB", "23.67 %"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

SCALES = {"": 0, "k": 3, "K": 3, "M": 6, "B": 9, "G": 9}
UNITS = {  # name -> (what it measures, how many of the base unit)
    **{f"{p}B": ("bytes", Decimal(1000) ** i) for i, p in enumerate(["", "k", "M", "G", "T"])},
    **{f"{p}iB": ("bytes", Decimal(1024) ** i) for i, p in enumerate(["K", "M", "G", "T"], 1)},
    "KB": ("bytes", Decimal(1000)),
    "bytes": ("bytes", Decimal(1)),
    "byte": ("bytes", Decimal(1)),
    "%": ("share", Decimal("0.01")),
    "percent": ("share", Decimal("0.01")),
}
WRITTEN = re.compile(
    r"(?P<sign>[-−+]?)(?P<number>\d[\d,_']*(?:\.\d+)?|\.\d+)(?P<exponent>[eE][-+]?\d+)?\s*(?P<unit>[A-Za-z%]*)"
)


@dataclass(frozen=True)
class Quantity:
    """A value in its base unit, what it measures, and how finely it was written.

    Attributes:
        value: the value: a plain number, bytes, or a share (1 is 100 %).
        measure: ``""``, ``"bytes"`` or ``"share"``.
        step: the size of one unit of the last written digit; 0 for an exact integer.
        unit: the unit as written.
    """

    value: Decimal
    measure: str = ""
    step: Decimal = Decimal(0)
    unit: str = ""

    def agrees_with(self, exact: Quantity) -> bool:
        """Whether ``exact``, rounded as finely as this was written, is this.

        A plain number is taken to be in the unit asked for, or in its base unit. A rounded answer needs three
        significant digits, unless it is exact, as ``"36 MiB"`` may be. Where ``exact`` is rounded itself, as
        ``"10.825"`` is, more digits are not compared.
        """
        if not self.measure and exact.unit in UNITS and UNITS[exact.unit][1] != 1:
            unit = UNITS[exact.unit][1]
            if Quantity(self.value * unit, exact.measure, self.step * unit).agrees_with(exact):
                return True
        if self.measure and self.measure != exact.measure and "bytes" in (self.measure, exact.measure):
            return False  # a size is neither a number of parameters nor a share
        rounded = self.step and self.value and self.value != exact.value
        if rounded and abs(self.value) < 100 * self.step:
            return False
        return abs(self.value - exact.value) <= max(self.step, exact.step) / 2


def parse(answer: Any) -> Quantity:
    """Read a number, or a string such as ``"1.854 GiB"``, ``"38.6M"`` or ``"23.67 %"``.

    Raises:
        ValueError: it cannot be read; the message says how to write it.
    """
    if isinstance(answer, Quantity):
        return answer
    if getattr(answer, "ndim", None) == 0:  # one number of NumPy's or PyTorch's
        answer = answer.item()
    text = str(answer).strip() if not isinstance(answer, float) else repr(answer)
    match = WRITTEN.fullmatch(text)
    if isinstance(answer, bool) or not match:
        raise ValueError(
            f"cannot read {answer!r} as a number: write it like 124439808, '38.6M' or '1.854 GiB'"
        )
    digits = re.sub(r"[,_']", "", match["number"]) + (match["exponent"] or "")
    value, unit = Decimal(digits), match["unit"]
    if match["sign"] in ("-", "−"):
        value = -value
    exponent = int(value.as_tuple().exponent)
    if unit in UNITS:
        measure, factor = UNITS[unit]
    elif unit in SCALES:
        measure, factor = "", Decimal(10) ** SCALES[unit]
    else:
        raise ValueError(
            f"cannot read the unit {unit!r} of {answer!r}: there are {', '.join(UNITS)}, and k, M, G"
        )
    # 5.25e7 is rounded as 52.5M is.
    rounded = exponent < 0 or factor > 1 or bool(match["exponent"])
    return Quantity(
        value * factor, measure, Decimal(10) ** exponent * factor if rounded else Decimal(0), unit
    )


def in_bytes(size: int | str) -> Quantity:
    """A size such as 497759232 or ``"1.854 GB"``; an answer without a unit is compared with its bytes."""
    return replace(parse(f"{size} B" if isinstance(size, int) else size), unit="B")
