"""Chapter 1: token ids back to text."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.tokenizer import get_tokenizer


def reference(ids: Sequence[int], on: frozenset[str] = NOTHING_WRONG) -> str:
    tokenizer = get_tokenizer()
    if "one-by-one" in on:
        return "".join(reference([token], on - {"one-by-one"}) for token in ids)
    parts = [tokenizer.token_bytes(token) for token in ids]
    if "strips-spaces" in on:
        parts = [part.strip(b" ") for part in parts]
    between = b" " if "adds-spaces" in on else b""
    return between.join(parts).decode("latin-1" if "latin-1" in on else "utf-8", errors="replace")


def cases(rng: random.Random) -> list[tuple[list[int]]]:
    texts = ["", "The cat sat on the mat.", "🤖 says: naïve", "日本 and\n\n 42", "x is ?"]
    encode = get_tokenizer().encode
    drawn = ["".join(rng.choices([" the", "é", "🤖", "日", "a", " ", "\n"], k=6)) for _ in range(4)]
    return [(encode(text),) for text in texts + drawn] + [([8582, 97],)]


EXERCISE = Exercise(
    name="decode",
    chapter=1,
    task="decode(ids) returns the text of a list of token ids. You may use tokenizer.get_tokenizer()"
    ".token_bytes(id), but not its .decode. Bytes that are no complete character become U+FFFD "
    '(errors="replace").',
    difficulty="easy",
    minutes=5,
    reference=reference,
    mistakes=(
        Mistake(
            "one-by-one",
            "each id is decoded alone, so a character whose bytes lie in several tokens becomes replacement "
            "marks. Join the bytes of all ids first, decode once.",
        ),
        Mistake(
            "adds-spaces",
            "a space is put between the tokens. The spaces are in the tokens already: join with b''.",
        ),
        Mistake(
            "strips-spaces",
            "the spaces of the tokens are stripped. They are part of the text: keep the bytes.",
        ),
        Mistake("latin-1", "the bytes are read as Latin-1, one character per byte. The text is UTF-8."),
    ),
    cases=cases,
    hints=(
        "A token is a string of bytes, not of characters. What do several tokens make together?",
        "Join first, then decode: b''.join(...) and bytes.decode.",
        'b"".join(tok.token_bytes(i) for i in ids), then .decode("utf-8", errors="replace").',
        'def decode(ids):\n    tok = tokenizer.get_tokenizer()\n    data = ...\n    return data.decode("utf-8", '
        'errors="replace")',
    ),
    solution="""
from gptlab import tokenizer

def decode(ids):
    tok = tokenizer.get_tokenizer()
    data = b"".join(tok.token_bytes(i) for i in ids)
    return data.decode("utf-8", errors="replace")
""",
    also_correct=(
        "from gptlab import tokenizer\ndecode = tokenizer.get_tokenizer().decode\n",
        "from gptlab import tokenizer\n"
        "def decode(ids):\n"
        "    data = bytearray()\n"
        "    for i in ids:\n"
        "        data += tokenizer.get_tokenizer().token_bytes(i)\n"
        "    return str(data, 'utf-8', 'replace')\n",
        "from gptlab import tokenizer\n"
        "def decode(ids):\n"
        "    return ''.join(tokenizer.get_tokenizer().stream_decode(ids))\n",
    ),
)
