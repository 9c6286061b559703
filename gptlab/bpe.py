"""Byte-pair encoding in plain Python: how a vocabulary is learned, and how a word is cut with it.

The readable version. :mod:`gptlab.tokenizer` does the same with tiktoken, and a test ties the two.
Source: Sennrich, Haddow and Birch 2016, section 3.2; on bytes, Radford et al. 2019, section 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Pair = tuple[int, int]


def pair_counts(ids: Sequence[int]) -> dict[Pair, int]:
    """How often each pair of neighbours occurs, overlapping pairs included.

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

    GPT-2 first cuts its text into pieces and never merges across them; here the text is one piece.

    Returns:
        The merges in the order in which they were learned: pair -> new id, 256 and up. Fewer than
        ``n_merges`` when the text has become a single id.
    """
    if n_merges < 0:
        raise ValueError(f"n_merges={n_merges} must not be negative")
    ids: list[int] = list(text.encode("utf-8"))
    merges: dict[Pair, int] = {}
    while len(merges) < n_merges and len(ids) > 1:
        counts = pair_counts(ids)
        most_frequent = max(counts, key=lambda pair: counts[pair])  # the earliest wins a draw
        merges[most_frequent] = 256 + len(merges)
        ids = merge_pair(ids, most_frequent, merges[most_frequent])
    return merges


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
