import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlab import bpe, get_tokenizer
from gptlab.data import shakespeare

# What pieces are made of: letters, numerals, contractions, punctuation, several kinds of white space, a mark.
MIXED = st.text(alphabet="ab 1'st.!\n\t\u2003é\u0301日", max_size=60)


def tokens_never_emitted(text, merges):
    """The learned tokens that encoding ``text`` does not emit, each with the vocabulary as it was then."""
    ranks = bpe.token_ranks(merges)
    pieces = sorted({piece.encode() for piece in bpe.split(text)})
    never = []
    for token, rank in ranks.items():
        known = {other: r for other, r in ranks.items() if r <= rank}
        if rank >= 256 and not any(
            token in bpe.merge_steps(piece, known)[-1] for piece in pieces if token in piece
        ):
            never.append(token)
    return never


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(bpe).failed == 0


def test_pairs_that_overlap_are_all_counted_and_nothing_wraps_round():
    assert bpe.pair_counts([1, 1, 1, 2]) == {(1, 1): 2, (1, 2): 1}
    assert bpe.pair_counts([1]) == {}


def test_a_pair_and_its_mirror_image_are_two_pairs():
    assert bpe.pair_counts([1, 2, 1]) == {(1, 2): 1, (2, 1): 1}


def test_merging_goes_from_left_to_right_and_leaves_the_input_alone():
    ids = [3, 3, 3, 3, 3]
    assert bpe.merge_pair(ids, (3, 3), 9) == [9, 9, 3]
    assert ids == [3, 3, 3, 3, 3]


def test_the_first_merge_of_low_lower_lowest_is_lo():
    merges = bpe.learn_merges("low lower lowest", 3)
    assert list(merges.items())[:2] == [((ord("l"), ord("o")), 256), ((256, ord("w")), 257)]


def test_learning_stops_when_one_id_is_left():
    assert len(bpe.learn_merges("aaaa", 100)) == 2
    assert bpe.learn_merges("", 5) == {}
    with pytest.raises(ValueError, match="n_merges=-1"):
        bpe.learn_merges("a", -1)


@given(st.text(max_size=60), st.integers(0, 20))
def test_merges_lose_nothing_and_each_makes_the_text_shorter(text, n_merges):
    ids = list(text.encode())
    parts = {i: bytes([i]) for i in range(256)}
    for (left, right), new in bpe.learn_merges(text, n_merges).items():
        parts[new] = parts[left] + parts[right]
        shorter = bpe.merge_pair(ids, (left, right), new)
        assert len(shorter) < len(ids)
        ids = shorter
    assert b"".join(parts[i] for i in ids) == text.encode()


def test_no_pair_is_counted_across_the_border_of_a_piece():
    assert bpe.learn_merges("a b a b a b", 9) == {(32, 98): 256, (32, 97): 257}


@given(st.one_of(MIXED, st.text(max_size=60)), st.integers(0, 30))
def test_encoding_emits_each_token_that_was_learned(text, n_merges):
    merges = bpe.learn_merges(text, n_merges)
    assert len(bpe.token_ranks(merges)) == 256 + len(merges)
    assert tokens_never_emitted(text, merges) == []


def test_encoding_emits_each_token_that_was_learned_from_shakespeare():
    text = shakespeare("train")[:10_000]
    merges = bpe.learn_merges(text, 100)
    assert len(merges) == 100
    assert tokens_never_emitted(text, merges) == []


@given(st.one_of(MIXED, st.text(max_size=60)))
def test_the_readable_pattern_cuts_as_the_fast_one(text):
    assert bpe.split(text) == get_tokenizer().split(text)


def test_contractions_are_pieces_in_small_letters_only():
    assert bpe.split("We've WE'VE") == ["We", "'ve", " WE", "'", "VE"]


def test_a_run_of_white_space_leaves_its_last_space_to_the_word():
    assert bpe.split("a   b\n\nc  ") == ["a", "  ", " b", "\n", "\n", "c", "  "]


def test_no_token_of_gpt2_crosses_the_border_of_a_piece():
    texts = [get_tokenizer().decode([i]) for i in range(50_256)]
    whole = [text for text in texts if "\ufffd" not in text]
    assert len(whole) == 49_904
    assert [text for text in whole if len(bpe.split(text)) != 1] == []


@given(st.text(max_size=40))
def test_the_readable_steps_give_tiktokens_tokens(text):
    tokenizer = get_tokenizer()
    ids = [
        tokenizer.ranks[token]
        for piece in tokenizer.split(text)
        for token in bpe.merge_steps(piece.encode(), tokenizer.ranks)[-1]
    ]
    assert ids == tokenizer.encode(text)


def test_the_steps_of_unhappiness_are_not_the_longest_matches():
    assert bpe.merge_steps(b"unhappiness", get_tokenizer().ranks)[-1] == [b"un", b"h", b"appiness"]


def test_a_text_in_place_of_bytes_is_refused():
    with pytest.raises(TypeError):
        bpe.merge_steps("dog", {})


def test_a_pair_may_be_given_as_a_list(as_a_user):
    assert bpe.merge_pair([7, 7, 7, 5], [7, 7], 256) == [256, 7, 5]


def test_the_bytes_in_the_order_of_their_characters_are_gpt2s_first_ids():
    ranks = get_tokenizer().ranks
    assert [ranks[bytes([byte])] for byte in bpe.byte_characters()] == list(range(256))
