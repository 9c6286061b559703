"""What right values do not show: changed inputs, chance, gradients that go nowhere, numbers too large."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from gptlab.exercises import compare
from gptlab.exercises.exercise import Diagnosis


def leaves_its_inputs_alone(function: Callable[..., Any], case: tuple[Any, ...]) -> Diagnosis | None:
    """[M] The arguments are the same afterwards."""
    before = copy.deepcopy(case)
    function(*case)
    for i, (now, then) in enumerate(zip(case, before, strict=True)):
        if not compare.same(now, then):
            was, now_is = compare.short(then), compare.short(now)
            return Diagnosis(
                "mutates",
                "the values are right, but the function changes its input. Whoever called it finds the data "
                "altered. Build a new object, or copy first; with tensors, a + b, not a += b.",
                f"argument {i + 1} was {was} and is now {now_is}"
                if was != now_is and not compare.is_tensor(now)
                else f"argument {i + 1} has other values than before",
            )
    return None


def gives_the_same_twice(function: Callable[..., Any], case: tuple[Any, ...]) -> Diagnosis | None:
    """[R] Called again, it gives the same."""
    first = compare.first_tensor(function(*copy.deepcopy(case)))
    second = compare.first_tensor(function(*copy.deepcopy(case)))
    # Both in plain form: a Counter is a dict here, an array a list.
    if compare.same(compare.as_expected_kind(second, first), compare.as_expected_kind(first, first)):
        return None
    return Diagnosis(
        "random",
        "called twice with the same input, it gives two answers. Look for randomness, dropout say, or for "
        "something that it keeps from one call to the next.",
    )


def gradient_reaches(*names: str) -> Callable[..., Diagnosis | None]:
    """[G] A gradient of the output reaches these arguments, named in the order of the case, ``""`` for others.

    Of an argument that is a dict of tensors, or a module, it reaches each.
    """

    def probe(function: Callable[..., Any], case: tuple[Any, ...]) -> Diagnosis | None:
        wanted: dict[str, Any] = {}
        for argument, name in zip(case, names, strict=True):
            if name and isinstance(argument, dict):
                wanted |= {f"{name}[{key!r}]": tensor for key, tensor in argument.items()}
            elif name and compare.is_module(argument):
                wanted |= {f"{name}.{key}": tensor for key, tensor in argument.named_parameters()}
            elif name:
                wanted[name] = argument
        for tensor in wanted.values():
            tensor.requires_grad_()
        evidence = ""
        try:
            output = compare.first_tensor(function(*case))
            if compare.is_tensor(output) and output.requires_grad:
                output.double().square().sum().backward()
        except RuntimeError as error:  # NumPy, for example, refuses a tensor that records gradients
            evidence = str(error)
        for name, tensor in wanted.items():
            if tensor.grad is None or not tensor.grad.any():
                return Diagnosis(
                    "no-gradient",
                    f"the values are right, but no gradient reaches {name}, so it could never learn. Look for "
                    f"detach(), .data, .item(), .tolist(), .numpy(), torch.tensor(...) or torch.no_grad() on the way.",
                    evidence,
                )
        return None

    return probe


def holds_in_float16(function: Callable[..., Any], case: tuple[Any, ...]) -> Diagnosis | None:
    """[D] In float16, whose largest number is 65,504, nothing overflows."""
    try:
        output = compare.first_tensor(function(*(argument.half() for argument in case)))
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        evidence = f"RuntimeError: {error}"
    else:
        if not compare.is_tensor(output) or output.isfinite().all():
            return None
        evidence = f"{int((~output.isfinite()).sum())} of {output.numel()} values are NaN or infinite"
    return Diagnosis(
        "overflows",
        "the values are right in float32, but not in float16, whose largest number is 65,504: a fill such as -1e9 "
        "has no place there. Minus infinity exists in every floating-point type: float('-inf').",
        evidence,
    )
