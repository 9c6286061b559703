"""Names of a package that are imported when they are first used, so that importing the package is quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazily(package: str, homes: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package's ``__init__`` assigns to ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: its name; its ``__all__`` lists the names of ``homes``.
        homes: for each public name the module of the package in which it stands.
    """

    def get(name: str) -> Any:
        module = sys.modules[package]
        if name not in homes:
            offered = ", ".join(module.__all__)
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {offered}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(module, name, value)  # the next access does not come here
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
