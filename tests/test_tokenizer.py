import socket
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlab import get_tokenizer
from gptlab.tokenizer import RANKS_SHA256, Tokenizer, parse_ranks

tokenizer = get_tokenizer()


def test_the_vocabulary_is_gpt2s():
    assert tokenizer.vocab_size == 50257
    assert tokenizer.end_of_text == 50256
    assert len(tokenizer.ranks) == 50256
    assert tokenizer.encode("Hello, I am") == [15496, 11, 314, 716]


def test_tk1_end_of_text_typed_by_a_user_is_text():
    text = "note <|endoftext|> end"
    assert tokenizer.encode(text) == [11295, 1279, 91, 437, 1659, 5239, 91, 29, 886]
    assert tokenizer.encode(text, special=True) == [11295, 220, 50256, 886]


def test_tk2_lone_surrogates():
    assert tokenizer.encode("\udbc0") == [4210]
    assert tokenizer.encode("\ud83d\udc4d") == [41840, 235]


def test_tk3_streaming_never_shows_half_a_character():
    assert list(tokenizer.stream_decode([8582, 97, 244])) == ["", "", "🤖"]
    assert list(tokenizer.stream_decode([8582, 97])) == ["", "", "\ufffd"]


def test_tk4_a_trailing_space_changes_the_tokens():
    assert tokenizer.encode("The cat ") + tokenizer.encode("sat") == [464, 3797, 220, 49720]
    assert tokenizer.encode("The cat sat") == [464, 3797, 3332]


def test_tk5_decoding_leaves_spaces_alone():
    assert tokenizer.decode([87, 318, 5633]) == "x is ?"


@pytest.mark.parametrize("token", [50257, -1, 50303])
def test_tk6_an_id_without_a_token_is_an_error(token):
    with pytest.raises(ValueError, match=f"token id {token} is out of range: valid ids are 0 to 50256"):
        tokenizer.decode([464, token])


def test_tk7_long_repeats_and_long_white_space():
    assert len(tokenizer.encode("a" * 100_000)) == 25_000
    assert len(tokenizer.encode("^" * 1_000_000)) == 250_000
    for text in (" " * 1_000_000, " " * 1_000_000 + "word", "\n" * 1_000_000 + "word\t" * 3):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tk7_takes_no_longer_than_many_times_a_text_of_words():
    """A ratio: work that grew with the square of the length would be thousands of times slower."""

    def seconds(text):
        start = time.perf_counter()
        tokenizer.encode(text)
        return time.perf_counter() - start

    words = min(seconds("word " * 20_000) for _ in range(3))
    assert seconds("a" * 100_000) < 50 * words
    assert seconds("^" * 1_000_000) < 500 * words


def test_tk8_no_network_is_needed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the tokenizer opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    get_tokenizer.cache_clear()
    assert get_tokenizer().encode("offline") == [2364, 1370]


def test_a_damaged_vocabulary_is_refused():
    with pytest.raises(ValueError, match=f"expected {RANKS_SHA256}: the file is damaged, reinstall gptlab"):
        parse_ranks(b"IQ== 0\n")


def test_cutting_round_long_white_space_changes_no_token():
    text = "a" + " \n" * 7000 + "b" + " " * 20_000 + "<|endoftext|>" + "\n\n" * 8000
    plain = tokenizer._encoding
    assert tokenizer.encode(text) == plain.encode_ordinary(text)
    assert tokenizer.encode(text, special=True) == plain.encode(text, allowed_special="all")


@given(st.text())
def test_decoding_undoes_encoding(text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(alphabet="ab 1'\n\t\x85\u2003é🤖日", max_size=30))
def test_no_token_crosses_the_border_of_a_piece(text):
    pieces = tokenizer.split(text)
    assert "".join(pieces) == text
    assert [token for piece in pieces for token in tokenizer.encode(piece)] == tokenizer.encode(text)


@given(st.lists(st.integers(0, 50256), max_size=20))
def test_streaming_and_decoding_give_the_same_text(ids):
    assert "".join(tokenizer.stream_decode(ids)) == tokenizer.decode(ids)


def test_ids_may_come_as_arrays_or_tensors_of_integers():
    assert tokenizer.decode(np.array([15496, 11], dtype=np.uint16)) == "Hello,"
    assert tokenizer.decode(torch.tensor([15496, 11])) == "Hello,"


def test_floats_and_bytes_are_refused(as_a_user):
    with pytest.raises(TypeError, match="float"):
        tokenizer.decode([15496.0])
    with pytest.raises(TypeError, match="text must be a str, not bytes; decode bytes first"):
        tokenizer.encode(b"Hello")


def test_a_tokenizer_of_one_byte_tokens():
    tiny = Tokenizer({bytes([i]): i for i in range(256)})
    assert tiny.encode("é") == [195, 169]
    assert tiny.end_of_text == 256
