"""Text as a file of token ids, and batches of windows cut from it."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from gptlab.files import replacing
from gptlab.tokenizer import END_OF_TEXT, get_tokenizer

Tokens = Integer[np.ndarray, " _"]  # a row of token ids, uint16 where it was read from a file


def shakespeare(part: Literal["train", "validation"]) -> str:
    """The text that ships with the course: 39 works to train on, or the three that are held out.

    Works are separated by ``<|endoftext|>``. Held out are The Tempest, Twelfth Night and Henry V.

    Raises:
        ValueError: there is no such part.
    """
    if part not in ("train", "validation"):
        raise ValueError(f"part={part!r} must be 'train' or 'validation'")
    file = files("gptlab") / "assets" / f"shakespeare-{part}.txt.xz"
    return lzma.decompress(file.read_bytes()).decode("utf-8")


def read_text(path: str | PathLike[str]) -> str:
    """A text file, as UTF-8.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8, or holds no text.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise ValueError(
            f"{path} is not UTF-8 text: byte {err.start} is {err.object[err.start]:#04x}. "
            f"Convert it, for example with iconv -t UTF-8"
        ) from None
    if not text.strip():
        raise ValueError(f"{path} holds no text")
    return text


def encode_documents(text: str) -> Tokens:
    """The token ids of a text as uint16. Where it says ``<|endoftext|>``, one document ends and another begins.

    A training file may say so; text that others typed may not, see :meth:`gptlab.tokenizer.Tokenizer.encode`.
    """
    return np.array(get_tokenizer().encode(text, special=True), dtype=np.uint16)


def split_text(text: str, held_out: float = 0.1) -> tuple[str, str]:
    """Cut off the last part of a text, to measure on what was not trained on. The cut falls at a line's end.

    Raises:
        ValueError: ``held_out`` is no share, or the text has no line break to cut at.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out={held_out} must be between 0 and 1, a share of the text")
    cut = text.find("\n", int(len(text) * (1 - held_out))) + 1
    if not 0 < cut < len(text):
        raise ValueError(f"the text of {len(text):,} characters has no line break in its last {held_out:.0%}")
    return text[:cut], text[cut:].removeprefix(END_OF_TEXT)


def save_tokens(tokens: Tokens, path: str | PathLike[str]) -> None:
    """Write token ids as a NumPy ``.npy`` file of uint16: two bytes a token, 0 to 65,535.

    Raises:
        TypeError: the tokens are no integers.
        ValueError: they are not in one row, or an id does not fit.
    """
    if not np.issubdtype(tokens.dtype, np.integer):
        raise TypeError(f"token ids are integers, not {tokens.dtype}: use tokens.astype(np.uint16)")
    if tokens.ndim != 1:
        raise ValueError(f"tokens of shape {tokens.shape} must be in one row: use tokens.reshape(-1)")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < 2**16:
        raise ValueError(f"token ids from {tokens.min()} to {tokens.max()} do not fit into uint16")
    path = Path(path)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, tokens.astype(np.uint16), allow_pickle=False)


def load_tokens(path: str | PathLike[str], vocab_size: int) -> Tokens:
    """Open a file of :func:`save_tokens`. It stays on disk: what is used is read.

    Args:
        path: the file.
        vocab_size: V of the model that shall read it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, no file of tokens, or of another vocabulary.
    """
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as err:
        if isinstance(err, FileNotFoundError):
            raise
        raise ValueError(f"{path} is no complete file of tokens: {err}. Make it again from the text") from err
    if tokens.dtype != np.uint16 or tokens.ndim != 1:
        raise ValueError(f"{path} holds {tokens.dtype} of shape {tokens.shape}, expected uint16 in one row")
    if len(tokens) and (largest := int(tokens.max())) >= vocab_size:
        raise ValueError(
            f"{path} has the token id {largest}, but the model's vocabulary ends at {vocab_size - 1}: "
            f"the file was made with another tokenizer"
        )
    return tokens


def fingerprint(tokens: Tokens) -> str:
    """A short mark of a row of tokens: other tokens, almost certainly another mark."""
    return f"{len(tokens)}-{zlib.crc32(np.ascontiguousarray(tokens, dtype=np.uint16).data):08x}"


class Batches:
    """Random windows of a row of tokens, without end, from a generator of their own.

    What else draws random numbers changes nothing here, and ``state_dict`` notes the place, so that a run can go on
    as if it had not been interrupted.
    """

    def __init__(self, tokens: Tokens, batch_size: int, context: int, seed: int) -> None:
        check_length(tokens, context)
        _check_batch_size(batch_size)
        self.tokens, self.batch_size, self.context = tokens, batch_size, context
        self.generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """Inputs and targets, int64. Each target is the token after its input."""
        n_starts = len(self.tokens) - self.context
        starts = torch.randint(n_starts, (self.batch_size,), generator=self.generator)
        return windows_at(self.tokens, starts.tolist(), self.context)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])


def windows_in_order(
    tokens: Tokens, batch_size: int, context: int
) -> Iterator[tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]]:
    """The whole row of tokens, cut into windows one after the other; a rest shorter than a window is left out."""
    check_length(tokens, context)
    _check_batch_size(batch_size)
    starts = range(0, len(tokens) - context, context)
    for i in range(0, len(starts), batch_size):
        yield windows_at(tokens, list(starts[i : i + batch_size]), context)


def windows_at(
    tokens: Tokens, starts: list[int], context: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """The windows of ``context`` tokens from each start, and the same windows one token later.

    Raises:
        ValueError: there are no starts, or a window does not lie in the tokens whole.
    """
    last = len(tokens) - context - 1
    if wrong := [start for start in starts if not 0 <= start <= last][:1]:
        raise ValueError(
            f"start {wrong[0]} is out of range: windows of {context} tokens begin at 0 to {last}"
        )
    rows = np.stack([tokens[start : start + context + 1] for start in starts]).astype(np.int64)
    window = torch.from_numpy(rows)
    return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def check_length(tokens: Tokens, context: int) -> None:
    """Raise unless one window fits, with a target for its last token."""
    if context < 1:
        raise ValueError(f"context={context} must be at least 1")
    if len(tokens) <= context:
        raise ValueError(
            f"{len(tokens)} tokens are too few for a window of {context} and the token after it: "
            f"take more text, or a context of at most {len(tokens) - 1}"
        )


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1")


def mask_padding(
    input_ids: Int[Tensor, "B T"], attention_mask: Int[Tensor, "B T"], ignore_index: int = -100
) -> Int[Tensor, "B T"]:
    """Labels for rows that were filled up to one length: the ids, and ``ignore_index`` where the mask is 0.

    GPT-2 has no padding token, so ``<|endoftext|>`` often fills in. The mask tells a filling from the end that
    the model should learn; the id does not. Labels are not shifted.
    """
    return input_ids.masked_fill(attention_mask == 0, ignore_index)
