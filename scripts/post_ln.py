"""Pre-LN and Post-LN: which of them needs a warm-up, and where is the gradient of fresh weights large?

    OMP_NUM_THREADS=1 python scripts/post_ln.py --out /tmp/post-ln

Each training run leaves a file under --out, so that an interruption costs one run. When all are there, they go into
gptlab/assets/post-ln.json, for chapter 10. On an idle core it takes ten minutes.

Training: twelve blocks of width 64 read Shakespeare byte by byte. A run is named by its order, by "scaled" or "full"
(the matrices that write into the stream begin with GPT-2's 1/√(2L), or like all others), by its learning rate, by
the steps of its warm-up (0: none) and by its seed. Runs of one seed start from the same weights, but for that scale,
and see the same batches.

Gradients: the norm for the second matrix of each MLP (W2 in Xiong et al. 2020). "first gradients" are those of the
runs' first batch, without the scale. "gradients" are those of stacks of PyTorch's own layers, drawn by Xavier's rule
or as GPT-2 draws, alone or with a second attention. That reads an encoder ("decoder"), or, to find out what it does,
the stream that it adds to ("own"), or the same without sending a gradient back there ("detached").
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from gptlab import data
from gptlab.config import GPTConfig
from gptlab.files import replacing
from gptlab.model import GPT
from gptlab.unembedding import next_token_loss

FILE = Path(__file__).resolve().parents[1] / "gptlab/assets/post-ln.json"
ORDERS = {"Pre-LN": True, "Post-LN": False}
KINDS = (  # order, scale, learning rate, steps of warm-up
    ("Post-LN", "full", 2e-3, 0),
    ("Post-LN", "full", 2e-3, 20),
    ("Post-LN", "full", 2e-3, 100),
    ("Post-LN", "full", 1e-3, 0),
    ("Pre-LN", "full", 2e-3, 0),
    ("Pre-LN", "full", 2e-3, 100),
    ("Pre-LN", "full", 1e-3, 0),
    ("Pre-LN", "scaled", 2e-3, 0),
)
SEEDS = (0, 1, 2)
STACKS = (  # what the second attention reads, how the weights are drawn
    ("alone", "gpt2"),
    ("alone", "xavier"),
    ("decoder", "gpt2"),
    ("decoder", "xavier"),
    ("own", "xavier"),
    ("detached", "xavier"),
)
SEEDS_OF_FIRST = range(8)
STEPS, EVERY = 300, 10  # the losses of ten steps are stored as their mean
BATCH, CONTEXT = 8, 32

# 0.07 at width 64 stretches a vector as much as 0.02 does at width 768.
CONFIG = GPTConfig(
    vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=12, n_head=2, initializer_range=0.07
)


def every_run() -> dict[str, tuple[bool, str, float, int, int]]:
    """The name of each run with the arguments of :func:`train`."""
    return {
        f"{order} {scale} {rate:g} {warmup} {seed}": (ORDERS[order], scale, rate, warmup, seed)
        for seed, (order, scale, rate, warmup) in product(SEEDS, KINDS)
    }


def blocks(model: GPT, x: Float[Tensor, "B T C"], pre_ln: bool) -> Float[Tensor, "B T C"]:
    """The stream after the last block: the norm on each branch, or on the stream after each sum."""
    block: Any
    for block in model.h:
        for norm, branch in ((block.ln_1, block.attn), (block.ln_2, block.mlp)):
            x = x + branch(norm(x)) if pre_ln else norm(x + branch(x))
    return x


def loss_of(model: GPT, ids: Int[Tensor, "B T"], pre_ln: bool) -> Tensor:
    """Mean loss; Post-LN has no ``ln_f``, since its last block ends with a norm."""
    x = blocks(model, model.embed(ids), pre_ln)
    return next_token_loss(model.lm_head(model.ln_f(x) if pre_ln else x), ids)


def fresh(scale: str, seed: int) -> GPT:
    """The model that a run starts with, without dropout."""
    torch.manual_seed(seed)
    model = GPT(CONFIG).eval()
    if scale == "full":
        for name, parameter in model.named_parameters():
            if name.endswith("c_proj.weight"):
                parameter.data *= math.sqrt(2 * CONFIG.n_layer)
    return model


def share_that_differs(x: Float[Tensor, "B T C"]) -> float:
    """Which share of the vectors' squared length is not common to all positions: 0 if all hold the same."""
    return ((x - x.mean(dim=(0, 1))).square().sum() / x.square().sum()).item()


def random_batch(text: Int[Tensor, " N"]) -> Int[Tensor, "B T"]:
    """Windows of the text from random places."""
    return text[torch.randint(len(text) - CONTEXT, (BATCH, 1)) + torch.arange(CONTEXT)]


def letters() -> Int[Tensor, " N"]:
    """The text that the runs read, as bytes."""
    return torch.tensor(list(data.shakespeare("validation").encode()))


