import pytest
import torch

from gptlab.embeddings import input_tensor

W_E, W_P = torch.randn(7, 5), torch.randn(4, 5)


def test_each_row_is_token_plus_position():
    ids = torch.tensor([[6, 0, 6], [3, 3, 3]])
    X = input_tensor(ids, W_E, W_P)
    for b in range(2):
        for t in range(3):
            assert torch.equal(X[b, t], W_E[ids[b, t]] + W_P[t])


def test_start_shifts_the_positions():
    assert torch.equal(input_tensor(torch.tensor([[2]]), W_E, W_P, start=3)[0, 0], W_E[2] + W_P[3])


def test_the_weights_are_not_changed_and_get_gradients():
    table = W_E.clone().requires_grad_()
    positions = W_P.clone().requires_grad_()
    input_tensor(torch.tensor([[1, 1]]), table, positions).sum().backward()
    assert torch.equal(table.detach(), W_E)
    assert table.grad[1].tolist() == [2.0] * 5  # read twice
    assert table.grad[[0, 2, 3, 4, 5, 6]].abs().sum() == 0
    assert positions.grad[:2].tolist() == [[1.0] * 5] * 2


@pytest.mark.parametrize("bad", [7, -1])
def test_a_token_id_without_a_row_is_named(bad):
    with pytest.raises(
        ValueError, match=rf"token id {bad} at \[1, 2\] is out of range: valid ids are 0 to 6"
    ):
        input_tensor(torch.tensor([[0, 1, 2], [3, 4, bad]]), W_E, W_P)


def test_a_position_without_a_row_is_named():
    with pytest.raises(ValueError, match=r"positions 0 to 4 are asked for, but W_P has rows 0 to 3"):
        input_tensor(torch.zeros(1, 5, dtype=torch.long), W_E, W_P)
    with pytest.raises(ValueError, match="positions 3 to 4"):
        input_tensor(torch.zeros(1, 2, dtype=torch.long), W_E, W_P, start=3)
    with pytest.raises(ValueError, match="positions -1 to 0"):
        input_tensor(torch.zeros(1, 2, dtype=torch.long), W_E, W_P, start=-1)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (torch.zeros(1, 2), TypeError, r"token ids are integers, not torch.float32: use input_ids.long\(\)"),
        (torch.zeros(1, 2, dtype=torch.bool), TypeError, "not torch.bool"),
        (torch.zeros(2, dtype=torch.long), ValueError, r"must have shape \(B, T\), not \(2,\)"),
        (torch.zeros(1, 0, dtype=torch.long), ValueError, "hold no token"),
    ],
)
def test_ids_of_another_kind_are_refused(as_a_user, ids, error, message):
    with pytest.raises(error, match=message):
        input_tensor(ids, W_E, W_P)


def test_int32_ids_give_the_same_tensor():
    ids = torch.tensor([[5, 1]])
    assert torch.equal(input_tensor(ids.int(), W_E, W_P), input_tensor(ids, W_E, W_P))
