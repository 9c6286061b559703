"""From logits to text: choose the next token, append it, and go on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gptlab.cache import KVCache
from gptlab.embeddings import check_ids, check_range
from gptlab.model import GPT


def sample_probs(
    logits: Float[Tensor, "*rows V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*rows V"]:
    """The distribution to draw the next token from: temperature first, then top-k, then top-p.

    The order matters, and is that of transformers: top-p looks at the distribution that temperature made.
    A token that is filtered out has probability exactly 0.

    Args:
        logits: scores for each token, for any number of rows.
        temperature: divides the logits; 0 puts all probability on the largest (greedy).
        top_k: keep the k most likely tokens.
        top_p: keep the most likely tokens up to and including the one that brings their probability to
            ``top_p`` (nucleus sampling, Holtzman et al. 2020, section 3.1).

    Raises:
        ValueError: an argument is out of range, or the logits are not numbers.
    """
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature} must be 0 (greedy) or a positive number")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k} must be at least 1, or None for no limit")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must be above 0 and at most 1, or None for no limit")
    logits = logits.float()
    best = logits.amax(dim=-1, keepdim=True)
    if not best.isfinite().all():
        raise ValueError(
            "the logits hold NaN or infinity, or allow no token: the model's output is not usable"
        )
    if temperature == 0:
        chosen = logits.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, chosen, 1.0)
    smallest = torch.finfo(torch.float32).tiny  # a smaller divisor would be 0
    scores = (logits - best) / max(temperature, smallest)  # the largest is 0 at any temperature
    return keep_top_p(keep_top_k(scores, top_k), top_p).softmax(dim=-1)


def keep_top_k(logits: Float[Tensor, "*rows V"], top_k: int | None) -> Float[Tensor, "*rows V"]:
    """Set all but the ``top_k`` largest logits to -inf."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    kept = logits.topk(top_k, dim=-1)
    return torch.full_like(logits, -math.inf).scatter(-1, kept.indices, kept.values)


def keep_top_p(logits: Float[Tensor, "*rows V"], top_p: float | None) -> Float[Tensor, "*rows V"]:
    """Set to -inf the logits outside the smallest set of tokens whose probabilities reach ``top_p``."""
    if top_p is None or top_p == 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    # What each token and all less likely ones have together, added from the smallest up so that none is lost.
    rest = ordered.softmax(dim=-1).flip(-1).cumsum(dim=-1).flip(-1)
    outside = rest <= 1 - top_p
    outside[..., 0] = False  # the most likely token always stays
    return torch.full_like(logits, -math.inf).scatter(-1, order, ordered.masked_fill(outside, -math.inf))


def generate(
    model: GPT,
    input_ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_token_id: int | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "B S"]:
    """Continue each row of ``input_ids`` by up to ``max_new_tokens`` tokens.

    The model reads the last ``n_positions`` tokens at most; of a longer prompt it does not see the beginning.

    Args:
        model: the model; it is used in evaluation mode, and left as it was.
        input_ids: the prompts, all of one length, on the model's device.
        max_new_tokens: how many tokens to add at most.
        temperature: see :func:`sample_probs`; 0 is greedy.
        top_k: see :func:`sample_probs`.
        top_p: see :func:`sample_probs`.
        eos_token_id: a row that has produced it is filled up with it; when all have, generation stops.
        generator: the source of randomness. The same one gives the same tokens.
        use_cache: reuse keys and values. It changes the time, not the tokens.

    Returns:
        Prompts and continuations, (B, T + at most ``max_new_tokens``).

    Raises:
        TypeError: the prompts are no integers.
        ValueError: a token id or a setting is out of range.
    """
    tokens = stream(
        model,
        input_ids,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        eos_token_id=eos_token_id,
        generator=generator,
        use_cache=use_cache,
    )
    return torch.cat([input_ids, *(token[:, None] for token in tokens)], dim=1)


def stream(
    model: GPT,
    input_ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_token_id: int | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Iterator[Int[Tensor, " B"]]:
    """Like :func:`generate`, but yield each new token, (B,), as soon as it is known.

    For text, pass the ids of one row through :meth:`gptlab.tokenizer.Tokenizer.stream_decode`. Bad arguments
    raise when the first token is asked for.
    """
    check_ids(input_ids)
    check_range(input_ids, model.config.vocab_size)
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} must not be negative")
    if eos_token_id is not None and not 0 <= eos_token_id < model.config.vocab_size:
        raise ValueError(
            f"eos_token_id={eos_token_id} is no token: ids are 0 to {model.config.vocab_size - 1}"
        )
    cache = new_cache(model, input_ids, max_new_tokens) if use_cache else None
    ids, ended = input_ids, torch.zeros_like(input_ids[:, 0], dtype=torch.bool)
    for _ in range(max_new_tokens):
        probs = sample_probs(next_logits(model, ids, cache), temperature, top_k, top_p)
        token = (probs.argmax(dim=-1) if temperature == 0 else draw(probs, generator)).to(ids)
        if eos_token_id is not None:
            token = token.masked_fill(ended, eos_token_id)
            ended = ended | (token == eos_token_id)
        yield token
        if ended.all():
            return
        ids = torch.cat([ids, token[:, None]], dim=1)


@torch.no_grad()
def next_logits(model: GPT, ids: Int[Tensor, "B T"], cache: KVCache | None) -> Float[Tensor, "B V"]:
    """Logits for the token after ``ids``. The cache holds the first of them and takes in the rest.

    Past ``n_positions`` tokens the window slides, and each step reads the whole window anew. No cache can
    help there: when the oldest token leaves, every other one moves to another position, gets another row
    of ``wpe``, and with it other keys and values in every block.
    """
    window = model.config.n_positions
    with evaluating(model):
        if cache is None or ids.shape[1] > window:
            hidden = model.hidden(ids[:, -window:])
        else:
            hidden = model.hidden(ids[:, cache.length :], cache)
        return model.lm_head(hidden[:, -1])


def new_cache(model: GPT, input_ids: Int[Tensor, "B T"], max_new_tokens: int) -> KVCache:
    """A cache large enough for the prompt and its continuation, on the model's device, in its type."""
    B, T = input_ids.shape
    length = min(T + max_new_tokens, model.config.n_positions)
    weight = model.ln_f.weight  # of the type of what flows through the blocks, also when matrices are int8
    return KVCache(model.config, B, max_length=length, dtype=weight.dtype, device=weight.device)


def draw(probs: Float[Tensor, "B V"], generator: torch.Generator | None) -> Int[Tensor, " B"]:
    """Draw one token per row, on the generator's device: a seed means the same wherever the model is.

    Between processors and versions of PyTorch the same seed may give other numbers.
    """
    if generator is not None:
        probs = probs.to(generator.device)
    return torch.multinomial(probs, num_samples=1, generator=generator)[:, 0]


@contextmanager
def evaluating(model: GPT) -> Iterator[None]:
    """Switch dropout off, and restore every module's mode afterwards, whatever happens."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
