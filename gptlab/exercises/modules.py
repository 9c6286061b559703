"""Exercises whose answer is a class: build it, or say what kind of thing was given instead."""

from __future__ import annotations

import inspect
from typing import Any

from gptlab.exercises.exercise import Misbuilt


def build(attempt: Any, name: str, *arguments: Any) -> Any:
    """The learner's class called with these arguments: a module.

    Raises:
        Misbuilt: it is no class, or one that makes no ``nn.Module``.
    """
    import torch

    if not inspect.isclass(attempt):
        raise Misbuilt(
            "not-a-class", f"{name} should be a class, not an object of it: pass the class itself."
        )
    make: Any = attempt
    module = make(*arguments)
    if not isinstance(module, torch.nn.Module):
        raise Misbuilt("not-a-module", f"the class does not inherit from nn.Module: class {name}(nn.Module).")
    return module
