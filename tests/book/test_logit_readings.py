"""What chapters 6 and 7 say of logits, tested against what they print and against the model that they measure."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch
from nbformat import NotebookNode
from prose_numbers import ROOT, read_notebook
from torch import Tensor

import gptlab
from gptlab import data
from gptlab.model import GPT
from gptlab.unembedding import token_loss


def printed(nb: NotebookNode, code: str) -> str:
    """What the one cell that contains ``code`` has printed."""
    (cell,) = [cell for cell in nb.cells if cell.cell_type == "code" and code in cell.source]
    return "".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)


def test_chapter_7_shows_that_length_decides_at_equal_angles_and_not_elsewhere() -> None:
    table = printed(read_notebook(ROOT / "book" / "07-weight-tying.ipynb"), "halfway")
    line = r" *(\d+)° +(\d+)° +(\d+)° +(\S+) +(\S+) +([12])"
    rows = [[float(x) for x in found] for found in re.findall(line, table)]
    assert len(rows) == 10
    for _, to_1, to_2, z_1, z_2, winner in rows:  # the second row is the longer one
        assert z_1 == pytest.approx(math.cos(math.radians(to_1)), abs=0.01)
        assert z_2 == pytest.approx(math.hypot(2, 1.2) * math.cos(math.radians(to_2)), abs=0.03)
        assert winner == (1 if z_1 > z_2 else 2)
    ahead = {degrees: winner == 2 for degrees, *_, winner in rows}
    facing = {degrees: to_2 < 90 for degrees, _, to_2, *_ in rows}
    assert [d for d in ahead if ahead[d] != facing[d]] == [135, 315]
    equal = [(to_2, winner) for _, to_1, to_2, _, _, winner in rows if to_1 == to_2]
    assert equal == [(15, 2), (165, 1)]


@pytest.fixture(scope="module")
def trained() -> GPT:
    return gptlab.from_pretrained("shakespeare").eval()


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    tokens = data.encode_documents(data.shakespeare("validation"))
    return data.windows_at(tokens, [1_000, 60_000], 200)


@torch.no_grad()
def test_logits_have_the_rank_of_the_width_and_their_log_softmax_one_more(
    trained: GPT, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    C, some = trained.config.n_embd, y.unique()[:140]
    z = trained.hidden(x).flatten(0, 1)[:140].double() @ trained.lm_head.weight.double().T
    ranks = [int(torch.linalg.matrix_rank(grid[:, some])) for grid in (z, z.log_softmax(-1), z.softmax(-1))]
    assert ranks == [C, C + 1, 140]


@torch.no_grad()
def test_each_block_lowers_the_loss_of_the_logit_lens_and_the_last_reading_is_the_model(
    trained: GPT, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    stream, losses = trained.embed(x), []
    for n in range(len(trained.h) + 1):
        if n:
            stream = trained.h[n - 1](stream)
        logits = trained.lm_head(trained.ln_f(stream))
        losses.append(token_loss(logits, y).item())
    assert torch.equal(logits, trained(x))
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert losses[0] > math.log(trained.config.vocab_size) > losses[1]


def test_chapter_6_prints_the_lens_with_and_without_the_final_layer_norm_and_three_ranks() -> None:
    nb = read_notebook(ROOT / "book" / "06-unembedding.ipynb")
    lens = printed(nb, "def lens(").partition("blocks  leader")[2]
    assert "loss without `ln_f`" in lens
    rows = re.findall(r"^ +(\d)  ` \w+` +(\S+) +(\S+)$", lens, flags=re.M)
    assert [n for n, _, _ in rows] == list("0123456")
    assert [float(without) < float(loss) for _, loss, without in rows] == [True] * 3 + [False] * 4
    assert re.findall(r"rank (\d+)", printed(nb, "matrix_rank")) == ["128", "129", "200"]
