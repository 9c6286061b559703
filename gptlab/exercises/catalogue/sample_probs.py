"""Chapter 11: from logits to the distribution that the next token is drawn from."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor


def reference(
    logits: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    on: frozenset[str] = NOTHING_WRONG,
) -> Tensor:
    if temperature == 0 and not on & {"zero-divides", "zero-ignored"}:
        import torch

        chosen = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, chosen, 1.0)
    scores = logits.softmax(-1) if "on-probabilities" in on else logits
    if not on & {"temperature-last", "divides-probabilities"}:
        scores = _heated(scores, temperature, on)
    before = scores
    if "p-before-k" in on:
        scores = _keep_k(_keep_p(scores, top_p, on), top_k, on)
    else:
        scores = _keep_p(_keep_k(scores, top_k, on), top_p, on)
    if "temperature-last" in on:
        scores = _heated(scores, temperature, on)
    dim = 0 if "over-rows" in on else -1
    if "p-not-renormalised" in on:
        return _keep_k(before, top_k, on).softmax(dim).masked_fill(scores == -math.inf, 0.0)
    if "not-renormalised" in on:
        return before.softmax(dim).masked_fill(scores == -math.inf, 0.0)
    probs = scores.softmax(dim)
    return probs / temperature if "divides-probabilities" in on else probs


def _heated(scores: Tensor, temperature: float, on: frozenset[str]) -> Tensor:
    if "zero-ignored" in on and temperature == 0:
        return scores
    if "ignored" in on:
        return scores
    return scores * temperature if "multiplied" in on else scores / temperature


def _keep_k(scores: Tensor, top_k: int | None, on: frozenset[str]) -> Tensor:
    import torch

    if top_k is None:
        return scores
    V = scores.shape[-1]
    k = min(top_k + 1, V) if "one-more" in on else min(top_k, V) - ("one-less" in on)
    if "large-k" in on and top_k > V:
        k = top_k  # topk refuses it
    kept = scores.topk(k, dim=-1, largest="least-likely-k" not in on)
    fill = 0.0 if "k-fills-with-0" in on else _fill(on)
    return torch.full_like(scores, fill).scatter(-1, kept.indices, kept.values)


def _keep_p(scores: Tensor, top_p: float | None, on: frozenset[str]) -> Tensor:
    import torch

    if top_p is None:
        return scores
    ordered, order = scores.sort(dim=-1, descending="ascending" not in on)
    probs = ordered.softmax(-1)
    total = probs.cumsum(-1)
    before = total - probs
    outside = before > top_p if "goes-on-at-p" in on else before >= top_p
    if on & {"drops-crossing", "drops-crossing-but-one"}:
        outside = total > top_p
    if "keeps-next" in on:
        outside[..., 1:] = outside[..., :-1].clone()
    if on & {"drops-crossing-but-one", "keeps-next"}:
        outside[..., 0] = False
    ordered = ordered.masked_fill(outside, _fill(on))
    return ordered if "left-sorted" in on else torch.empty_like(scores).scatter(-1, order, ordered)


def _fill(on: frozenset[str]) -> float:
    return 0.0 if "fills-with-0" in on else -math.inf


def cases(rng: random.Random) -> list[tuple[Tensor, float, int | None, float | None]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def known(*odds: float) -> Tensor:
        return torch.tensor([odds]).log()

    def case(
        B: int, V: int, temperature: float, top_k: int | None = None, top_p: float | None = None
    ) -> tuple[Tensor, float, int | None, float | None]:
        while True:
            logits = 1.5 * torch.randn(B, V, generator=generator)
            if top_p is None:
                return logits, temperature, top_k, top_p
            total = reference(logits, temperature, top_k, None).sort(descending=True).values.cumsum(-1)
            if (total - top_p).abs().min() > 0.01:  # no rounding decides which tokens are in
                return logits, temperature, top_k, top_p

    return [
        case(2, 5, 1.0),
        case(3, 6, 0.6),
        (known(0.3, 0.05, 0.45, 0.2), 1.0, None, 0.7),
        (known(1.0, 8.0, 2.0, 4.0), 0.5, None, 0.75),  # the temperature decides how many tokens reach p
        (known(1.0, 8.0, 2.0, 4.0), 2.0, None, 0.75),
        (known(0.1, 0.4, 0.2, 0.3), 1.0, 2, 0.5),  # 0.4 does not reach p, 0.4 / 0.7 does
        (known(0.25, 0.5, 0.25), 1.0, None, 0.5),  # the first token brings it to p, exactly
        case(2, 7, 1.0, top_k=3),
        case(2, 6, 0.8, top_k=1),
        case(2, 4, 1.5, top_k=100),
        case(2, 5, 1.0, top_p=1e-8),
        case(3, 5, 0.0),
        case(2, 8, 0.7, top_k=5, top_p=0.8),
        case(3, 9, 1.8, top_k=6, top_p=0.6),
    ]


EXERCISE = Exercise(
    name="sample_probs",
    chapter=11,
    task="sample_probs(logits, temperature, top_k, top_p) turns logits of shape (B, V) into the probabilities, (B, V), "
    "that the next token is drawn from, in this order: divide by temperature; keep the top_k most likely tokens; of "
    "those keep the most likely ones up to and including the one that brings their probability to top_p. All others "
    "get probability 0, and each row adds up to 1. top_k and top_p may be None: no limit; a top_k above V is none, "
    "either. Temperature 0 puts all probability on the largest logit.",
    difficulty="medium",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "multiplied",
            "the logits are multiplied by the temperature: a low one makes the distribution flatter, and it should "
            "make it sharper. Divide.",
        ),
        Mistake("ignored", "the temperature changes nothing. Divide the logits by it, first of all."),
        Mistake(
            "temperature-last",
            "the filters come first and the temperature afterwards, so top-p looks at the distribution at "
            "temperature 1. Divide the logits first of all.",
        ),
        Mistake(
            "on-probabilities",
            "the temperature is applied to probabilities, and softmax to the result: two softmaxes. Divide the "
            "logits; softmax comes once, at the end.",
        ),
        Mistake(
            "divides-probabilities",
            "the probabilities themselves are divided by the temperature, so that a row adds up to 1/T. Divide the "
            "logits, before softmax.",
        ),
        Mistake(
            "zero-divides",
            "temperature 0 gives NaN: the logits are divided by 0. Treat 0 by itself: 1 for the largest logit, 0 for "
            "all others.",
        ),
        Mistake(
            "zero-ignored",
            "temperature 0 is taken for 1: a condition such as 'if temperature:' skips the division. 0 stands for the "
            "largest logit alone.",
        ),
        Mistake(
            "one-more",
            "top-k keeps k + 1 tokens. The smallest one to keep is number k, with index k - 1 in sorted order.",
        ),
        Mistake(
            "one-less",
            "top-k keeps k - 1 tokens, with k = 1 none: the token at the limit is removed as well. Remove what is "
            "smaller than the k-th, not what is equal to it.",
        ),
        Mistake(
            "large-k",
            "a top_k larger than V raises an error: topk cannot give more than there is. Take min(top_k, V).",
        ),
        Mistake("least-likely-k", "top-k keeps the k least likely tokens. Take the largest."),
        Mistake(
            "drops-crossing",
            "top-p drops the token that crosses p, and where the first one does, nothing is left. Keep a token if the "
            "ones before it have less than p together.",
        ),
        Mistake(
            "drops-crossing-but-one",
            "top-p drops the token that crosses p. Keep a token if the ones before it have less than p together.",
        ),
        Mistake(
            "keeps-next",
            "top-p keeps one token too many, the one after the crossing. Is the mask moved by one place although the "
            "token's own probability is not counted?",
        ),
        Mistake(
            "goes-on-at-p",
            "where the tokens so far have exactly p, top-p keeps one more. They have reached it: leave a token out if "
            "those before it have p or more, >= and not >.",
        ),
        Mistake(
            "ascending",
            "top-p begins with the least likely tokens. Sort with descending=True.",
        ),
        Mistake(
            "left-sorted",
            "after top-p the probabilities stand in sorted order, not in that of the token ids. Put them back with "
            "the order that sort gave: scatter(-1, order, ...).",
        ),
        Mistake(
            "p-before-k",
            "top-p looks at the probabilities of all tokens. It should look at those of the top_k that are left, "
            "which add up to 1 again.",
        ),
        Mistake(
            "fills-with-0",
            "the logits that are filtered out are set to 0. That is a logit like any other, e⁰ = 1 before softmax "
            "divides, and larger than a negative one. Minus infinity gives probability 0: float('-inf').",
        ),
        Mistake(
            "k-fills-with-0",
            "the logits that top-k filters out are set to 0. That is a logit like any other, and larger than a "
            "negative one. Minus infinity gives probability 0: float('-inf').",
        ),
        Mistake(
            "p-not-renormalised",
            "after top-p the tokens that are kept have the probabilities they had before, which no longer add up to "
            "1. Divide each row by its sum.",
        ),
        Mistake(
            "not-renormalised",
            "the tokens that are kept have the probabilities they had before, which no longer add up to 1. Set the "
            "others' logits to minus infinity and take softmax afterwards.",
        ),
        Mistake(
            "over-rows",
            "softmax runs over the batch. In each row the V probabilities add up to 1: dim=-1.",
        ),
    ),
    cases=cases,
    hints=(
        "Three steps that each turn logits into logits, and one softmax at the end. A token that is out has the logit "
        "minus infinity.",
        "top-k needs the k-th largest logit of each row. top-p needs the row sorted, softmax of it, and a running sum. "
        "Which tokens had less than p before them? And what if the temperature is 0?",
        "top-k: masked_fill(logits < logits.topk(k).values[:, -1:], -inf). top-p: ordered, order = "
        "logits.sort(descending=True); probs = ordered.softmax(-1), all (B, V); out is where probs.cumsum(-1) - probs "
        ">= top_p; back to the old order with scatter(-1, order, ordered).",
        "def sample_probs(logits, temperature, top_k, top_p):\n    if temperature == 0:\n        return ...\n"
        "    logits = logits / temperature\n    if top_k is not None:\n        logits = logits.masked_fill(...)\n"
        "    if top_p is not None:\n        ordered, order = logits.sort(descending=True)\n        ...\n"
        "    return logits.softmax(dim=-1)",
    ),
    solution="""
