"""A training step replayed on sizes: its timeline and its peak, without PyTorch and in milliseconds.

The bytes are those of PyTorch 2.13.0 (``MEASURED_WITH`` in :mod:`gptlab.memory.forms`).

:class:`Replay` is GPT-2 once more, line by line as in ``model.py``, ``block.py`` and ``unembedding.py``, with each
operation reduced to what it allocates and saves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gptlab.config import GPTConfig
from gptlab.memory.attention_operations import AttentionOperations
from gptlab.memory.step import N_CHUNKS, Precision, TrainingStep
from gptlab.memory.tape import Bytes, Gradients, Node, Receiver, Value
from gptlab.memory.timeline import Timeline

FUSED_ROWS = 512  # as in gptlab.fused_loss, which cannot be imported without PyTorch; a test ties them


def replay(step: TrainingStep) -> Timeline:
    """The timeline of a training step: forward, backward and optimizer, with the operations that PyTorch would run."""
    return Replay(step).train()


def replay_prompt(config: GPTConfig, batch_size: int, context: int, precision: Precision) -> Timeline:
    """The timeline of reading a prompt of ``context`` tokens into a KV cache, and scoring what comes next."""
    return Replay(TrainingStep(config, batch_size, context, precision), training=False).read_prompt()


class Replay(AttentionOperations):
    """The model, its loss and its optimizer, as sizes."""

    def train(self) -> Timeline:
        master = self.step.precision == "master"
        self.state = 4 if master else self.stream  # bytes of a number in AdamW's state
        copies = 3 if master else 2  # two moments, and the master copy
        n_params = sum(parameter.elements for parameter in self.parameters.values())
        counters = 4 * len(self.parameters)
        tokens = 2 * 8 * self.step.batch_size * self.T  # x and y, int64
        static = Bytes(self.memory, n_params * (self.stream + copies * self.state) + counters + tokens)
        for _ in range(self.step.micro_batches):
            self.memory.phase = "forward"
            loss = self.loss()
            self.casts.clear()  # autocast ends
            self.memory.phase = "backward"
            self.tape.play_back(loss.node, self.memory.allocate("ones_like", loss.data.size))
            del loss
        self.memory.phase = "optimizer"
        self.optimizer()
        del static
        return self.memory.timeline

    def read_prompt(self) -> Timeline:
        n_params = sum(parameter.elements for parameter in self.parameters.values())
        cache = 2 * self.config.n_layer * self.N * self.C
        static = Bytes(self.memory, self.stream * (n_params + cache) + 8 * self.N)
        self.memory.phase = "prompt"
        hidden = self.hidden()
        self.memory.allocate("mm", self.stream * self.B * self.config.vocab_size)
        del hidden, static
        return self.memory.timeline

    # The model

    def hidden(self) -> Value:
        x = self.dropout(self.input_tensor(), self.config.embd_pdrop)
        for i in range(self.config.n_layer):
            if self.step.checkpointing:
                run = partial(self.block, x, i)
                x = self.tape.checkpoint(x.data, run, partial(self.run_again, run))
                del run
            else:
                x = self.block(x, i)
        return self.layer_norm(x, "ln_f")

    def run_again(self, run: Callable[[], Value]) -> None:
        """A block's second run, in an autocast of its own."""
        casts, self.casts = self.casts, {}
        try:
            run()
        finally:
            self.casts = casts

    def input_tensor(self) -> Value:
        allocate, width = self.memory.allocate, self.stream
        positions = allocate("arange", 8 * self.T)
        token_rows = allocate("embedding", width * self.N * self.C)
        _position_rows = allocate("embedding", width * self.T * self.C)

        def table(name: str, saved: list[Bytes], g: list[Bytes]) -> Gradients:
            weight = self.parameters[name]
            return [(weight, allocate("embedding_dense_backward", width * weight.elements))]

        def add(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            summed = allocate("sum", width * self.T * self.C) if self.B > 1 else g[0]
            return [(tokens, g[0]), (places, summed)]

        tokens = self.tape.record(partial(table, "wte.weight"))  # the ids it saves are there anyway
        places = self.tape.record(partial(table, "wpe.weight"), positions)
        x = allocate("add", token_rows.size)
        return Value(self.N * self.C, width, x, self.tape.record(add))

    def block(self, x: Value, i: int) -> Value:
        x = self.add(x, self.attention(self.layer_norm(x, f"h.{i}.ln_1"), f"h.{i}.attn"))
        return self.add(x, self.mlp(self.layer_norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp"))

    def mlp(self, x: Value, name: str) -> Value:
        # A name of its own: x stays alive until the end.
        y = self.linear(self.gelu(self.linear(x, f"{name}.c_fc")), f"{name}.c_proj")
        return self.dropout(y, self.config.resid_pdrop)

    def attention(self, x: Value, name: str) -> Value:
        qkv = self.linear(x, f"{name}.c_attn")
        if self.step.attention == "explicit":
            y = self.attend(qkv)
        elif self.config.attn_pdrop:
            y = self.attend_with_dropout(qkv)
        else:
            y = self.attend_sdpa(qkv)
        merged = self.merge_heads(y)
        return self.dropout(self.linear(merged, f"{name}.c_proj"), self.config.resid_pdrop)

    # The loss

    def loss(self) -> Value:
        forms = {"full": self.full_loss, "chunked": self.chunked_loss, "fused": self.fused_loss}
        loss = forms[self.step.loss]()
        if self.step.micro_batches > 1:
            loss = self.divide(loss)
        return loss

    def divide(self, loss: Value) -> Value:
        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(node, self.memory.allocate("div", width))]

        node, width = loss.node, loss.width
        return Value(1, width, self.memory.allocate("div", width), self.tape.record(backward))

    def full_loss(self) -> Value:
        return self.cross_entropy(self.product_with_head(self.hidden(), self.N))

    def product_with_head(self, h: Value, rows: int, W_U: Node | None = None) -> Value:
        """The logits of ``rows`` positions. Autocast keeps a copy of the weight itself, but not of a view of it."""
        allocate, width, V = self.memory.allocate, self.product, self.config.vocab_size
        weight_to, copy = self.cast_weight(self.head, "head" if W_U is None else None, W_U)
        inputs = self.cast(h)

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            dW = allocate("mm", width * V * self.C).transposed()
            dh = allocate("mm", width * rows * self.C)
            return [(inputs_node, dh), (weight_to, dW)]

        inputs_node = inputs.node
        node = self.tape.record(backward, inputs.data, *copy)
        return Value(rows * V, width, allocate("mm", width * rows * V), node)

    def cross_entropy(self, logits: Value) -> Value:
        allocate = self.memory.allocate
        scores = self.widen(logits) if self.step.precision == "amp" else logits  # both stay alive
        width, size, logits_node = scores.width, scores.data.size, scores.node

        def log_softmax(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(logits_node, allocate("_log_softmax_backward_data", size))]

        def nll(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(log_p_node, allocate("nll_loss_backward", size))]

        log_p = allocate("_log_softmax", size)
        log_p_node = self.tape.record(log_softmax, log_p)
        loss, total_weight = self.memory.allocate_all("nll_loss_forward", width, width)
        return Value(1, width, loss, self.tape.record(nll, log_p, total_weight))

    def widen(self, x: Value) -> Value:
        """To float32, if it is not."""
        if x.width == 4:
            return x
        node = self.tape.record(partial(self.cast_back, x.node, x.data.size))
        return Value(x.elements, 4, self.memory.allocate("_to_copy", 4 * x.elements), node)

    def chunked_loss(self) -> Value:
        """:func:`gptlab.unembedding.chunked_token_loss`: logits of a chunk of positions, computed twice."""
        allocate = self.memory.allocate
        h = self.hidden()
        pieces: list[Bytes] = []  # gradients of the chunks, until all are there
        h_node = h.node

        def join(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            return [(h_node, self.cat(pieces))]

        def collect(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            pieces.append(g[0])
            return []

        self.tape.record(join)
        W_U = self.tape.record(lambda saved, g: [(self.head, g[0].transposed())])
        losses: list[Receiver] = []
        chunk = -(-self.N // N_CHUNKS)
        for start in range(0, self.N, chunk):
            rows = min(chunk, self.N - start)
            part = Value(rows * self.C, h.width, h.data, self.tape.record(collect))
            loss = self.tape.checkpoint(h.data, partial(self.chunk_loss, part, rows, W_U))
            losses.append(loss.node)
            _total = allocate("add", 4)
            del loss, part
        counted = allocate("ne", self.N)
        count = allocate("sum", 8)
        del counted

        def divide(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            share = allocate("div", 4)
            return [(node, share) for node in losses]

        return Value(1, 4, allocate("div", 4), self.tape.record(divide, count))

    def chunk_loss(self, h: Value, rows: int, W_U: Node) -> Value:
        return self.cross_entropy(self.widen(self.product_with_head(h, rows, W_U)))

    def fused_loss(self) -> Value:
        """:func:`gptlab.fused_loss.fused_token_loss`: one buffer for a few hundred positions' logits."""
        allocate, N, C, V = self.memory.allocate, self.N, self.C, self.config.vocab_size
        h = self.hidden()
        counts = allocate("ne", N)
        zero = allocate("scalar_tensor", 8)
        wanted = allocate("where", 8 * N)
        del zero
        counted = allocate("sum", 8)
        weights = allocate("div", 4 * N)
        del counted
        loss, dh = allocate("new_zeros", 4), allocate("empty_like", 4 * N * C)
        dW = allocate("zeros_like", 4 * V * C)
        rows = min(FUSED_ROWS, N)
        buffer = allocate("new_empty", 4 * rows * V)
        picked = allocate("gather", 4 * rows)
        weighted = allocate("mul", 4 * rows)
        del picked, weighted
        d_rows = allocate("mm", 4 * rows * C)
        scaled = allocate("mul", 4 * rows * C)
        del d_rows, scaled, buffer, counts, wanted, weights
        h_node, scales = h.node, self.step.micro_batches > 1

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            dh, dW = saved
            if scales:
                dh, dW = allocate("mul", dh.size), allocate("mul", dW.size)
            return [(h_node, dh), (self.head, dW.transposed())]

        return Value(1, 4, loss, self.tape.record(backward, dh, dW))

    # The optimizer

    def optimizer(self) -> None:
        allocate, width = self.memory.allocate, self.state
        for parameter in self.parameters.values():
            if self.step.precision == "master":
                parameter.gradient = allocate("_to_copy", 4 * parameter.elements)
        if self.step.optimizer == "foreach":
            sizes = [width * parameter.elements for parameter in self.parameters.values()]
            self.memory.allocate_all("_foreach_sqrt", *sizes)
        elif self.step.optimizer == "loop":
            for parameter in self.parameters.values():
                root = allocate("sqrt", width * parameter.elements)
                divisor = allocate("div", width * parameter.elements)  # the one before goes only now
                del root
            del divisor
        else:
            self.memory.allocate("_fused_adamw_", 0)
        for parameter in self.parameters.values():
            parameter.gradient = None
