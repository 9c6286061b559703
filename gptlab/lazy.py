"""Names that a package offers and its modules hold: looked up when they are first used, so that importing stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lookup(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: its name.
        home: for each public name the module of the package that holds it.
    """
    names = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; it offers {', '.join(names['__all__'])}"
            )
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        names[name] = value  # the next access does not come here
        return value

    return get, lambda: sorted({*names, *names["__all__"]})
