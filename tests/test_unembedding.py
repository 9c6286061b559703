import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from gptlab.unembedding import chunked_token_loss, next_token_loss, token_loss


def test_equal_logits_cost_the_logarithm_of_the_vocabulary():
    assert token_loss(torch.zeros(2, 3, 50257), torch.zeros(2, 3, dtype=torch.long)).item() == pytest.approx(
        math.log(50257)
    )


def test_tr1_one_shift_no_more_and_no_less():
    """A bigram that predicts the next id perfectly: id + 1."""
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    logits = torch.full((1, 5, 7), -1e4).scatter(-1, (ids + 1)[..., None], 0.0)
    assert next_token_loss(logits, ids).item() == 0
    assert token_loss(logits[:, :-1], ids[:, 1:]).item() == 0
    assert token_loss(logits, ids).item() > 1000  # not shifted
    assert next_token_loss(logits[:, :-1], ids[:, 1:]).item() > 1000  # shifted twice


def test_tr1_one_token_has_no_next():
    with pytest.raises(ValueError, match=r"\(1, 1\): a next token needs at least two tokens"):
        next_token_loss(torch.zeros(1, 1, 7), torch.tensor([[3]]))


def test_tr2_positions_are_averaged_not_rows():
    """Token losses {8} and {1, 1, 2} have mean 3, not the mean 4.667 of two means."""
    wanted = torch.tensor([[8.0, 0, 0], [1.0, 1, 2]])
    p = (-wanted.double()).exp()
    logits = torch.stack([p.log(), (1 - p).log()], dim=-1)
    targets = torch.tensor([[0, -100, -100], [0, 0, 0]])
    assert token_loss(logits, targets).item() == pytest.approx(3.0)


def test_tr4_all_targets_ignored_is_an_error_not_nan():
    with pytest.raises(ValueError, match="every one of the 6 targets is -100"):
        token_loss(torch.zeros(2, 3, 7), torch.full((2, 3), -100))


@pytest.mark.parametrize("target", [7, -1])
def test_a_target_without_a_logit_is_named(target):
    with pytest.raises(ValueError, match=f"target {target} is out of range: valid ids are 0 to 6"):
        token_loss(torch.zeros(1, 2, 7), torch.tensor([[0, target]]))


def test_shapes_that_do_not_fit_are_named(as_a_user):
    with pytest.raises(ValueError, match=r"targets of shape \(2, 4\) do not fit positions of \(2, 3\)"):
        token_loss(torch.zeros(2, 3, 7), torch.zeros(2, 4, dtype=torch.long))


@given(st.integers(1, 9), st.integers(0, 1000))
def test_chunking_changes_neither_loss_nor_gradients(n_chunks, seed):
    torch.manual_seed(seed)
    hidden, W_U = torch.randn(2, 3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    targets = torch.randint(7, (2, 3))
    targets[0, 0] = -100
    full = token_loss(hidden @ W_U, targets)
    chunked = chunked_token_loss(hidden, W_U, targets, n_chunks=n_chunks)
    assert_close(chunked, full)
    for a, b in zip(
        torch.autograd.grad(chunked, (hidden, W_U)), torch.autograd.grad(full, (hidden, W_U)), strict=True
    ):
        assert_close(a, b)


def test_a_mark_of_ones_own_is_ignored():
    hidden, W_U = torch.randn(1, 3, 5), torch.randn(5, 7)
    targets = torch.tensor([[2, 4, 6]])
    marked = torch.tensor([[2, -1, 6]])
    kept = [0, 2]
    expected = token_loss(hidden[:, kept] @ W_U, targets[:, kept])
    assert_close(token_loss(hidden @ W_U, marked, ignore_index=-1), expected)
    assert_close(chunked_token_loss(hidden, W_U, marked, ignore_index=-1), expected)


def test_chunking_keeps_no_logits_for_backward():
    hidden, W_U = torch.randn(2, 8, 5, requires_grad=True), torch.randn(5, 1000, requires_grad=True)
    targets = torch.randint(1000, (2, 8))

    def largest_saved(loss) -> int:
        sizes = []

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss()
        return max(sizes)

    assert largest_saved(lambda: token_loss(hidden @ W_U, targets)) == 16 * 1000
    chunked = largest_saved(lambda: chunked_token_loss(hidden, W_U, targets, n_chunks=4))
    assert chunked == 4 * 5  # a chunk's rows of hidden


def test_no_more_than_a_chunk_of_logits_is_ever_there(monkeypatch):
    rows = []
    plain = torch.nn.functional.cross_entropy
    monkeypatch.setattr(
        torch.nn.functional,
        "cross_entropy",
        lambda logits, *a, **k: rows.append(len(logits)) or plain(logits, *a, **k),
    )
    chunked_token_loss(
        torch.zeros(2, 8, 5), torch.zeros(5, 7), torch.zeros(2, 8, dtype=torch.long), n_chunks=4
    )
    assert rows == [4, 4, 4, 4]


def test_chunking_checks_its_targets():
    with pytest.raises(ValueError, match="target 7 is out of range"):
        chunked_token_loss(torch.zeros(1, 1, 5), torch.zeros(5, 7), torch.tensor([[7]]))


def test_int32_targets_are_fine_and_floats_are_named(as_a_user):
    logits, targets = torch.randn(2, 3, 7), torch.randint(7, (2, 3))
    assert torch.equal(token_loss(logits, targets.int()), token_loss(logits, targets))
    with pytest.raises(TypeError, match=r"integers, not torch.float32: use targets.long\(\)"):
        token_loss(logits, targets.float())


def test_the_sum_over_many_half_precision_positions_does_not_overflow():
    hidden, W_U = torch.zeros(16, 1024, 4).half(), torch.zeros(4, 999).half()
    loss = chunked_token_loss(hidden, W_U, torch.ones(16, 1024).long())
    assert loss.item() == pytest.approx(math.log(999), rel=1e-3)


def test_zero_chunks_are_refused():
    with pytest.raises(ValueError, match="n_chunks=0"):
        chunked_token_loss(
            torch.zeros(1, 2, 5), torch.zeros(5, 7), torch.zeros(1, 2, dtype=torch.long), n_chunks=0
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_targets_of_a_type_that_cannot_hold_the_mark_for_none_are_refused(as_a_user, dtype):
    """As uint8, -100 is 156: every target 156 would silently not count."""
    with pytest.raises(TypeError, match=rf"integers, not {dtype}: use targets.long\(\)"):
        token_loss(torch.zeros(2, 3, 300), torch.ones(2, 3, dtype=dtype))
