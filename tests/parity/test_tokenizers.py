"""Byte-pair encoding gives what Hugging Face's tokenizers give, from the same vocabulary or the same text."""

from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from gptlab import bpe, get_tokenizer, tokenizer
from gptlab.data import shakespeare

CHAPTER = Path(__file__).resolve().parents[2] / "book" / "01-tokens.ipynb"
SAMPLE = shakespeare("train")[:40_000]
CHARACTERS = bpe.byte_characters()


def as_characters(token: bytes) -> str:
    return "".join(CHARACTERS[byte] for byte in token)


@pytest.fixture(scope="module")
def keyed_by_pairs() -> tokenizers.Tokenizer:
    """GPT-2's tokenizer as OpenAI published it, with the merges as pairs, which are found from the ranks."""
    ranks = get_tokenizer().ranks
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            halves = [bytes([byte]) for byte in token]
            while len(halves) > 2:
                joined = [ranks.get(a + b, rank) for a, b in pairwise(halves)]
                i = joined.index(min(joined))
                halves[i : i + 2] = [halves[i] + halves[i + 1]]
            merges.append((rank, tuple(map(as_characters, halves))))
    theirs = tokenizers.Tokenizer(
        models.BPE(
            vocab={as_characters(token): rank for token, rank in ranks.items()},
            merges=[pair for _, pair in sorted(merges)],
        )
    )
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    return theirs


def test_the_characters_of_the_bytes_are_those_of_transformers():
    assert list(CHARACTERS.items()) == list(bytes_to_unicode().items())
    assert as_characters(b" world") == "Ġworld"


def test_the_first_pair_of_gpt2s_merges_is_a_space_and_t(keyed_by_pairs):
    assert keyed_by_pairs.encode(" t").tokens == ["Ġt"]
    assert keyed_by_pairs.token_to_id("Ġt") == 256


def test_ranks_keyed_by_bytes_cut_as_merges_keyed_by_pairs(keyed_by_pairs):
    assert keyed_by_pairs.encode(SAMPLE).ids == get_tokenizer().encode(SAMPLE)


@given(text=st.text(max_size=60))
def test_ranks_keyed_by_bytes_cut_any_text_as_merges_keyed_by_pairs(keyed_by_pairs, text):
    assert keyed_by_pairs.encode(text).ids == get_tokenizer().encode(text)


def learned_by_tokenizers(text: str, n_merges: int) -> list[str]:
    theirs = tokenizers.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(
        [text],
        trainers.BpeTrainer(vocab_size=256 + n_merges, initial_alphabet=alphabet, show_progress=False),
    )
    return [theirs.id_to_token(i) for i in range(256, 256 + n_merges)]


def chapter_cell(start: str) -> str:
    cells = nbformat.read(CHAPTER, as_version=4).cells
    return next(cell.source for cell in cells if cell.cell_type == "code" and cell.source.startswith(start))


def test_the_learner_learns_what_the_trainer_of_tokenizers_learns():
    """In this text the first draw, which each settles in its own way, comes after 36 merges."""
    ours = list(bpe.token_ranks(bpe.learn_merges(SAMPLE, 36)))[256:]
    assert [as_characters(token) for token in ours] == learned_by_tokenizers(SAMPLE, 36)


def test_the_learner_of_the_chapter_is_that_of_the_package():
    names = {"tok": get_tokenizer(), "bpe": bpe, "tokenizer": tokenizer}
    exec("from collections import Counter", names)
    for start in ("def pair_counts", "def merge_pair", "def learn_merges"):
        exec(chapter_cell(start), names)
    text = SAMPLE[:3000]
    assert list(names["learn_merges"](text, 60).items()) == list(bpe.learn_merges(text, 60).items())


def test_the_table_of_the_chapter_is_that_of_transformers():
    names = {"tok": get_tokenizer()}
    exec(chapter_cell("visible ="), names)
    assert names["characters"] == bytes_to_unicode()
