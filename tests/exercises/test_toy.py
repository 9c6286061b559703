"""The model on which generation is checked: quick, and as sensitive as a real one."""

from __future__ import annotations

import pytest
import torch

from gptlab.exercises.toy import StepwiseToy, Toy
from tests.conftest import random_ids


def toy(kind: type[Toy] = Toy) -> Toy:
    return kind(13, 8, 6, torch.Generator().manual_seed(0))


def test_read_in_pieces_it_gives_the_same_logits():
    ids, model = random_ids(2, 7, 13), toy(StepwiseToy)
    first, past = model(ids[:, :4], 0, None)
    second, past = model(ids[:, 4:5], 4, past)
    third, past = model(ids[:, 5:], 5, past)
    assert torch.allclose(torch.cat([first, second, third], dim=1), toy()(ids), atol=1e-5)
    assert past.shape == (2, 7, 6)
    assert model.read == 7


def test_every_earlier_token_its_position_and_no_later_one_count():
    ids = random_ids(1, 6, 13)
    logits = toy()(ids)
    for t in range(6):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % 13
        moved = (toy()(changed) - logits).abs().amax(dim=(0, 2)) > 1e-3
        assert moved.tolist() == [False] * t + [True] * (6 - t)
    assert not torch.allclose(toy()(ids.flip(1))[:, -1], toy()(ids[:, [0]]).mean(1), atol=1e-3)


@pytest.mark.parametrize(("start", "T"), [(0, 9), (5, 4), (-1, 2)])
def test_a_position_that_is_not_there_is_an_error(start, T):
    with pytest.raises(ValueError, match="there are 0 to 7"):
        toy(StepwiseToy)(random_ids(1, T, 13), start, None)
