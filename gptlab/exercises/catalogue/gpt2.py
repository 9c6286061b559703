"""Chapter 5: the whole model as a module."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gptlab.config import GPTConfig
from gptlab.exercises.catalogue import block, layer_norm
from gptlab.exercises.exercise import NOTHING_WRONG, Diagnosis, Exercise, Misbuilt, Mistake
from gptlab.exercises.modules import build

if TYPE_CHECKING:
    from torch import Generator, Tensor


def reference(
    config: GPTConfig, weights: dict[str, Tensor], input_ids: Tensor, on: frozenset[str] = NOTHING_WRONG
) -> Tensor:
    W_E, W_P = weights["wte.weight"], weights["wpe.weight"]
    x = W_E[input_ids]
    if "no-positions" not in on:
        x = x + W_P[: input_ids.shape[1]]
    layers = list(range(config.n_layer))
    if "first-block" in on:
        layers = [0] * len(layers)
    if "one-too-few" in on:
        layers = layers[:-1]
    if "backwards" in on:
        layers = layers[::-1]
    for i in layers:
        x = block.reference(x, block.part(weights, f"h.{i}"), config.n_head)
    if "no-final-norm" not in on:
        x = layer_norm.reference(x, weights["ln_f.weight"], weights["ln_f.bias"], 1e-5)
    if "last-position" in on:
        x = x[:, -1:]
    if "no-head" in on:
        return x
    logits = x @ W_E.mT
    return logits.softmax(-1) if "softmax" in on else logits


class AsFunction:
    """The learner's class as a function of a config, weights, which it puts into the module, and token ids."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, config: GPTConfig, weights: dict[str, Tensor], input_ids: Tensor) -> Any:
        import torch

        module = self.module(config, weights, input_ids)
        logits, again = module(input_ids), module(input_ids)
        if isinstance(logits, tuple):
            raise Misbuilt(
                "tuple",
                "forward returns a tuple. Return the logits alone: what computes a loss of them stands outside the "
                "model.",
                f"it has {len(logits)} elements",
            )
        if torch.is_tensor(logits) and not torch.equal(logits, again):
            raise Misbuilt(
                "random",
                "after eval() the model gives two answers to one input: dropout is on. Use nn.Dropout, which eval() "
                "switches off, or pass self.training to F.dropout.",
            )
        return logits

    def module(self, config: GPTConfig, weights: dict[str, Tensor], input_ids: Tensor) -> Any:
        """The learner's module in evaluation mode, holding these weights."""
        module = build(self.attempt, "GPT2", config)
        module(input_ids)  # an error of its own, NotImplementedError for one, comes before ours
        own = dict(module.named_parameters(remove_duplicate=False))
        _check(module, own, weights)
        for name, tensor in weights.items():
            own[name].data.copy_(tensor)
        return module.eval()


