"""The three ways in which attention is computed on the CPU, in the replayed model."""

from __future__ import annotations

from gptlab.memory.operations import Operations
from gptlab.memory.tape import Bytes, Gradients, Value


class AttentionOperations(Operations):
    """From queries, keys and values, side by side in one tensor, to what the heads have read."""

    @property
    def copies_heads(self) -> bool:
        """Whether heads must be copied to lie together: one row, or one head, already does."""
        return self.B > 1 and self.config.n_head > 1

    def attend_sdpa(self, qkv: Value) -> Value:
        """The fused kernel: it keeps a logarithm of a sum for each query, and no T × T weights."""
        NC, allocate = self.N * self.C, self.memory.allocate_all
        width, name = qkv.width, "_scaled_dot_product_flash_attention_for_cpu"

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            parts = allocate(f"{name}_backward", *3 * [width * NC])
            g.clear()
            saved.clear()
            return [(qkv_node, self.cat(parts))]

        qkv_node = qkv.node
        out, log_sums = allocate(name, width * NC, 4 * self.N * self.config.n_head)
        return Value(NC, width, out, self.tape.record(backward, qkv.data, log_sums, out))

    def cat(self, parts: list[Bytes]) -> Bytes:
        """The gradients of q, k and v side by side."""
        result = self.memory.allocate("cat", sum(part.size for part in parts))
        parts.clear()
        return result

    def attend(self, qkv: Value) -> Value:
        """:func:`gptlab.attention.attend`, with its T × T scores and weights."""
        allocate, width, TT = self.memory.allocate, qkv.width, self.T * self.T
        NC, S = width * self.N * self.C, width * self.N * self.T * self.config.n_head
        p = self.config.attn_pdrop
        node = self.tape.record(lambda saved, g: backward(saved, g))
        q, k = self.heads(qkv, NC), self.heads(qkv, NC)
        node.save(q, k)
        product = allocate("bmm", S)
        del q, k
        scores = allocate("div", S)
        del product
        ones = allocate("ones", TT)
        future = allocate("triu", TT)
        del ones
        node.save(future)
        masked = allocate("masked_fill", S)
        weights = allocate("_softmax", S)
        node.save(weights)
        del masked
        dropped = weights
        if p:
            noise = allocate("empty_like", S)
            node.save(noise)
            dropped = allocate("mul", S)
            del noise
        v = self.heads(qkv, NC)
        node.save(dropped, v)
        out = allocate("bmm", NC)
        del dropped, v, weights, future, scores

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            if self.copies_heads:
                g[0] = allocate("clone", NC)
            dv = allocate("bmm", NC)
            d = allocate("bmm", S)
            g.clear()
            del saved[-2:]  # v and what it was multiplied by
            if p:
                d = allocate("mul", S)
                del saved[-1]
            d = allocate("_softmax_backward_data", S)
            del saved[-1]
            d = allocate("masked_fill", S)
            del saved[-1]
            d = allocate("div", S)
            parts = [allocate("bmm", NC), allocate("bmm", NC), dv]
            del d, dv
            saved.clear()
            return [(qkv_node, self.merge_gradients(parts, NC))]

        qkv_node = qkv.node
        return Value(self.N * self.C, width, out, node)

    def heads(self, qkv: Value, size: int) -> Bytes:
        """Queries, keys or values as matrices for each head: copied together, or where they are."""
        return self.memory.allocate("clone", size) if self.copies_heads else qkv.data

    def merge_gradients(self, parts: list[Bytes], size: int) -> Bytes:
        """Heads back into columns, and q, k and v side by side."""
        for i in (1, 0):
            parts[i] = self.memory.allocate("clone", size)
        return self.cat(parts)

    def merge_heads(self, x: Value) -> Value:
        """A copy, unless the kernel has already written the heads side by side."""
        fused = self.step.attention == "sdpa" and not self.config.attn_pdrop
        if fused or self.T == 1 or self.config.n_head == 1:
            return x
        copy = self.memory.allocate("clone", x.data.size)
        return Value(x.elements, x.width, copy, x.node)

    def attend_with_dropout(self, qkv: Value) -> Value:
        """With dropout PyTorch has no fused kernel on the CPU: it takes explicit steps, in float32."""
        allocate, TT, width = self.memory.allocate, self.T * self.T, qkv.width
        NC, S = 4 * self.N * self.C, 4 * self.N * self.T * self.config.n_head
        half = width == 2
        node = self.tape.record(lambda saved, g: backward(saved, g))
        parts = [allocate("_to_copy", NC) for _ in range(3)] if half else [qkv.data] * 3
        q = allocate("mul", NC)
        ones = allocate("ones", TT)
        tril = allocate("tril", TT)
        del ones
        zero = allocate("scalar_tensor", 4)
        minus_infinity = allocate("scalar_tensor", 4)
        mask = allocate("where", 4 * TT)
        del zero, minus_infinity, tril
        k = allocate("mul", NC)
        q_heads = allocate("clone", NC) if self.copies_heads else q
        k_heads = allocate("clone", NC) if self.copies_heads else k
        node.save(q_heads, k_heads)
        scores = allocate("bmm", S)
        del k, q_heads, k_heads
        scores = allocate("add", S)
        weights = allocate("_safe_softmax", S)
        node.save(weights)
        del scores
        noise = allocate("empty_like", S)
        node.save(noise)
        dropped = allocate("mul", S)
        del weights, noise
        returned = allocate("_to_copy", S // 2) if half else None  # the weights, which nobody asked for
        v = allocate("clone", NC) if self.copies_heads else parts[2]
        node.save(dropped, v)
        out = allocate("bmm", NC)
        if half:
            out = allocate("_to_copy", width * self.N * self.C)
        del q, mask, parts, returned, dropped, v

        def backward(saved: list[Bytes], g: list[Bytes]) -> Gradients:
            if half:
                g[0] = allocate("_to_copy", NC)
            if self.copies_heads:
                g[0] = allocate("clone", NC)
            dv = allocate("bmm", NC)
            d = allocate("bmm", S)
            g.clear()
            del saved[-2:]
            d = allocate("mul", S)
            del saved[-1]
            d = allocate("_softmax_backward_data", S)
            del saved[-1]
            dk = allocate("bmm", NC)
            dq = allocate("bmm", NC)
            del d
            saved.clear()
            dk = allocate("mul", NC)
            dq = allocate("mul", NC)
            gradients = [dq, dk, dv]
            del dq, dk, dv
            if half:
                for i in range(3):
                    gradients[i] = allocate("_to_copy", width * self.N * self.C)
            return [(qkv_node, self.merge_gradients(gradients, width * self.N * self.C))]

        qkv_node = qkv.node
        return Value(self.N * self.C, width, out, node)
