"""Chapter 5: the published weights into our own model."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

from gptlab.config import GPTConfig
from gptlab.exercises.catalogue import gpt2
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Misbuilt, Mistake
from gptlab.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor

STORED_TRANSPOSED = re.compile(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight")
MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

TRANSPOSE = (
    "the four matrices of a block, attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj, are stored as (inputs, outputs), "
    "but nn.Linear holds (outputs, inputs). Transpose those four, and no others."
)
MASKS = (
    "the file's mask buffers, h.*.attn.bias and h.*.attn.masked_bias, are treated as parameters. Skip them: they are no "
    "weights, and the model makes its own mask. Names such as attn.c_attn.bias are weights: look at the whole name."
)


def reference(
    config: GPTConfig, state_dict: dict[str, Tensor], on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor]:
    """The model's parameters afterwards; what is not loaded stays 0."""
    import torch

    loaded = {}
    for row in Ledger.from_config(config):
        name, tensor = row.name, state_dict[row.name]
        if ("no-biases" in on and name.endswith(".bias")) or ("substring" in on and "attn.bias" in name):
            tensor = torch.zeros(row.shape)
        if "no-tables" in on and not name.startswith("h."):
            tensor = torch.zeros(row.shape)
        if "no-norms" in on and "ln_" in name:
            tensor = torch.zeros(row.shape)
        if STORED_TRANSPOSED.fullmatch(name):
            if "reshaped" in on:
                tensor = tensor.reshape(row.shape)
            elif not ("as-stored" in on or ("square" in on and "attn.c_proj" in name)):
                tensor = tensor.T
        loaded[name] = tensor
    return loaded


class Loaded:
    """The learner's function as one of a config and a state dict: it gets a model, whose parameters are the result."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, config: GPTConfig, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        import torch

        from gptlab.model import GPT

        model = GPT(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        try:
            self.attempt(model, state_dict)
        except (RuntimeError, KeyError) as error:
            evidence = f"{type(error).__name__}: {error}"[:160]
            if MASK.search(str(error)):
                raise Misbuilt("mask-buffers", MASKS, evidence) from error
            if "size mismatch" in str(error) or "must match" in str(error):
                raise Misbuilt("sizes", TRANSPOSE, evidence) from error
            raise
        if model.lm_head.weight is not model.wte.weight:
            raise Misbuilt(
                "untied",
                "the head is no longer the token table: loading has put another Parameter in the place of one of the "
                "two. Copy into the Parameter, parameter.copy_(tensor), or tie the two again.",
            )
        return {name: parameter.detach() for name, parameter in model.named_parameters()}


def cases(rng: random.Random) -> list[tuple[GPTConfig, dict[str, Tensor]]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(
        V: int, P: int, L: int, H: int, D: int, masks: bool = True
    ) -> tuple[GPTConfig, dict[str, Tensor]]:
        config = GPTConfig(vocab_size=V, n_positions=P, n_layer=L, n_head=H, n_embd=H * D)
        state = {
            name: tensor.T.contiguous() if STORED_TRANSPOSED.fullmatch(name) else tensor
            for name, tensor in gpt2.random_weights(config, generator).items()
        }
        if masks:
            for i in range(L):
                state[f"h.{i}.attn.bias"] = torch.ones(P, P).tril()[None, None]
                state[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        return config, state

    return [case(11, 9, 3, 2, 5, masks=False), case(13, 7, 2, 3, 2), case(17, 5, 4, 2, 3)]


EXERCISE = Exercise(
    name="load_gpt2",
    chapter=5,
    task="load_gpt2(model, state_dict) copies the published weights into a gptlab.GPT, in place. state_dict has the "
    "model's own names (no transformer. in front, no lm_head.weight: the head is tied), but the four matrices of each "
    "block are stored as (inputs, outputs). Some files also hold each block's causal mask, h.0.attn.bias and "
    "h.0.attn.masked_bias and so on; skip those.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake("as-stored", "no matrix is transposed: " + TRANSPOSE),
        Mistake(
            "square",
            "attn.c_proj is not transposed. It is square, so it loads without an error, and only the values show it: "
            "the model would talk nonsense. It is stored as (inputs, outputs) like the other three; transpose it.",
        ),
        Mistake(
            "reshaped",
            "the matrices are reshaped, not transposed: the shape is right, but the values stand in other places. "
            "reshape and view keep the order in memory; .T exchanges rows and columns.",
        ),
        Mistake("no-biases", "no bias is loaded. The names ending in .bias are weights of the model, too."),
        Mistake(
            "substring",
            "the biases of Q, K and V are not loaded. To skip the masks you look for attn.bias in the name, and "
            "c_attn.bias contains it. Look at the end of the name, '.attn.bias', with the point.",
        ),
        Mistake("no-tables", "only the blocks are loaded. wte, wpe and ln_f stand outside them."),
        Mistake("no-norms", "the LayerNorms are not loaded: ln_1 and ln_2 of each block, and ln_f."),
    ),
    cases=cases,
    adapt=Loaded,
    hints=(
        "The names agree. What does not is how four of the matrices lie in the file.",
        "Which four? Two of each sublayer, c_attn or c_fc and c_proj. One of them is square: no error will tell you "
        "about it.",
        "For each name and tensor: skip h.*.attn.bias and h.*.attn.masked_bias; .T if the name ends in one of the four "
        "names; then copy into the parameter of that name, under torch.no_grad().",
        "def load_gpt2(model, state_dict):\n    parameters = dict(model.named_parameters())\n"
        "    with torch.no_grad():\n        for name, tensor in state_dict.items():\n            ...",
    ),
    solution="""
import torch

TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")

def load_gpt2(model, state_dict):
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in state_dict.items():
            if name.endswith((".attn.bias", ".attn.masked_bias")):
                continue
            parameters[name].copy_(tensor.T if name.endswith(TRANSPOSED) else tensor)
""",
    also_correct=(
        "from gptlab.checkpoint import MASK_BUFFER, TRANSPOSED\n"
        "def load_gpt2(model, state_dict):\n"
        "    model.load_state_dict(\n"
        "        {\n"
        "            name: tensor.T if TRANSPOSED.fullmatch(name) else tensor\n"
        "            for name, tensor in state_dict.items()\n"
        "            if not MASK_BUFFER.fullmatch(name)\n"
        "        }\n"
        "    )\n"
        "    return model\n",
        "import torch\nfrom torch import nn\n"
        "@torch.no_grad()\n"
        "def load_gpt2(model, state_dict):\n"
        "    for path, module in model.named_modules():\n"
        "        for kind, p in module.named_parameters(recurse=False):\n"
        "            if path == 'lm_head':\n"
        "                continue\n"
        "            tensor = state_dict[f'{path}.{kind}']\n"
        "            p.copy_(tensor.t() if isinstance(module, nn.Linear) and kind == 'weight' else tensor)\n",
        "def load_gpt2(model, state_dict):\n"
        "    for name, p in model.named_parameters():\n"
        "        tensor = state_dict[name]\n"
        "        linear = tensor.ndim == 2 and name[:2] == 'h.'\n"
        "        p.data = tensor.T.clone() if linear else tensor.clone()\n",
    ),
)