def train(
    pre_ln: bool, scale: str, rate: float, warmup: int, seed: int, steps: int = STEPS
) -> dict[str, Any]:
    """Losses, in means of ten steps, and what the trained model leaves of the differences between positions."""
    text = letters()
    model = fresh(scale, seed)
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / max(1, warmup))
        optimizer.zero_grad()
        loss = loss_of(model, random_batch(text), pre_ln)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        out = blocks(model, model.embed(text[: BATCH * CONTEXT].view(BATCH, CONTEXT)), pre_ln)
    means = [sum(losses[i : i + EVERY]) / EVERY for i in range(0, steps, EVERY)]
    return {"loss": [round(mean, 4) for mean in means], "differs": round(share_that_differs(out), 4)}


def first_gradients(pre_ln: bool, seed: int) -> list[float]:
    """Norm of the gradient for W2 in each block, at the first batch of a run with "full"."""
    model = fresh("full", seed)
    loss_of(model, random_batch(letters()), pre_ln).backward()
    stack: Any = model.h
    return [round(block.mlp.c_proj.weight.grad.norm().item(), 4) for block in stack]


def all_first_gradients() -> dict[str, list[float]]:
    """For each order and seed: the norms, a number for each block."""
    return {
        f"{order} {seed}": first_gradients(pre_ln, seed)
        for (order, pre_ln), seed in product(ORDERS.items(), SEEDS_OF_FIRST)
    }


class ReadsItsOwnStream(nn.TransformerDecoderLayer):
    """Its second attention reads the stream that it adds to, in place of an encoder."""

    def _mha_block(self, x: Tensor, mem: Tensor, *others: Any) -> Tensor:
        return super()._mha_block(x, x, *others)


class SendsNothingBack(nn.TransformerDecoderLayer):
    """The same numbers, but no gradient passes from the second attention's keys and values into the stream."""

    def _mha_block(self, x: Tensor, mem: Tensor, *others: Any) -> Tensor:
        return super()._mha_block(x, x.detach(), *others)


DECODERS = {"decoder": nn.TransformerDecoderLayer, "own": ReadsItsOwnStream, "detached": SendsNothingBack}


def gradients(
    pre_ln: bool, kind: str, init: str, seed: int, width: int = 512, layers: int = 6
) -> list[float]:
    """Norm of the loss's gradient for W2 in each layer of a fresh stack that predicts the next of 256 tokens.

    Args:
        pre_ln: the norm on each branch, not on the stream.
        kind: ``"alone"``, or the kind of a layer with a second attention, one of ``DECODERS``; for ``"decoder"`` it
            reads a fresh encoder of as many layers.
        init: ``"xavier"``, or ``"gpt2"`` for a normal distribution that stretches a vector as GPT-2's does.
        seed: for weights and tokens.
        width: of the stream, in heads of 64.
        layers: their number.
    """
    torch.manual_seed(seed)
    options: dict[str, Any] = {"d_model": width, "nhead": width // 64, "dim_feedforward": 4 * width}
    options |= {"dropout": 0.0, "batch_first": True, "norm_first": pre_ln}

    def stack() -> nn.TransformerEncoder:
        layer, final = nn.TransformerEncoderLayer(**options), nn.LayerNorm(width) if pre_ln else None
        return nn.TransformerEncoder(layer, layers, final, enable_nested_tensor=False)

    encoder = stack()
    decoder: nn.TransformerEncoder | nn.TransformerDecoder = stack()
    if kind != "alone":
        final = nn.LayerNorm(width) if pre_ln else None
        decoder = nn.TransformerDecoder(DECODERS[kind](**options), layers, final)
    for parameter in (*encoder.parameters(), *decoder.parameters()):
        if parameter.dim() > 1 and init == "xavier":
            nn.init.xavier_uniform_(parameter)
        elif parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02 * math.sqrt(768 / width))

    table, places = torch.randn(256, width), torch.randn(CONTEXT, width)
    source, ids = torch.randint(256, (2, BATCH, CONTEXT))
    mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
    x = table[ids] + places
    if kind == "alone":
        x = decoder(x, mask=mask, is_causal=True)
    elif kind == "decoder":
        x = decoder(x, encoder(table[source] + places), tgt_mask=mask, tgt_is_causal=True)
    else:  # its own stream, of which it may read no more than the first attention
        x = decoder(x, x, tgt_mask=mask, memory_mask=mask, tgt_is_causal=True)
    logits = x @ table.T / math.sqrt(width)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    return [round(layer.linear2.weight.grad.norm().item(), 4) for layer in decoder.layers]


def all_gradients() -> dict[str, list[float]]:
    """For each order, kind of stack and way to draw: the norms, a number for each layer, of each seed."""
    return {
        f"{order} {kind} {init} {seed}": gradients(pre_ln, kind, init, seed)
        for (kind, init), (order, pre_ln), seed in product(STACKS, ORDERS.items(), SEEDS)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--file", type=Path, default=FILE, help="where the results go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def once(name: str, make: Callable[[], Any]) -> Any:
        file = options.out / f"{name}.json"
        if not file.exists():
            found = make()
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(found), "utf-8")
            print(name, flush=True)
        return json.loads(file.read_text("utf-8"))

    found = {
        "made by": "scripts/post_ln.py",
        "gradients": once("gradients", all_gradients),
        "first gradients": once("first gradients", all_first_gradients),
        "runs": {name: once(name, partial(train, *settings)) for name, settings in every_run().items()},
    }
    with replacing(options.file) as temporary:
        temporary.write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    main()
