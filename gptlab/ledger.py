"""Where the parameters sit, counted twice: from the config by formula, and from a live model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from gptlab.config import GPTConfig

# What a tensor belongs to, by a piece of its name.
_PARTS = {
    ".wte.": "token table",
    ".wpe.": "position table",
    ".attn.": "attention",
    ".mlp.": "MLP",
    ".ln_": "LayerNorms",
    ".lm_head.": "head",
}


@dataclass(frozen=True)
class Row:
    """One tensor of parameters, under the name that the checkpoint gives it."""

    name: str
    shape: tuple[int, ...]
    formula: str = field(default="", compare=False)
    """How the shape follows from the config, for example ``"V × C"``; empty when read from a model."""

    @property
    def parameters(self) -> int:
        """The number of values in the tensor."""
        return prod(self.shape)


@dataclass(frozen=True)
class Ledger:
    """Every parameter tensor of a GPT-2, once. A tied head is the token table and has no row of its own.

    Two ledgers are equal when their tensors have the same names and shapes, so
    ``Ledger.from_config(config) == Ledger.from_model(GPT(config))`` compares the two derivations.
    """

    rows: tuple[Row, ...]
    tied: bool

    @classmethod
    def from_config(cls, config: GPTConfig) -> Ledger:
        """Count by formula, with no model and no PyTorch."""
        V, P, C = config.vocab_size, config.n_positions, config.n_embd
        rows = [Row("wte.weight", (V, C), "V × C"), Row("wpe.weight", (P, C), "P × C")]
        for layer in range(config.n_layer):
            rows += _block_rows(f"h.{layer}", C)
        rows += _layer_norm_rows("ln_f", C)
        if not config.tie_word_embeddings:
            rows.append(Row("lm_head.weight", (V, C), "V × C"))
        return cls(tuple(rows), tied=config.tie_word_embeddings)

    @classmethod
    def from_model(cls, model: Any) -> Ledger:
        """Count the tensors that a model holds; one that it holds under two names counts once.

        Args:
            model: a :class:`gptlab.model.GPT`, on any device, the ``meta`` device included.

        Raises:
            TypeError: the model's tables are no parameters, as those of an int8 model.
        """
        rows = tuple(Row(name, tuple(p.shape)) for name, p in model.named_parameters())
        if not any(row.name == "wte.weight" for row in rows):
            raise TypeError(
                f"{type(model).__name__} has no parameter wte.weight: its matrices are integers, which count as "
                "buffers. Count the model that it was made from"
            )
        return cls(rows, tied=model.lm_head.weight is model.wte.weight)

    @property
    def total(self) -> int:
        """The number of parameters of the model."""
        return sum(row.parameters for row in self.rows)

    def subtotal(self, *prefixes: str) -> int:
        """The parameters of the tensors whose names start with one of ``prefixes``, such as ``"h.0."``.

        Raises:
            ValueError: no tensor has such a name.
        """
        chosen = [row for row in self.rows if row.name.startswith(prefixes)]
        if not chosen:
            raise ValueError(
                f"no tensor's name starts with {prefixes}; names look like {self.rows[0].name!r}"
            )
        return sum(row.parameters for row in chosen)

    def parts(self) -> dict[str, int]:
        """The total divided among the kinds of layer, in the model's order; a kind that is absent has no entry.

        >>> Ledger.from_config(GPTConfig(vocab_size=6, n_positions=5, n_embd=4, n_layer=1, n_head=2)).parts()
        {'token table': 24, 'position table': 20, 'attention': 80, 'MLP': 148, 'LayerNorms': 24}
        """
        counts = dict.fromkeys([*_PARTS.values(), "other"], 0)
        for row in self.rows:
            part = next((part for piece, part in _PARTS.items() if piece in f".{row.name}"), "other")
            counts[part] += row.parameters
        return {part: count for part, count in counts.items() if count}

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


def _block_rows(name: str, C: int) -> list[Row]:
    return [
        *_layer_norm_rows(f"{name}.ln_1", C),
        *_linear_rows(f"{name}.attn.c_attn", 3, 1, C),
        *_linear_rows(f"{name}.attn.c_proj", 1, 1, C),
        *_layer_norm_rows(f"{name}.ln_2", C),
        *_linear_rows(f"{name}.mlp.c_fc", 4, 1, C),
        *_linear_rows(f"{name}.mlp.c_proj", 1, 4, C),
    ]


def _layer_norm_rows(name: str, C: int) -> list[Row]:
    return [Row(f"{name}.weight", (C,), "C"), Row(f"{name}.bias", (C,), "C")]


def _linear_rows(name: str, outputs: int, inputs: int, C: int) -> list[Row]:
    """A linear layer from ``inputs × C`` features to ``outputs × C``; its weight is (outputs, inputs)."""
    times_C = {1: "C", 3: "3C", 4: "4C"}
    return [
        Row(f"{name}.weight", (outputs * C, inputs * C), f"{times_C[outputs]} × {times_C[inputs]}"),
        Row(f"{name}.bias", (outputs * C,), times_C[outputs]),
    ]
