"""Chapter 1: text to token ids, as GPT-2 does it."""

from __future__ import annotations

import random

from gptlab import bpe
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.tokenizer import END_OF_TEXT, get_tokenizer

WORDS = [
    "un",
    "happiness",
    " unhappiness",
    " the",
    "Hello",
    " naïve",
    "  ",
    "\n",
    " 1234",
    "!?",
    "日本",
    "🤖",
    "'ll",
]


def reference(text: str, on: frozenset[str] = NOTHING_WRONG) -> list[int]:
    tokenizer = get_tokenizer()
    if "special" in on and END_OF_TEXT in text:
        first, rest = text.split(END_OF_TEXT, 1)
        return [*reference(first, on), tokenizer.end_of_text, *reference(rest, on)]
    pieces = text.split() if "splits" in on else [text] if "one-piece" in on else tokenizer.split(text)
    if "loses-spaces" in on:
        pieces = [piece.strip(" ") for piece in pieces]
    return [tokenizer.ranks[token] for piece in pieces for token in _cut(piece, on)]


def _cut(piece: str, on: frozenset[str]) -> list[bytes]:
    """The tokens of one piece."""
    ranks = get_tokenizer().ranks
    if "longest-match" in on:
        rest, tokens = piece.encode(), []
        while rest:
            length = next(n for n in range(len(rest), 0, -1) if rest[:n] in ranks)
            tokens.append(rest[:length])
            rest = rest[length:]
        return tokens
    if "characters" in on:
        # A character without a token of its own is spelled in bytes, which then are never joined.
        return [
            part
            for run in _runs(piece)
            for part in (
                [bytes([b]) for b in run.encode()]
                if run.encode() not in ranks and len(run) == 1
                else bpe.merge_steps(run.encode(), ranks)[-1]
            )
        ]
    return bpe.merge_steps(piece.encode(), ranks)[-1] if piece else []


def _runs(piece: str) -> list[str]:
    """Cut a piece before and after each character that has no token of its own."""
    ranks, runs = get_tokenizer().ranks, [""]
    for character in piece:
        if character.encode() in ranks:
            runs[-1] += character
        else:
            runs += [character, ""]
    return [run for run in runs if run]


def cases(rng: random.Random) -> list[tuple[str]]:
    fixed = [
        "",
        "hello world",
        "one\n\ntwo",
        "unhappiness",
        " a  b ",
        "note <|endoftext|> end",
        "日本 🤖",
        "We've seen 42 of them.",
    ]
    return [(text,) for text in fixed] + [("".join(rng.choices(WORDS, k=5)),) for _ in range(5)]


EXERCISE = Exercise(
    name="encode",
    chapter=1,
    task="encode(text) returns the token ids of text, exactly as GPT-2 cuts it. You may use "
    "tokenizer.get_tokenizer().split(text), its .ranks, and bpe.merge_steps(piece, ranks), but not its .encode.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "splits",
            "the text is split with text.split(), and all white space is gone, line breaks included. In GPT-2 it is "
            "part of the tokens: 'world' is 6894, ' world' is 995. Cut with tok.split(text).",
        ),
        Mistake(
            "loses-spaces",
            "the spaces are gone: the text was split at ' ', or the pieces were stripped. In GPT-2 a word keeps the "
            "space before it: 'world' is 6894, ' world' is 995. Use the pieces of tok.split(text) as they are.",
        ),
        Mistake(
            "one-piece",
            "the text is not cut into pieces first, so bytes are merged across the borders of words and line breaks. "
            "Cut with tok.split(text), then merge within each piece.",
        ),
        Mistake(
            "special",
            "<|endoftext|> in the text has become the special token 50256. Whoever typed it could end the "
            "document that way. In text it is text.",
        ),
        Mistake(
            "longest-match",
            "each piece is cut into the longest tokens that fit (un|hap|pine|ss). GPT-2 joins the pair with the "
            "lowest rank, again and again (un|h|appiness).",
        ),
        Mistake(
            "characters",
            "the merging starts from characters. It has to start from UTF-8 bytes: a character such as 日 is three "
            "bytes, some of which have a token together. Use piece.encode('utf-8').",
        ),
    ),
    cases=cases,
    hints=(
        "Two steps, as in the chapter: cut the text into pieces, then cut each piece by merging.",
        "tok.split(text) keeps the space at the front of each word. bpe.merge_steps wants bytes, and its last "
        "step holds the tokens.",
        "For each piece: bpe.merge_steps(piece.encode('utf-8'), tok.ranks)[-1], a list of bytes; tok.ranks maps "
        "each to its id.",
        "def encode(text):\n    tok = tokenizer.get_tokenizer()\n    ids = []\n    for piece in tok.split(text):\n"
        "        for token in ...:\n            ids.append(...)\n    return ids",
    ),
    solution="""
from gptlab import bpe, tokenizer

def encode(text):
    tok = tokenizer.get_tokenizer()
    ids = []
    for piece in tok.split(text):
        for token in bpe.merge_steps(piece.encode("utf-8"), tok.ranks)[-1]:
            ids.append(tok.ranks[token])
    return ids
""",
    also_correct=(
        "from gptlab import tokenizer\nencode = tokenizer.get_tokenizer().encode\n",
        "from gptlab import bpe, tokenizer\n"
        "def encode(text):\n"
        "    tok = tokenizer.get_tokenizer()\n"
        "    cut = lambda piece: bpe.merge_steps(piece.encode(), tok.ranks)[-1]\n"
        "    return [tok.ranks[t] for piece in tok.split(text) for t in cut(piece)]\n",
        "from gptlab import tokenizer\n"
        "def encode(text):\n"
        "    ranks = tokenizer.get_tokenizer().ranks\n"
        "    ids = []\n"
        "    for piece in tokenizer.get_tokenizer().split(text):\n"
        "        parts = [bytes([b]) for b in piece.encode()]\n"
        "        while True:\n"
        "            pairs = [ranks.get(a + b, 10**9) for a, b in zip(parts, parts[1:])]\n"
        "            if not pairs or min(pairs) == 10**9:\n"
        "                break\n"
        "            i = pairs.index(min(pairs))\n"
        "            parts[i : i + 2] = [parts[i] + parts[i + 1]]\n"
        "        ids += [ranks[part] for part in parts]\n"
        "    return ids\n",
    ),
)
