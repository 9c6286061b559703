"""A language model that is quick enough to be run hundreds of times in a check."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from gptlab.config import GPTConfig


class Toy(nn.Module):
    """One attention without weights of its own. Tokens, their positions and all that came before count in it."""

    def __init__(self, vocab_size: int, n_positions: int, n_embd: int, generator: Generator) -> None:
        super().__init__()
        self.config = GPTConfig(
            vocab_size=vocab_size, n_positions=n_positions, n_embd=n_embd, n_layer=1, n_head=1
        )

        def normal(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator))

        self.wte, self.wpe = normal(vocab_size, n_embd), normal(n_positions, n_embd)
        self.head = normal(n_embd, vocab_size)
        self.read = 0
        """How many positions have been computed."""

    def __repr__(self) -> str:
        return "model"

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits (B, T, V) for ids (B, T), as :class:`gptlab.model.GPT` gives them."""
        return self.step(input_ids, 0, None)[0]

    def step(self, new: Tensor, start: int, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Read ids (B, T) that stand at positions ``start`` and up, given what was read before, (B, S - T, C).

        Returns:
            Their logits (B, T, V), and what has been read now, (B, S, C): key and value are one vector here.
        """
        T, P = new.shape[1], self.config.n_positions
        if not 0 <= start <= P - T:
            raise ValueError(f"positions {start} to {start + T - 1} are asked for: there are 0 to {P - 1}")
        self.read += T
        x = self.wte[new] + self.wpe[start : start + T]
        seen = x if past is None else torch.cat([past, x], dim=1)
        S = seen.shape[1]
        future = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)
        scores = x @ seen.mT / self.config.n_embd  # a soft attention: the past has a say
        y = scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ seen
        return (x + 3 * y).tanh() @ self.head, seen


class StepwiseToy(Toy):
    """The same model, told at each call where its tokens stand and what it has read before."""

    def forward(  # type: ignore[override]
        self, new: Tensor, start: int, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`Toy.step`."""
        return self.step(new, start, past)
