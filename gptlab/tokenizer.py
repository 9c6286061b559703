"""Text to the integers that the model reads, and back: the real GPT-2 encoding, offline.

The vocabulary ships with the package (``assets/r50k_base.tiktoken``) and is checked before use.
"""

from __future__ import annotations

import codecs
import hashlib
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from operator import index
from typing import SupportsIndex

import regex
import tiktoken

RANKS_FILE = "r50k_base.tiktoken"
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
END_OF_TEXT = "<|endoftext|>"

# How GPT-2 cuts text into pieces before any merging: contractions; words, numbers and punctuation, each
# with the one space before it; white space. OpenAI's encoder.py, written so that matching never backs up.
PIECES = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

# tiktoken's matcher overflows its stack on a run of about a million white-space characters before a word.
LONG_SPACE = regex.compile(r"\s{10000,}+")


class Tokenizer:
    """GPT-2's tokenizer: 50,256 byte-pair tokens and ``<|endoftext|>``."""

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        self.ranks = ranks
        self._encoding = tiktoken.Encoding(
            "gpt2", pat_str=PIECES, mergeable_ranks=dict(ranks), special_tokens={END_OF_TEXT: len(ranks)}
        )

    @cached_property
    def vocab_size(self) -> int:
        """The number of tokens, 50,257 for GPT-2; ids are 0 to ``vocab_size - 1``."""
        return self._encoding.n_vocab

    @property
    def end_of_text(self) -> int:
        """The id of ``<|endoftext|>``: 50256, GPT-2's only special token."""
        return self._encoding.eot_token

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Cut ``text`` into token ids.

        Args:
            text: any string. A lone surrogate is read as U+FFFD.
            special: whether ``<|endoftext|>`` in the text stands for the special token 50256. Leave it
                off for text that you did not write: then it is cut like any other text.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}; decode bytes first")
        if special:
            first, *rest = (self.encode(part) for part in text.split(END_OF_TEXT))
            return [*first, *(token for ids in rest for token in (self.end_of_text, *ids))]
        return [token for part in _parts(text) for token in self._encoding.encode_ordinary(part)]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of ``ids``. Bytes are joined first, so a character may span tokens.

        Bytes that are no complete UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is out of range.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[SupportsIndex]) -> bytes:
        """The bytes of ``ids``, exactly.

        Raises:
            ValueError: a number is not the id of a token.
            TypeError: an id is not an integer.
        """
        numbers = [index(token) for token in ids]
        if wrong := [number for number in numbers if not 0 <= number < self.vocab_size][:1]:
            raise ValueError(f"token id {wrong[0]} is out of range: valid ids are 0 to {self.vocab_size - 1}")
        tokens = self._bytes
        return b"".join([tokens[number] for number in numbers])

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """The bytes of one token, as :meth:`decode_bytes`."""
        return self.decode_bytes([token])

    def stream_decode(self, ids: Iterable[SupportsIndex]) -> Iterator[str]:
        """Decode one token at a time, for text that is shown while it is generated.

        Yields one string per id: the characters that it completes, ``""`` when it completes none. If the
        ids end inside a character, one U+FFFD follows.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in ids:
            yield decoder.decode(self.token_bytes(token))
        if rest := decoder.decode(b"", final=True):
            yield rest

    def split(self, text: str) -> list[str]:
        """The pieces into which ``text`` is cut before merging; no token crosses their borders."""
        return regex.findall(PIECES, text)

    @cached_property
    def _bytes(self) -> list[bytes]:
        tokens = [token for token, _ in sorted(self.ranks.items(), key=lambda item: item[1])]
        return [*tokens, END_OF_TEXT.encode()]


def _parts(text: str) -> Iterator[str]:
    """Cut ``text`` round long runs of white space, where pieces end: the last space goes with the word."""
    start = 0
    for run in LONG_SPACE.finditer(text):
        if run.end() < len(text):
            yield text[start : run.start()]
            yield text[run.start() : run.end() - 1]
            start = run.end() - 1
    yield text[start:]


@lru_cache(maxsize=1)
def get_tokenizer() -> Tokenizer:
    """GPT-2's tokenizer, built once from the vocabulary that ships with the package. No network.

    Raises:
        ValueError: the shipped file is damaged.
    """
    return Tokenizer(parse_ranks((files("gptlab") / "assets" / RANKS_FILE).read_bytes()))


def parse_ranks(content: bytes, sha256: str = RANKS_SHA256) -> dict[bytes, int]:
    """Read a ``.tiktoken`` file: on each line a token's bytes in base64, and its rank.

    Raises:
        ValueError: the content does not have the expected SHA-256.
    """
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{RANKS_FILE} has SHA-256 {found}, expected {sha256}: the file is damaged, reinstall gptlab"
        )
    return {b64decode(token): int(rank) for token, rank in (line.split() for line in content.splitlines())}
