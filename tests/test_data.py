import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlab import data
from gptlab.data import Batches
from gptlab.unembedding import token_loss

EOT = 50256


def test_the_shipped_corpus_has_its_size():
    train, validation = data.shakespeare("train"), data.shakespeare("validation")
    assert len(train) == 4_671_598
    assert len(data.encode_documents(train)) == 1_435_293
    assert len(set(data.encode_documents(train).tolist())) == 18_846
    assert len(data.encode_documents(validation)) == 113_585


def test_the_held_out_works_are_not_in_the_text_to_train_on():
    train = data.shakespeare("train")
    works = data.shakespeare("validation").split("<|endoftext|>")
    assert len(works) == 3
    for work in works:
        assert work.strip()[2000:2200] not in train


def test_a_separator_becomes_one_token_between_documents():
    assert data.encode_documents("Hello, I am<|endoftext|>Hello").tolist() == [
        15496,
        11,
        314,
        716,
        EOT,
        15496,
    ]


def test_tk9_token_ids_above_32767_survive_the_disk(tmp_path):
    ids = np.array([0, 32767, 32768, 50256])
    data.save_tokens(ids, tmp_path / "a.npy")
    loaded = data.load_tokens(tmp_path / "a.npy", 50257)
    assert loaded.dtype == np.uint16
    assert loaded.tolist() == ids.tolist()
    assert (tmp_path / "a.npy").stat().st_size == 128 + 2 * len(ids)
    x, y = Batches(loaded, 2, 3, seed=0).next()
    assert x.dtype == y.dtype == torch.int64
    assert y[0, -1] == 50256


@pytest.mark.parametrize("ids", [[65536], [-1]])
def test_ids_that_do_not_fit_into_two_bytes_are_refused(tmp_path, ids):
    with pytest.raises(ValueError, match="do not fit into uint16"):
        data.save_tokens(np.array(ids), tmp_path / "a.npy")
    assert not list(tmp_path.iterdir())


def test_a_foreign_vocabulary_is_named_with_its_id(tmp_path):
    data.save_tokens(np.array([1, 2, 50300]), tmp_path / "a.npy")
    with pytest.raises(ValueError, match="token id 50300, but the model's vocabulary ends at 50256"):
        data.load_tokens(tmp_path / "a.npy", 50257)


def damaged(path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-3])


def not_tokens(path) -> None:
    path.write_text("To be, or not to be")


def other_numbers(path) -> None:
    np.save(path, np.zeros((2, 3)))


def pickled(path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


def empty(path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [damaged, not_tokens, other_numbers, pickled, empty])
def test_a_corrupt_file_of_tokens_is_a_clear_error(tmp_path, spoil):
    path = tmp_path / "a.npy"
    data.save_tokens(np.arange(100), path)
    spoil(path)
    with pytest.raises(ValueError, match=r"a\.npy (is no complete file of tokens|holds float64)"):
        data.load_tokens(path, 50257)


def test_a_missing_file_of_tokens_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        data.load_tokens(tmp_path / "a.npy", 50257)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "holds no text"), (b" \n ", "holds no text"), (b"caf\xe9", "is not UTF-8 text: byte 3 is 0xe9")],
)
def test_a_text_that_cannot_be_read_is_a_clear_error(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        data.read_text(tmp_path / "a.txt")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffTo be".encode())
    assert data.read_text(tmp_path / "a.txt") == "To be"


@given(st.lists(st.text("ab \n", max_size=8), min_size=3, max_size=30), st.floats(0.05, 0.9))
def test_the_two_parts_of_a_text_are_the_text(lines, share):
    text = "\n".join(lines)
    try:
        first, last = data.split_text(text, share)
    except ValueError:
        assert "\n" not in text[int(len(text) * (1 - share)) : -1]
    else:
        assert first + last == text
        assert first.endswith("\n")
        assert last


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        data.split_text("a\nb\n", share)


def test_targets_are_the_next_tokens():
    x, y = Batches(np.arange(50), 4, 7, seed=0).next()
    assert torch.equal(y, x + 1)
    assert x.shape == (4, 7)


def test_every_window_can_be_drawn_the_last_one_too():
    batches = Batches(np.arange(6), 200, 3, seed=0)
    assert set(batches.next()[0][:, 0].tolist()) == {0, 1, 2}


def test_a_text_of_exactly_one_window_is_enough_and_one_token_less_is_not():
    assert Batches(np.arange(5), 1, 4, seed=0).next()[1].tolist() == [[1, 2, 3, 4]]
    with pytest.raises(ValueError, match="4 tokens are too few for a window of 4 .* at most 3"):
        Batches(np.arange(4), 1, 4, seed=0)


def test_a_saved_place_gives_the_same_batches_whatever_is_drawn_in_between():
    batches = Batches(np.arange(500), 3, 5, seed=1)
    batches.next()
    state = batches.state_dict()
    expected = [batches.next()[0] for _ in range(3)]
    torch.manual_seed(99)
    torch.rand(7)
    other = Batches(np.arange(500), 3, 5, seed=2)
    other.load_state_dict(state)
    assert all(torch.equal(other.next()[0], x) for x in expected)


@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 5))
def test_windows_in_order_cover_every_whole_window_once(n, context, batch_size):
    if n <= context:
        return
    rows = [row for x, y in data.windows_in_order(np.arange(n), batch_size, context) for row in x.tolist()]
    assert [token for row in rows for token in row] == list(range(len(rows) * context))
    assert n - context <= len(rows) * context < n


def test_tr4_padding_is_told_from_a_real_end_by_the_mask():
    ids = torch.tensor([[40, 41, EOT, EOT, EOT]])
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    assert data.mask_padding(ids, mask).tolist() == [[40, 41, EOT, -100, -100]]


def test_tr4_all_ignored_is_a_clear_error():
    labels = data.mask_padding(torch.tensor([[EOT, EOT]]), torch.tensor([[0, 0]]))
    with pytest.raises(ValueError, match="nothing is left to score"):
        token_loss(torch.zeros(1, 2, 50257), labels)


def test_there_are_two_parts_of_the_shipped_text(as_a_user):
    with pytest.raises(ValueError, match="part='valid' must be 'train' or 'validation'"):
        data.shakespeare("valid")


def test_tokens_that_a_file_would_change_are_not_saved(as_a_user, tmp_path):
    file = tmp_path / "tokens.npy"
    with pytest.raises(TypeError, match="token ids are integers, not float64"):
        data.save_tokens(np.array([1.7, 2.2]), file)
    with pytest.raises(ValueError, match=r"tokens of shape \(2, 3\) must be in one row"):
        data.save_tokens(np.zeros((2, 3), dtype=np.int64), file)
    assert not file.exists()


@pytest.mark.parametrize("batch_size", [0, -1])
def test_windows_in_order_need_a_batch_size(batch_size):
    with pytest.raises(ValueError, match=f"batch_size={batch_size} must be at least 1"):
        next(data.windows_in_order(np.arange(40, dtype=np.uint16), batch_size, 4))


@pytest.mark.parametrize("start", [-1, 36, 38])
def test_a_window_that_does_not_lie_in_the_tokens_is_refused_and_not_cut_short(start):
    with pytest.raises(
        ValueError, match=f"start {start} is out of range: windows of 4 tokens begin at 0 to 35"
    ):
        data.windows_at(np.arange(40, dtype=np.uint16), [0, start], 4)
