"""Is an answer the expected one? And if not, how does it differ?"""

from __future__ import annotations

import math
import sys
from typing import Any

TOLERANCE = 1e-5
"""Of the largest value of the reference: float32 on the CPU, whatever the order of the additions."""


def as_expected_kind(value: Any, expected: Any) -> Any:
    """Bring an answer into the form of the expected one, where that changes no number.

    NumPy arrays and nested lists become tensors, NumPy integers Python's, a whole number an int or a float, whichever
    is expected, a tuple that holds the output and a cache its first element, and a tensor on another device or of
    another precision is compared on the CPU.
    """
    if is_tensor(expected):
        import torch

        if isinstance(value, tuple) and value and is_tensor(value[0]):
            value = value[0]
        if not is_tensor(value):
            try:
                value = torch.as_tensor(value)
            except (TypeError, ValueError, RuntimeError):
                return value
        return value.detach().cpu()
    if is_tensor(value):
        value = value.detach()
    if is_tensor(value) or type(value).__module__ == "numpy":
        value = value.tolist()
    if type(expected) is int and type(value) is float and value.is_integer():
        return int(value)
    if type(expected) is float and type(value) is int:
        return float(value)
    if isinstance(expected, list) and isinstance(value, tuple):
        return list(value)
    if isinstance(expected, dict) and isinstance(value, dict):
        # A Counter or a defaultdict is fine.
        return {key: as_expected_kind(item, expected.get(key, item)) for key, item in value.items()}
    return value


def same(value: Any, expected: Any) -> bool:
    """Whether two answers agree: exactly, or for floating-point numbers and tensors within the tolerance.

    An infinite value or NaN agrees with one of its kind, so that a mistake that makes NaN is recognised.
    """
    value = as_expected_kind(value, expected)
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(same(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list | tuple):
        return (
            type(value) is type(expected)
            and len(value) == len(expected)
            and all(same(item, wanted) for item, wanted in zip(value, expected, strict=True))
        )
    if is_module(expected):
        return is_module(value) and same(dict(value.state_dict()), dict(expected.state_dict()))
    if isinstance(expected, float) and isinstance(value, float):
        return math.isclose(value, expected, rel_tol=TOLERANCE)
    if not is_tensor(expected):
        return type(value) is type(expected) and bool(value == expected)
    if not is_tensor(value) or value.shape != expected.shape:
        return False
    if value.is_floating_point() != expected.is_floating_point():
        return False
    if not expected.is_floating_point():
        return bool((value == expected).all())
    value, expected = value.double(), expected.detach().double()
    finite = expected[expected.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    atol = TOLERANCE * max(largest, 1e-30)
    return bool(value.isclose(expected, rtol=0, atol=atol, equal_nan=True).all())


def complaint(value: Any, expected: Any) -> str | None:
    """What is wrong with an answer before its values matter: type, shape, kind of number, NaN."""
    value = as_expected_kind(value, expected)
    if not is_tensor(expected):
        if type(value) is not type(expected):
            return f"it returns {a_kind(value)}, expected {a_kind(expected)}"
        return None
    if not is_tensor(value):
        return f"it returns {a_kind(value)}, expected a tensor of shape {tuple(expected.shape)}"
    if value.shape != expected.shape:
        return f"its shape is {tuple(value.shape)}, expected {tuple(expected.shape)}"
    if value.is_floating_point() != expected.is_floating_point():
        return f"its type is {value.dtype}, expected {expected.dtype}"
    if value.is_floating_point() and not bool(value.isfinite().all()):
        bad = int((~value.isfinite()).sum())
        return f"{bad} of its {value.numel()} values are NaN or infinite"
    return None


def difference(value: Any, expected: Any) -> str:
    """One sentence on how an answer of the right type and shape differs: the structure, if there is one."""
    value = as_expected_kind(value, expected)
    if is_tensor(expected):
        return _tensor_difference(value.double(), expected.detach().double())
    if isinstance(expected, list):
        return _list_difference(value, expected)
    if isinstance(expected, dict):
        return _dict_difference(value, expected)
    return f"got {short(value)}, expected {short(expected)}"


def _tensor_difference(value: Any, expected: Any) -> str:
    import torch

    if not expected.ndim:
        return f"got {float(value):.5g}, expected {float(expected):.5g}"
    scale = max(float(expected.abs().max()), 1e-30)

    def close(a: Any, b: Any) -> bool:
        return bool((a - b).abs().max() <= TOLERANCE * scale)

    ratio = (value * expected).sum() / (expected * expected).sum()  # the best one, by least squares
    if close(value, expected * ratio) and not close(value, torch.zeros_like(value)):
        return f"every value is {float(ratio):.4g} times the expected one"
    offset = (value - expected).mean()
    if close(value, expected + offset):
        return f"every value is {float(offset):+.4g} from the expected one"
    if expected.ndim >= 2 and value.shape[-1] == value.shape[-2] and close(value.mT, expected):
        return "the last two dimensions are exchanged"
    if close(value.flatten().sort().values, expected.flatten().sort().values):
        return "the right values stand in other places"
    wrong = (value - expected).abs() > TOLERANCE * scale
    first = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} values are wrong, the first at {list(first)}: "
        f"got {float(value[first]):.5g}, expected {float(expected[first]):.5g}"
    )


def _list_difference(value: list[Any], expected: list[Any]) -> str:
    if sorted(map(repr, value)) == sorted(map(repr, expected)):
        return f"the right elements stand in another order: got {short(value)}, expected {short(expected)}"
    return f"got {short(value)}, expected {short(expected)}"


def _dict_difference(value: dict[Any, Any], expected: dict[Any, Any]) -> str:
    for key in expected:
        if key not in value:
            return f"{short(key)} is missing, expected {short(key)}: {short(expected[key])}"
        if not same(value[key], expected[key]):
            if is_tensor(expected[key]):
                fact = complaint(value[key], expected[key]) or difference(value[key], expected[key])
                return f"{short(key)}: {fact}"
            return f"{short(key)} has {short(value[key])}, expected {short(expected[key])}"
    extra = next(key for key in value if key not in expected)
    return f"{short(extra)} should not be there"


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: Any) -> bool:
    """Whether ``value`` is a PyTorch module, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_named(value: Any) -> bool:
    """Whether ``value`` is a dict of things with names, such as a state dict: too much to be shown whole."""
    return isinstance(value, dict) and any(isinstance(key, str) for key in value)


def a_kind(value: Any) -> str:
    """The type of a value in words."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def short(value: Any, limit: int = 60) -> str:
    """A value on one line: numbers and texts as they are, a tensor by its shape, many tensors by their number."""
    if is_tensor(value):
        if value.numel() <= 8:
            return f"tensor({_digits(value.tolist())})"
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, dict) and any(map(is_tensor, value.values())):
        return f"{len(value)} tensors"
    if isinstance(value, list) and any(is_tensor(first_tensor(item)) for item in value):
        return f"a list of {len(value)}"
    if is_module(value) and "\n" in repr(value):
        return f"{type(value).__name__}(…)"
    text = f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _digits(value: Any) -> Any:
    """Nested lists with four significant digits of each number."""
    if isinstance(value, list):
        return [_digits(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def first_tensor(value: Any) -> Any:
    """The output itself, where a function returns it together with a cache."""
    return value[0] if isinstance(value, tuple) and value and is_tensor(value[0]) else value
