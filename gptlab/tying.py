"""Weight tying: the output head and the token table are one Parameter, not two equal ones.

The test is identity, ``model.lm_head.weight is model.wte.weight``. Equal values prove nothing: a copy is
equal until the first step. Source: Press and Wolf 2017; Inan, Khosravi and Socher 2017.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from gptlab.devices import has_values

if TYPE_CHECKING:
    from gptlab.model import GPT


def is_tied(model: GPT) -> bool:
    """Whether head and token table are the same Parameter."""
    return getattr(model.lm_head, "weight", None) is model.wte.weight


def tie(model: GPT) -> None:
    """Make the token table the head, in place. The head's own weights are dropped.

    Raises:
        ValueError: the head has another shape than the token table, or a bias.
    """
    if model.lm_head.weight.shape != model.wte.weight.shape:
        raise ValueError(
            f"a head of shape {tuple(model.lm_head.weight.shape)} cannot be tied to a token table of shape "
            f"{tuple(model.wte.weight.shape)}: make a head nn.Linear(n_embd, vocab_size, bias=False)"
        )
    if model.lm_head.bias is not None:
        raise ValueError(
            "the head has a bias, GPT-2's has none: make it nn.Linear(n_embd, vocab_size, bias=False)"
        )
    model.lm_head.weight = model.wte.weight
    model.config = replace(model.config, tie_word_embeddings=True)


def untie(model: GPT) -> None:
    """Give the head a Parameter of its own, in place, equal to the token table for now."""
    if is_tied(model):
        model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    model.config = replace(model.config, tie_word_embeddings=False)


def with_tied_head(state: dict[str, Tensor], prefix: str = "") -> None:
    """Make head and token table one in a tied model's state dict, in place, whichever of the two is there.

    A tied pair may be saved under one name or both: safetensors' ``save_model``, for one, keeps the head's.

    Raises:
        ValueError: the state dict has a head that differs from its token table.
    """
    head, table = f"{prefix}lm_head.weight", f"{prefix}wte.weight"
    if head in state and table in state and not same_values(state[head], state[table]):
        raise ValueError(
            "lm_head.weight differs from wte.weight, so these are the weights of an untied model: load them "
            "into one with tie_word_embeddings=False"
        )
    for name, other in ((table, head), (head, table)):
        if name in state:
            state[other] = state[name]


def same_values(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in shape, type and every value; a NaN agrees with a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a is b or not has_values(a) or not has_values(b):
        return True
    b = b.to(a.device)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())
