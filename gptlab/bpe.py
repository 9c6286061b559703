"""Byte-pair encoding in plain Python: how a vocabulary is learned, and how a word is cut with it.

The readable version. :mod:`gptlab.tokenizer` does the same with tiktoken, and a test ties the two.
Sources: Sennrich, Haddow and Birch 2016, section 3.2; on bytes and within pieces, Radford et al. 2019, section 2.2;
the pattern and the characters for bytes, ``src/encoder.py`` of OpenAI's gpt-2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import regex

Pair = tuple[int, int]

# How GPT-2 cuts text into pieces: at each place, the first of these that fits. As OpenAI's encoder.py has it;
# gptlab.tokenizer.PIECES is the same, written so that matching never backs up.
PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d",
    r" ?\p{L}+",
    r" ?\p{N}+",
    r" ?[^\s\p{L}\p{N}]+",
    r"\s+(?!\S)",
    r"\s+",
)


def split(text: str) -> list[str]:
    """The pieces of ``text``. Pairs are counted, and merged, within a piece only.

    >>> split("We've seen 42.")
    ['We', "'ve", ' seen', ' 42', '.']
    """
    return regex.findall("|".join(PATTERN), text)


def pair_counts(ids: Sequence[int]) -> dict[Pair, int]:
    """How often each pair of neighbours occurs in one piece, overlapping pairs included.

    >>> pair_counts([7, 7, 7, 5])
    {(7, 7): 2, (7, 5): 1}
    """
    return dict(Counter(pairwise(ids)))


def merge_pair(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """Replace each occurrence of ``pair``, from left to right, by the one id ``new``.

    >>> merge_pair([7, 7, 7, 5], (7, 7), 256)
    [256, 7, 5]
    """
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == tuple(pair):
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def learn_merges(text: str, n_merges: int) -> dict[Pair, int]:
    """Learn a vocabulary: start from the 256 bytes, and merge the most frequent pair, again and again.

    As in GPT-2, no pair crosses the border of a piece: a token across it could never be used, since
    encoding cuts there first.

    Returns:
        The merges in the order in which they were learned: pair -> new id, 256 and up. Fewer than
        ``n_merges`` when each piece has become a single id.

    Raises:
        ValueError: ``n_merges`` is negative.
    """
    if n_merges < 0:
        raise ValueError(f"n_merges={n_merges} must not be negative")
    equal_pieces = Counter(split(text))  # a piece that occurs often is counted once, times its number
    pieces = [list(piece.encode("utf-8")) for piece in equal_pieces]
    merges: dict[Pair, int] = {}
    while len(merges) < n_merges:
        counts: Counter[Pair] = Counter()
        for ids, times in zip(pieces, equal_pieces.values(), strict=True):
            for pair, n in pair_counts(ids).items():
                counts[pair] += n * times
        if not counts:
            break
        most_frequent = max(counts, key=lambda pair: counts[pair])  # the earliest wins a draw
        merges[most_frequent] = 256 + len(merges)
        pieces = [merge_pair(ids, most_frequent, merges[most_frequent]) for ids in pieces]
    return merges


def token_ranks(merges: Mapping[Pair, int]) -> dict[bytes, int]:
    """The same vocabulary, keyed by bytes as in GPT-2's: each token's bytes -> its rank, which is its id.

    >>> ranks = token_ranks({(97, 110): 256, (98, 256): 257})
    >>> ranks[b"a"], ranks[b"an"], ranks[b"ban"]
    (97, 256, 257)
    """
    tokens = {byte: bytes([byte]) for byte in range(256)}
    for (left, right), new in merges.items():
        tokens[new] = tokens[left] + tokens[right]
    return {token: rank for rank, token in tokens.items()}


def merge_steps(piece: bytes, ranks: Mapping[bytes, int]) -> list[list[bytes]]:
    """Cut one piece of text as GPT-2 does: of all neighbours, join the pair with the lowest rank, repeat.

    Args:
        piece: the bytes of one piece, not empty.
        ranks: rank of each token's bytes; a pair can be joined when the joined bytes have a rank.

    Returns:
        The list of parts before the first merge, after it, and so on; the last one is the tokens.

    Raises:
        TypeError: the piece is a text.
    """
    if isinstance(piece, str):
        raise TypeError(f"piece={piece!r} is a str, and merging works on bytes: pass piece.encode('utf-8')")
    parts = [bytes([byte]) for byte in piece]
    steps = [parts]
    while True:
        joinable = [
            (ranks[left + right], i)
            for i, (left, right) in enumerate(pairwise(parts))
            if left + right in ranks
        ]
        if not joinable:
            return steps
        _, i = min(joinable)
        parts = [*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :]]
        steps.append(parts)


def byte_characters() -> dict[int, str]:
    """The character by which OpenAI's vocabulary files show each byte: ``Ġ`` for the space, byte 32.

    The 188 bytes whose Latin-1 character can be seen keep it; the other 68 get those from 256 on. Listed in
    this order, they are GPT-2's ids 0 to 255.

    >>> "".join(byte_characters()[byte] for byte in b" world")
    'Ġworld'
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(others)}