import torch
import torch.nn.functional as F

def sample_probs(logits, temperature, top_k, top_p):
    V = logits.shape[-1]
    if temperature == 0:
        return F.one_hot(logits.argmax(dim=-1), V).float()
    logits = logits / temperature
    if top_k is not None:
        smallest = logits.topk(min(top_k, V)).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if top_p is not None:
        ordered, order = logits.sort(descending=True)
        probs = ordered.softmax(dim=-1)
        ordered = ordered.masked_fill(probs.cumsum(dim=-1) - probs >= top_p, -torch.inf)
        logits = torch.empty_like(logits).scatter(-1, order, ordered)
    return logits.softmax(dim=-1)
""",
    also_correct=(
        "from gptlab.generation import sample_probs\n",
        "import torch\n"
        "def sample_probs(logits, temperature, top_k, top_p):\n"
        "    p = (logits / max(temperature, 1e-6)).softmax(-1)\n"
        "    if top_k:\n"
        "        kept = p.topk(min(top_k, p.size(-1)))\n"
        "        p = torch.zeros_like(p).scatter(-1, kept.indices, kept.values)\n"
        "        p = p / p.sum(-1, keepdim=True)\n"
        "    if top_p:\n"
        "        before = (p[:, None] * (p[:, None] > p[:, :, None])).sum(-1)  # of all more likely tokens\n"
        "        p = p * (before < top_p)\n"
        "    return p / p.sum(-1, keepdim=True)\n",
        "import torch\n"
        "def sample_probs(logits, temperature, top_k, top_p):\n"
        "    out = torch.zeros_like(logits)\n"
        "    for row, z in zip(out, logits):\n"
        "        best = sorted(range(len(z)), key=lambda i: -z[i])\n"
        "        if temperature == 0:\n"
        "            row[best[0]] = 1\n"
        "            continue\n"
        "        best = best[: top_k or len(z)]\n"
        "        p = (z[best] / temperature).softmax(0)\n"
        "        n, total = 0, 0.0\n"
        "        while n < len(best) and (top_p is None or total < top_p):\n"
        "            total += p[n].item()\n"
        "            n += 1\n"
        "        row[best[:n]] = p[:n] / p[:n].sum()\n"
        "    return out\n",
        "import torch\n"
        "def sample_probs(logits, temperature, top_k, top_p):\n"
        "    if temperature == 0:\n"
        "        return (logits == logits.max(-1, keepdim=True).values).float()\n"
        "    logits = logits / temperature\n"
        "    if top_k is not None and top_k < logits.shape[1]:\n"
        "        logits[logits < logits.sort(descending=True).values[:, top_k - 1, None]] = float('-inf')\n"
        "    if top_p is not None:\n"
        "        ordered, order = logits.sort()\n"
        "        remove = ordered.softmax(-1).cumsum(-1) <= 1 - top_p\n"
        "        remove[:, -1] = False\n"
        "        logits = logits.masked_fill(remove.gather(-1, order.argsort()), float('-inf'))\n"
        "    return logits.softmax(-1)\n",
    ),
)
