"""The operations of the replayed model that all steps share: what each allocates and saves, and what its derivative does.

What PyTorch's kernels do on the CPU is written down here as it was measured; tests hold it against the real thing.
"""

from __future__ import annotations

from functools import partial

from gptlab.ledger import Ledger
from gptlab.memory.step import TrainingStep
from gptlab.memory.tape import Bytes, Gradients, Memory, Node, Parameter, Receiver, Tape, Value


class Operations:
    """The sizes of a step, its parameters, and the layers between which its tensors pass."""

    def __init__(self, step: TrainingStep, training: bool = True) -> None:
        self.step, self.config = step, step.config
        half = step.precision in ("bf16", "master")
        self.stream = 2 if half else 4  # bytes of a number in the residual stream, and in a weight
        self.product = 4 if step.precision == "fp32" else 2  # bytes of a number in a matrix product
        self.B, self.T = step.rows, step.context
        self.N, self.C = self.B * self.T, self.config.n_embd
        self.memory = Memory()
        self.tape = Tape(self.memory, training)
        self.casts: dict[str, Bytes] = {}  # the bfloat16 copies that autocast keeps
        tied = self.config.tie_word_embeddings
        self.parameters = {
            row.name: Parameter(row.parameters, 2 if tied and row.name == "wte.weight" else 1)
            for row in Ledger.from_config(self.config)
        }
        self.head = self.parameters["wte.weight" if tied else "lm_head.weight"]

    def linear(self, x: Value, name: str) -> Value:
        """A matrix product and a bias. Under autocast weights and input are copied to bfloat16 first."""
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        inputs, outputs = weight.elements // bias.elements, bias.elements
        rows = x.elements // inputs
        allocate, width = self.memory.allocate, self.product
        bias_to, _ = self.cast_weight(bias, f"{name}.bias")
        weight_to, copy = self.cast_weight(weight, f"{name}.weight")
        x = self.cast(x)

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            dx = allocate("mm", width * x_elements)
            dW = allocate("mm", width * weight.elements)
            if again:
                saved.clear()  # what was computed again goes at once
            db = allocate("sum", width * bias.elements)
            return [(x_node, dx), (weight_to, dW), (bias_to, db)]

        x_node, x_elements, again = x.node, x.elements, self.step.checkpointing
        node = self.tape.record(backward, x.data, *copy)
        return Value(rows * outputs, width, allocate("addmm", width * rows * outputs), node)

    def cast_weight(
        self, weight: Parameter, name: str | None, view: Node | None = None
    ) -> tuple[Receiver, list[Bytes]]:
        """What the weight's gradient goes to, and its bfloat16 copy if there is one. Autocast makes one a pass."""
        if self.step.precision != "amp":
            return view or weight, []
        copy = self.casts.get(name) if name else None
        if copy is None:
            copy = self.memory.allocate("_to_copy", 2 * weight.elements)
        if name:
            self.casts[name] = copy
        return self.tape.record(partial(self.cast_back, view or weight, 4 * weight.elements)), [copy]

    def cast(self, x: Value) -> Value:
        """The input of a matrix product, in its type."""
        if x.width == self.product:
            return x
        node = self.tape.record(partial(self.cast_back, x.node, x.width * x.elements))
        copy = self.memory.allocate("_to_copy", self.product * x.elements)
        return Value(x.elements, self.product, copy, node)

    def cast_back(self, to: Receiver, size: int, saved: list[Bytes], g: list[Bytes]) -> Gradients:
        return [(to, self.memory.allocate("_to_copy", size))]

    def layer_norm(self, x: Value, name: str) -> Value:
        gain, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        allocate, size, width = self.memory.allocate_all, x.data.size, x.width

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            results = allocate("native_layer_norm_backward", size, width * self.C, width * self.C)
            return list(zip((x_node, gain, bias), results, strict=True))

        x_node, rows = x.node, x.elements // self.C
        out, mean, deviation = allocate("native_layer_norm", size, width * rows, width * rows)
        return Value(x.elements, width, out, self.tape.record(backward, x.data, mean, deviation))

    def gelu(self, x: Value) -> Value:
        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(x_node, self.memory.allocate("gelu_backward", size))]

        x_node, size = x.node, x.data.size
        node = self.tape.record(backward, x.data)
        return Value(x.elements, x.width, self.memory.allocate("gelu", size), node)

    def dropout(self, x: Value, p: float) -> Value:
        """Times a mask of noise, which is as large as the tensor itself on the CPU."""
        if not p:
            return x

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(x_node, self.memory.allocate("mul", size))]

        x_node, size = x.node, x.data.size
        noise = self.memory.allocate("empty_like", size)
        node = self.tape.record(backward, noise)
        return Value(x.elements, x.width, self.memory.allocate("mul", size), node)

    def add(self, x: Value, branch: Value) -> Value:
        """The residual stream takes up what a sublayer adds. Going back, both get the same gradient."""

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            same = branch_width == width
            to_branch = g[0] if same else self.memory.allocate("_to_copy", branch_width * elements)
            return [(x_node, g[0]), (branch_node, to_branch)]

        x_node, branch_node, elements, width = x.node, branch.node, x.elements, x.width
        branch_width = branch.width
        out = self.memory.allocate("add", x.data.size)
        return Value(x.elements, x.width, out, self.tape.record(backward))
