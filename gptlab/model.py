"""GPT-2: embeddings, a stack of blocks, a final LayerNorm, and the head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gptlab.block import Block
from gptlab.cache import KVCache
from gptlab.config import GPTConfig
from gptlab.embeddings import check_range, positions_of
from gptlab.tying import is_tied, tie, with_tied_head


class GPT(nn.Module):
    """GPT-2 as a module whose parameters bear the checkpoint's names (Radford et al. 2019, section 2.3).

    Building one has no side effect but drawing from PyTorch's random generator: seed it for the same weights.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            tie(self)
        init_weights(self)
        self.register_load_state_dict_pre_hook(GPT._before_loading)
        self.register_load_state_dict_post_hook(GPT._after_loading)

    def embed(self, input_ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T C"]:
        """The input tensor, by the two tables as modules: what is hooked to them runs, and what replaces them.

        Raises:
            TypeError, ValueError: as :func:`gptlab.embeddings.input_tensor`, which computes the same.
        """
        positions = positions_of(input_ids, start, self.config.n_positions)
        try:
            return self.wte(input_ids) + self.wpe(positions)
        except IndexError:
            check_range(input_ids, self.config.vocab_size)
            raise

    def hidden(self, input_ids: Int[Tensor, "B T"], cache: KVCache | None = None) -> Float[Tensor, "B T C"]:
        """The final hidden states, after ``ln_f``.

        Args:
            input_ids: token ids, int64 or int32. Rows have one length: there is no padding mask.
            cache: the keys and values of the tokens before ``input_ids``; these are added to it.

        Raises:
            TypeError: the ids are not integers.
            ValueError: an id or a position is out of range, or the cache does not fit.
        """
        if cache is not None and len(cache.layers) != len(self.h):
            raise ValueError(f"the cache has {len(cache.layers)} layers, the model {len(self.h)} blocks")
        start = 0 if cache is None else cache.rewind()
        x = self.drop(self.embed(input_ids, start))
        for i, block in enumerate(self.h):
            x = block(x, None if cache is None else cache.layers[i])
        return self.ln_f(x)

    def forward(self, input_ids: Int[Tensor, "B T"], cache: KVCache | None = None) -> Float[Tensor, "B T V"]:
        """Logits for the next token at every position: ``lm_head(hidden(input_ids))``."""
        return self.lm_head(self.hidden(input_ids, cache))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GPT:
        # .half(), .to(device) and .to_empty() come through here; the last one makes new Parameters.
        tied = is_tied(self)
        super()._apply(fn, recurse)
        if tied:
            self.lm_head.weight = self.wte.weight
        return self

    # A tied model stays tied when a state dict is loaded into it, with assign=True or in a wrapper too, and whether
    # or not the state dict repeats the head. PyTorch calls these before and after.

    def _before_loading(self, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
        self._tied_before_loading = is_tied(self)
        if self._tied_before_loading:
            with_tied_head(state_dict, prefix)

    def _after_loading(self, *_: Any) -> None:
        if self._tied_before_loading:
            self.lm_head.weight = self.wte.weight


@torch.no_grad()
def init_weights(model: GPT) -> None:
    """Draw GPT-2's initial weights, in place; a tied tensor is drawn once.

    Weights are normal with standard deviation 0.02. The two projections of each block that write into the
    residual stream get 0.02 / √(2L), so that the sum of 2L contributions does not grow with depth: the paper
    says 1/√N with N residual layers (Radford et al. 2019, section 2.3), and N = 2L is the usual reading, that
    of transformers and nanoGPT. Biases are 0 and gains 1.
    """
    std = model.config.initializer_range
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            parameter.zero_()
        elif "ln_" in name:
            parameter.fill_(1.0)
        elif name.endswith("c_proj.weight"):
            parameter.normal_(std=std / math.sqrt(2 * model.config.n_layer))
        else:
            parameter.normal_(std=std)