def _check(module: Any, own: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise unless the module's parameters are those of GPT-2, each once."""
    missing = [name for name in weights if name not in own]
    if isinstance(getattr(module, "h", None), list | tuple | dict):
        raise Misbuilt(
            "plain-list",
            f"the blocks stand in a plain {type(module.h).__name__} (self.h): the module does not see them, so no "
            f"optimizer does, and neither .to(device) nor a checkpoint reaches them. Use nn.ModuleList.",
            f"it has {sum(p.numel() for p in module.parameters()):,} parameters, expected "
            f"{sum(t.numel() for t in weights.values()):,}",
        )
    if missing:
        raise Misbuilt(
            "missing",
            f"the module has no parameter {missing[0]}. Use the checkpoint's names: wte, wpe, h, ln_f, lm_head; "
            f"in a block ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj.",
            f"{len(missing)} of {len(weights)} names are missing",
        )
    if own["h.0.ln_1.weight"] is own["h.1.ln_1.weight"]:
        raise Misbuilt(
            "one-block",
            "all blocks are one: the same object stands in every place, so they share their weights. [block] * n "
            "repeats a reference. Make a new Block for each: Block(config) for _ in range(n).",
            f"the module has {len(set(map(id, own.values())))} parameter tensors, expected {len(weights)}",
        )
    head = own.pop("lm_head.weight", own["wte.weight"])
    if head is not own["wte.weight"]:
        raise Misbuilt(
            "untied",
            "the head has a table of its own. GPT-2's head is the token table itself, one Parameter under two names: "
            "self.lm_head.weight = self.wte.weight.",
            f"it adds {head.numel():,} parameters",
        )
    for name, parameter in own.items():
        if name not in weights:
            raise Misbuilt(
                "extra",
                f"{name} is no parameter of GPT-2." + " Its head has no bias." * (name == "lm_head.bias"),
            )
        if parameter.shape != weights[name].shape:
            raise Misbuilt(
                "shape",
                f"{name} has shape {tuple(parameter.shape)}, expected {tuple(weights[name].shape)}.",
            )


def learns(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """[G] A gradient of the output reaches every parameter."""
    module = function.module(*case)
    logits = module(case[2])
    if logits.requires_grad:
        logits.square().sum().backward()
    for name, parameter in module.named_parameters():
        if parameter.grad is None or not parameter.grad.any():
            return Diagnosis(
                "no-gradient",
                f"the values are right, but no gradient reaches {name}, so it would never learn. Look for detach(), "
                f".data, torch.no_grad() or requires_grad=False.",
            )
    return None


def refuses_too_many_tokens(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """[N] With more tokens than positions there is an error."""
    import torch

    config, weights, input_ids = case
    module = function.module(config, weights, input_ids)
    too_many = torch.zeros(1, config.n_positions + 1, dtype=torch.int64)
    try:
        module(too_many)
    except Exception:
        return None
    return Diagnosis(
        "too-long",
        "the values are right, but more tokens than there are positions raise no error. The position table has "
        "n_positions rows; a token without one should be refused, not given another's or cut off.",
        f"with n_positions={config.n_positions}, {too_many.shape[1]} tokens gave an answer",
    )


def cases(rng: random.Random) -> list[tuple[GPTConfig, dict[str, Tensor], Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, P: int, L: int, H: int, D: int) -> tuple[Any, ...]:
        config = GPTConfig(vocab_size=V, n_positions=P, n_layer=L, n_head=H, n_embd=H * D)
        ids = torch.randint(V, (B, T), generator=generator)
        return config, random_weights(config, generator), ids

    full = case(1, 7, 13, 7, 3, 2, 4)  # as many tokens as there are positions
    return [case(2, 4, 11, 9, 3, 2, 5), full, case(3, 1, 17, 5, 2, 4, 3)]


def random_weights(config: GPTConfig, generator: Generator) -> dict[str, Tensor]:
    """All tensors of a model under the checkpoint's names, in nn.Linear's layout."""
    import torch

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    C = config.n_embd
    weights = {"wte.weight": normal(config.vocab_size, C), "wpe.weight": normal(config.n_positions, C)}
    for i in range(config.n_layer):
        weights |= {f"h.{i}.{key}": tensor for key, tensor in block.random_weights(C, generator).items()}
    return weights | {"ln_f.weight": 1 + 0.5 * normal(C), "ln_f.bias": normal(C)}


EXERCISE = Exercise(
    name="GPT2",
    chapter=5,
    task="GPT2(config) is an nn.Module; config is a gptlab.GPTConfig. forward(input_ids) turns token ids of shape "
    "(B, T) into logits of shape (B, T, V): token and position rows, the blocks, a final LayerNorm, and the head, "
    "which is the token table. The blocks are yours of chapter 4, or gptlab.block.Block. Name the parts as the "
    "checkpoint does: wte, wpe, h (the blocks), ln_f, lm_head. More than n_positions tokens raise an error.",
    difficulty="hard",
    minutes=30,
    reference=reference,
    mistakes=(
        Mistake("no-positions", "the position rows are missing. Add wpe's rows 0 … T - 1 to the token rows."),
        Mistake(
            "first-block",
            "the first block runs every time. Loop over the blocks: for block in self.h: x = block(x).",
        ),
        Mistake("one-too-few", "the last block is left out. All n_layer blocks run."),
        Mistake("backwards", "the blocks run from the last to the first. Begin with h[0]."),
        Mistake(
            "no-final-norm",
            "the final LayerNorm is missing. After the last block, before the head, comes ln_f.",
        ),
        Mistake(
            "last-position",
            "there are logits for the last position only. forward gives them for every position: training uses all.",
        ),
        Mistake(
            "no-head",
            "the head is missing: these are the hidden states, shape (B, T, C). Apply lm_head.",
        ),
        Mistake("softmax", "these are probabilities. The model returns logits; leave softmax to the caller."),
    ),
    cases=cases,
    probes=(learns, refuses_too_many_tokens),
    adapt=AsFunction,
    hints=(
        "Ids in, logits out. Everything between is a stream of shape (B, T, C) that each block adds to.",
        "A module finds its parts only where it looks for them: attributes, and nn.ModuleList. And what makes two "
        "parts one?",
        "x = wte(ids) + wpe(arange(T)); for block in h: x = block(x); lm_head(ln_f(x)), with lm_head = nn.Linear(C, V, "
        "bias=False) and lm_head.weight = wte.weight. LayerNorm's eps is 1e-5.",
        "class GPT2(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n"
        "        self.wte = nn.Embedding(...)\n        self.wpe = ...\n        self.h = nn.ModuleList(...)\n"
        "        self.ln_f = ...\n        self.lm_head = ...\n        self.lm_head.weight = ...\n\n"
        "    def forward(self, input_ids):\n        ...",
    ),
    solution="""
import torch
from torch import nn

from gptlab.my_gpt2 import Block

class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        C = config.n_embd
        self.wte = nn.Embedding(config.vocab_size, C)
        self.wpe = nn.Embedding(config.n_positions, C)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(C, eps=1e-5)
        self.lm_head = nn.Linear(C, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        T = input_ids.shape[1]
        positions = torch.arange(T, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))
""",
    also_correct=(
        "from gptlab.my_gpt2 import GPT2\n",
        "from gptlab.model import GPT as GPT2\n",
        "from torch import nn\nfrom gptlab.block import Block\nfrom gptlab.embeddings import input_tensor\n"
        "class GPT2(nn.Module):\n"
        "    def __init__(self, config):\n"
        "        super().__init__()\n"
        "        self.wte = nn.Embedding(config.vocab_size, config.n_embd)\n"
        "        self.wpe = nn.Embedding(config.n_positions, config.n_embd)\n"
        "        self.h = nn.Sequential(*[Block(config) for _ in range(config.n_layer)])\n"
        "        self.ln_f = nn.LayerNorm(config.n_embd)\n"
        "    def forward(self, ids):\n"
        "        x = self.h(input_tensor(ids, self.wte.weight, self.wpe.weight))\n"
        "        return self.ln_f(x) @ self.wte.weight.T\n",
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nfrom gptlab.block import Block\n"
        "class GPT2(nn.Module):\n"
        "    def __init__(self, config):\n"
        "        super().__init__()\n"
        "        C, self.config = config.n_embd, config\n"
        "        self.lm_head = nn.Linear(C, config.vocab_size, bias=False)\n"
        "        self.wte = nn.Embedding(config.vocab_size, C, _weight=torch.empty(config.vocab_size, C))\n"
        "        self.wte.weight = self.lm_head.weight\n"
        "        self.wpe = nn.Embedding(config.n_positions, C)\n"
        "        self.ln_f = nn.LayerNorm(C)\n"
        "        self.h = nn.ModuleList()\n"
        "        for _ in range(config.n_layer):\n"
        "            self.h.append(Block(config))\n"
        "    def forward(self, input_ids):\n"
        "        B, T = input_ids.shape\n"
        "        if T > self.config.n_positions:\n"
        "            raise ValueError(f'{T} tokens are too many')\n"
        "        x = self.wte(input_ids) + self.wpe.weight[:T]\n"
        "        x = F.dropout(x, self.config.embd_pdrop, self.training)\n"
        "        for i in range(len(self.h)):\n"
        "            x = self.h[i](x)\n"
        "        return self.lm_head(self.ln_f(x))\n",
    ),
)
