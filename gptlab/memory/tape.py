"""Tensors without values: sizes that are born and freed as PyTorch's are, and a tape that plays the backward pass.

It is autograd with everything left out but memory. An operation allocates its output and saves what its derivative
needs; going back, each one allocates the gradients of its inputs and lets go of what it had saved. When something is
freed is not written down anywhere: as in PyTorch, it is freed when nothing refers to it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gptlab.memory.timeline import Moment, Timeline


class Memory:
    """The meter: what is alive, and what was alive after each operation."""

    def __init__(self) -> None:
        self.live = self.activations = self.gradients = 0
        self.phase, self.timeline = "", Timeline()

    def allocate(self, operation: str, size: int) -> Bytes:
        """The result of an operation."""
        result = Bytes(self, size)
        self.note(operation)
        return result

    def allocate_all(self, operation: str, *sizes: int) -> list[Bytes]:
        """The results of one operation."""
        results = [Bytes(self, size) for size in sizes]
        self.note(operation)
        return results

    def note(self, operation: str) -> None:
        """Write down what is alive now."""
        moment = Moment(self.phase, operation, self.live, self.activations, self.gradients)
        self.timeline.moments.append(moment)


class Bytes:
    """A tensor's storage, of which only the size is known. It counts as alive until Python drops it."""

    __slots__ = ("kind", "memory", "size", "view")

    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.size, self.kind, self.view = memory, size, "", False
        memory.live += size

    def transposed(self) -> Bytes:
        """The same storage; PyTorch calls the tensor a view of it."""
        self.view = True
        return self

    def plus(self, other: Bytes) -> Bytes:
        """The sum of two gradients: in this one's place, unless it is a view."""
        if self.view:
            return self.memory.allocate("add", other.size)
        self.memory.note("add_")
        return self

    def keep(self, kind: str) -> None:
        """Count it among the activations or the gradients from now on."""
        if not self.kind:
            self.kind = kind
            setattr(self.memory, kind, getattr(self.memory, kind) + self.size)

    def __del__(self) -> None:
        self.memory.live -= self.size
        if self.kind:
            setattr(self.memory, self.kind, getattr(self.memory, self.kind) - self.size)


class Receiver:
    """What a gradient can be given to."""

    def receive(self, gradient: Bytes) -> None:
        raise NotImplementedError


class Parameter(Receiver):
    """A weight: the gradients of its uses are summed, and the sum is kept until the optimizer's step."""

    def __init__(self, elements: int, uses: int = 1) -> None:
        self.elements, self.uses = elements, uses
        self.arrived = 0
        self.sum: Bytes | None = None
        self.gradient: Bytes | None = None

    def receive(self, gradient: Bytes) -> None:
        self.sum = gradient if self.sum is None else self.sum.plus(gradient)
        self.arrived += 1
        if self.arrived == self.uses:
            # The first micro-batch's gradient is taken as it is; later ones are added to it in place.
            self.gradient = self.gradient or self.sum
            self.gradient.keep("gradients")
            self.arrived, self.sum = 0, None


Gradients = list[tuple[Receiver, Bytes]]


@dataclass(eq=False)
class Node(Receiver):
    """An operation on the tape: how to go back through it, and what was saved for that."""

    tape: Tape
    backward: Callable[[list[Bytes], list[Bytes]], Gradients]
    """From what was saved and the output's gradient, to the inputs' gradients. It may empty either list early."""
    saved: list[Bytes] = field(default_factory=list)
    segment: Segment | None = None
    gradient: Bytes | None = None

    def save(self, *tensors: Bytes) -> None:
        """Keep tensors for the way back."""
        self.tape.save(self, tensors)

    def keep(self, tensors: Iterable[Bytes]) -> None:
        for tensor in tensors:
            tensor.keep("activations")
            self.saved.append(tensor)

    def receive(self, gradient: Bytes) -> None:
        self.gradient = gradient if self.gradient is None else self.gradient.plus(gradient)


class Segment:
    """A part of the forward pass that keeps only its input, and is computed again in the backward pass.

    The nodes that save something hold it, and with it the input, until the last of them has played back.
    """

    def __init__(self, again: Callable[[], object]) -> None:
        self.again = again
        self.savers: list[Node] = []
        """Those nodes, in the order in which they save; none, when it has been computed again."""


class _EverythingIsSaved(Exception):
    pass


class Tape:
    """The operations of a forward pass, in order."""

    def __init__(self, memory: Memory, recording: bool = True) -> None:
        self.memory, self.recording = memory, recording
        self.nodes: list[Node] = []
        self._segment: Segment | None = None
        self._running_again = False

    def record(self, backward: Callable[[list[Bytes], list[Bytes]], Gradients], *saved: Bytes) -> Node:
        """Put an operation on the tape."""
        node = Node(self, backward)
        if not self._running_again:
            self.nodes.append(node)
        if saved:
            node.save(*saved)
        return node

    def save(self, node: Node, tensors: tuple[Bytes, ...]) -> None:
        """Keep tensors; of a segment nothing is kept the first time, and the second time everything."""
        if not self.recording:
            return
        if self._running_again:
            assert self._segment is not None
            keeper = self._segment.savers.pop(0)
            keeper.keep(tensors)
            if not self._segment.savers:
                raise _EverythingIsSaved
        elif self._segment is not None:
            self._segment.savers.append(node)
            node.segment = self._segment
        else:
            node.keep(tensors)

    def checkpoint(
        self, given: Bytes, run: Callable[[], Value], again: Callable[[], object] | None = None
    ) -> Value:
        """Run a part of the forward pass as a segment.

        Args:
            given: the part's input, which is kept.
            run: the part.
            again: how it runs the second time, if otherwise.
        """
        given.keep("activations")
        self._segment = Segment(again or run)
        try:
            return run()
        finally:
            self._segment = None

    def play_back(self, root: Node, gradient: Bytes) -> None:
        """The backward pass: every operation, the last one first."""
        root.receive(gradient)
        while self.nodes:
            node = self.nodes.pop()
            if node.segment is not None and node.segment.savers:
                self._run_again(node.segment)
            gradients = [node.gradient] if node.gradient is not None else []
            node.gradient = None
            saved, node.saved = node.saved, []
            results = node.backward(saved, gradients)
            saved.clear()
            gradients.clear()
            node.segment = None
            while results:
                receiver, result = results.pop(0)
                receiver.receive(result)
                del result

    def _run_again(self, segment: Segment) -> None:
        self._segment, self._running_again = segment, True
        try:
            segment.again()
        except _EverythingIsSaved:
            pass
        finally:
            self._segment, self._running_again = None, False


@dataclass
class Value:
    """A tensor in the forward pass: how many elements, of how many bytes each, and the operation it came from."""

    elements: int
    width: int
    data: Bytes
    node: Node
