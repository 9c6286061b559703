import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlab import fused_loss
from gptlab.fused_loss import fused_token_loss
from gptlab.unembedding import token_loss

B, T, C, V = 3, 7, 24, 59


@pytest.fixture
def small_pieces(monkeypatch):
    """Several pieces in both directions, and a smaller one at each end."""
    monkeypatch.setattr(fused_loss, "ROWS", 4)
    monkeypatch.setattr(fused_loss, "COLUMNS", 16)


def inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(B, T, C, generator=generator, requires_grad=True)
    W_U = torch.randn(C, V, generator=generator, requires_grad=True)
    return hidden, W_U, torch.randint(V, (B, T), generator=generator)


def loss_and_gradients(function, hidden, W_U, targets, **options):
    loss = function(hidden, W_U, targets, **options)
    return loss, torch.autograd.grad(loss, [hidden, W_U])


def plain(hidden, W_U, targets, **options):
    return token_loss(hidden @ W_U, targets, **options)


@pytest.mark.usefixtures("small_pieces")
@given(st.integers(0, 2**31), st.lists(st.integers(0, B * T - 1), max_size=B * T - 1))
def test_loss_and_gradients_are_those_of_the_plain_form_whatever_is_ignored(seed, ignored):
    hidden, W_U, targets = inputs(seed)
    targets.view(-1)[ignored] = -100
    if (targets == -100).all():
        return
    expected, wanted = loss_and_gradients(plain, hidden, W_U, targets)
    loss, found = loss_and_gradients(fused_token_loss, hidden, W_U, targets)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, wanted)


def test_one_piece_gives_the_same_as_many(monkeypatch):
    hidden, W_U, targets = inputs()
    whole, wanted = loss_and_gradients(fused_token_loss, hidden, W_U, targets)
    monkeypatch.setattr(fused_loss, "ROWS", 5)
    monkeypatch.setattr(fused_loss, "COLUMNS", 10)
    pieces, found = loss_and_gradients(fused_token_loss, hidden, W_U, targets)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("small_pieces")
def test_a_loss_that_is_scaled_scales_the_gradients_and_backward_can_run_twice():
    hidden, W_U, targets = inputs()
    _, (dh, dW) = loss_and_gradients(plain, hidden, W_U, targets)
    loss = 0.25 * fused_token_loss(hidden, W_U, targets)
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(hidden.grad, 0.5 * dh)
    torch.testing.assert_close(W_U.grad, 0.5 * dW)


@pytest.mark.usefixtures("small_pieces")
def test_without_gradients_the_loss_is_the_same_and_nothing_is_kept():
    hidden, W_U, targets = inputs()
    with torch.no_grad():
        loss = fused_token_loss(hidden, W_U, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain(hidden, W_U, targets).detach())


def test_only_the_hidden_states_may_learn():
    hidden, W_U, targets = inputs()
    fused_token_loss(hidden, W_U.detach(), targets).backward()
    _, (dh, _) = loss_and_gradients(plain, hidden, W_U, targets)
    torch.testing.assert_close(hidden.grad, dh)


def test_logits_of_a_thousand_overflow_nothing():
    hidden, W_U, targets = inputs()
    big = (300 * hidden.detach()).requires_grad_()
    expected, wanted = loss_and_gradients(plain, big, W_U, targets)
    loss, found = loss_and_gradients(fused_token_loss, big, W_U, targets)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, wanted)


def test_the_inputs_keep_their_values():
    hidden, W_U, targets = inputs()
    before = hidden.clone(), W_U.clone(), targets.clone()
    fused_token_loss(hidden, W_U, targets).backward()
    for now, then in zip((hidden, W_U, targets), before, strict=True):
        assert torch.equal(now, then)


def test_it_needs_less_memory_than_the_plain_form():
    """Counted in bytes kept for the backward pass: two gradients, and no tensor of the logits' size."""
    hidden, W_U, targets = inputs()

    def kept(function) -> int:
        sizes = []

        def note(tensor):
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            function(hidden, W_U, targets)
        return sum(sizes)

    assert kept(fused_token_loss) == hidden.nbytes + W_U.nbytes
    assert kept(plain) >= B * T * V * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:, 1:], "do not fit positions"),
        (lambda y: torch.full_like(y, -100), "nothing is left to score"),
        (lambda y: y.masked_fill(y == y[0, 0], 59), "target 59 is out of range"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_bad_targets_are_named_as_by_the_plain_form(change, message):
    hidden, W_U, targets = inputs()
    with pytest.raises(ValueError, match=message):
        fused_token_loss(hidden, W_U, change(targets))


def test_a_gradient_of_the_gradient_is_refused_and_not_wrong():
    hidden, W_U, targets = inputs()
    scale = torch.tensor(2.0, requires_grad=True)
    loss = scale * fused_token_loss(hidden, W_U, targets)
    (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()
