"""Numbers that depend on the machine, printed so that they read the same on every machine.

A float computed on a GPU, or with another number of threads, differs in its last digits. The book
stores one value, and this helper prints it only if the computed one agrees.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import SupportsFloat


def report(name: str, value: SupportsFloat, stored: str, tolerance: float | None = None) -> None:
    """Print ``name: stored``, having checked that ``value`` is ``stored`` up to a stated tolerance.

    Args:
        name: what the number is.
        value: what this machine computed: a float, or a tensor with one element.
        stored: the number as the text gives it, with exactly the digits that may be relied on: ``"10.97"``.
        tolerance: how far ``value`` may be from ``stored``; one unit of the last stored digit unless
            given, and never more.

    Raises:
        ValueError: the numbers disagree, or ``stored`` or ``tolerance`` cannot be used.

    >>> report("pi", 3.14159, "3.14")
    pi: 3.14
    """
    try:
        expected = Decimal(stored.replace(",", ""))
    except (InvalidOperation, AttributeError):
        raise ValueError(f"stored={stored!r} must be a decimal number written as a string") from None
    if not expected.is_finite():
        raise ValueError(f"stored={stored!r} must be finite")
    last_digit = Decimal(1).scaleb(int(expected.as_tuple().exponent))
    allowed = last_digit if tolerance is None else Decimal(str(float(tolerance)))
    if not allowed.is_finite() or not 0 < allowed <= last_digit:
        raise ValueError(
            f"tolerance={tolerance} must be positive and at most {last_digit}, one unit of the last digit "
            f"of {stored}: write fewer digits instead"
        )
    computed = float(value)
    if not math.isfinite(computed) or abs(Decimal(computed) - expected) > allowed:
        raise ValueError(
            f"{name}: this machine computes {computed:.8g}, the text says {stored} (± {allowed})"
        )
    print(f"{name}: {stored}")
