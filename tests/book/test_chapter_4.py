"""The probe of chapter 4 sees every leak of a block that reads ahead, and none of one that does not."""

from __future__ import annotations

import ast
import json

import pytest
import torch
from prose_numbers import ROOT
from torch import Tensor, nn

from gptlab.block import Block
from tests.conftest import TINY


def leaks_of_the_chapter():
    """The function as the notebook has it."""
    cells = json.loads((ROOT / "book/04-block.ipynb").read_text("utf-8"))["cells"]
    (source,) = ("".join(cell["source"]) for cell in cells if "def leaks(" in "".join(cell["source"]))
    (function,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "leaks")
    space = {"torch": torch}
    exec(ast.unparse(function), space)
    return space["leaks"]


class ReadsAhead(nn.Module):
    """A block whose attention has no mask: it reads forwards, and then backwards."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        normed = self.block.ln_1(x)
        x = x + self.block.attn(normed) + self.block.attn(normed.flip(1)).flip(1)
        return x + self.block.mlp(self.block.ln_2(x))


@pytest.mark.parametrize("seed", range(10))
@torch.no_grad()
def test_the_probe_finds_all_pairs_of_a_block_without_a_mask_and_none_with_one(seed):
    torch.manual_seed(seed)
    block, x = Block(TINY).eval(), torch.randn(1, 8, TINY.n_embd)
    leaks = leaks_of_the_chapter()
    assert leaks(block, x) == 0
    assert leaks(ReadsAhead(block), x) == 28
