"""A step's memory over time: how many bytes are alive after each operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Moment(NamedTuple):
    """What is alive after an operation."""

    phase: str
    """``forward``, ``backward`` or ``optimizer``; instruments name others for what surrounds them."""
    operation: str
    """The operation's name in PyTorch (ATen)."""
    live: int
    """Bytes of all tensors. Two views of one storage count once."""
    activations: int = 0
    """Of these, bytes kept for the backward pass. A replay knows them, an instrument does not."""
    gradients: int = 0
    """Of these, bytes of finished gradients of parameters, in a replay."""


@dataclass
class Timeline:
    """The moments of a step in their order."""

    moments: list[Moment] = field(default_factory=list)

    @property
    def peak(self) -> Moment:
        """The moment with most bytes alive; of several equal ones the first."""
        return max(self.moments, key=lambda moment: moment.live)

    @property
    def phases(self) -> dict[str, int]:
        """The most bytes alive in each phase."""
        most: dict[str, int] = {}
        for moment in self.moments:
            most[moment.phase] = max(most.get(moment.phase, 0), moment.live)
        return most
