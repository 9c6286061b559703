"""Chapter 6: the mean surprise at the token that comes next."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises import compare
from gptlab.exercises.exercise import NOTHING_WRONG, Diagnosis, Exercise, Mistake
from gptlab.exercises.probes import gradient_reaches

if TYPE_CHECKING:
    from torch import Tensor

PER_TOKEN = (
    "there is a loss for each token. One number is asked for, their mean: with F.cross_entropy that is the default, "
    'not reduction="none".'
)
FLOORS = {"floored": 1e-8, "floored-lower": 1e-10}
FLOORED = (
    "a small number is added before the logarithm, so no surprise is greater than minus its logarithm: 1e-8 hides all "
    "above 18. Where the model is surely wrong, the loss must say how much. log_softmax needs no such help."
)


def reference(logits: Tensor, tokens: Tensor, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    if tokens.shape[1] < 2:
        raise ValueError("a single token has no next one")
    if "probabilities" in on:
        logits = logits.softmax(-1)
    if "flattened" in on:
        logits, tokens = logits.flatten(0, 1)[None], tokens.flatten()[None]
    if "backwards" in on:
        x, y = logits[:, 1:], tokens[:, :-1]
    elif "shifted-twice" in on:
        x, y = logits[:, :-2], tokens[:, 2:]
    else:
        x, y = (logits, tokens) if "no-shift" in on else (logits[:, :-1], tokens[:, 1:])
    if "last-token" in on:
        x, y = x[:, -1:], y[:, -1:]
    if "reshaped" in on:
        x = x.reshape(x.shape[0], x.shape[2], x.shape[1]).mT
    log_p = x.log_softmax(1 if "over-positions" in on else -1)
    if "overflows" in on:
        log_p = (x.exp() / x.exp().sum(-1, keepdim=True)).log()
    for name, floor in FLOORS.items():
        if name in on:
            log_p = (log_p.exp() + floor).log()
    losses = -log_p.gather(-1, y[..., None])[..., 0]
    if "log-of-mean" in on:
        losses = -(-losses).exp().mean().log()
    if "sign" in on:
        losses = -losses
    if "bits" in on:
        losses = losses / math.log(2)
    if "per-token" in on:
        return losses
    if "per-token-flat" in on:
        return losses.flatten()
    if "sum" in on:
        return losses.sum()
    if "batch-mean" in on:
        return losses.sum() / len(tokens)
    if "over-all-tokens" in on:
        return losses.sum() / tokens.numel()
    return losses.mean().exp() if "perplexity" in on else losses.mean()


def refuses_one_token(function: Any, case: tuple[Any, ...]) -> Diagnosis | None:
    """[N] With one token there is an error."""
    logits, tokens = case
    try:
        loss = function(logits[:, :1], tokens[:, :1])
    except Exception:
        return None
    return Diagnosis(
        "one-token",
        "the values are right, but with a single token, which has no next one, there is no error. The mean over no "
        "position is NaN, and training would go on with it. Raise a ValueError before.",
        f"with tokens of shape {tuple(tokens[:, :1].shape)} it returns {compare.short(loss)}",
    )


def cases(rng: random.Random) -> list[tuple[Tensor, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, V: int, height: float = 0.0) -> tuple[Tensor, Tensor]:
        logits = height + 2 * torch.randn(B, T, V, generator=generator)
        return logits, torch.randint(V, (B, T), generator=generator)

    high = case(2, 4, 6, height=100.0)  # e¹⁰⁰ is no float32
    logits, tokens = case(2, 4, 5)
    following = tokens.roll(-1, dims=1)[..., None]
    unlikely = logits.scatter(-1, following, -50.0), tokens  # surely wrong at every position
    return [case(2, 5, 7), case(1, 6, 4), case(3, 2, 9), high, unlikely, case(4, 3, 8)]


EXERCISE = Exercise(
    name="next_token_loss",
    chapter=6,
    task="next_token_loss(logits, tokens) returns the mean cross-entropy, in nats, of predicting each token from the "
    "ones before it: logits has shape (B, T, V), tokens (B, T), and the logits at position t are scored on token "
    "t + 1. The mean runs over all B · (T - 1) predictions. A single token has no next one: with T = 1, raise a "
    "ValueError.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "no-shift",
            "nothing is shifted: each position is scored on the token that it has read. A model learns that by "
            "copying, and its loss goes to nothing. Score logits[:, :-1] on tokens[:, 1:].",
        ),
        Mistake(
            "backwards",
            "the shift goes the wrong way: each position is scored on the token before it. Drop the last logits and "
            "the first token: logits[:, :-1], tokens[:, 1:].",
        ),
        Mistake(
            "shifted-twice",
            "it is shifted twice: each position is scored on the token after the next. Shift once, here or in the "
            "data, not in both.",
        ),
        Mistake(
            "flattened",
            "it is flattened before it is shifted: the last position of each text is scored on the first token of "
            "the next text. Shift along T first, then flatten.",
        ),
        Mistake(
            "probabilities",
            "probabilities are treated as logits: softmax is applied twice. F.cross_entropy wants the logits, it "
            "applies log_softmax itself.",
        ),
        Mistake(
            "over-positions",
            "softmax runs over the positions. At each position the V probabilities add up to 1: dim=-1.",
        ),
        Mistake(
            "reshaped",
            "(B, T, V) is reshaped to (B, V, T): the shape is what F.cross_entropy wants, but the numbers stand in "
            "other places. Transpose, logits.transpose(1, 2), or flatten batch and positions.",
        ),
        Mistake(
            "overflows",
            "softmax is written out as exp(z) / Σ exp(z), and a logit of 100 gives NaN: e¹⁰⁰ is larger than float32's "
            "largest number. Subtract the largest logit first; log_softmax and logsumexp do.",
        ),
        *(Mistake(name, FLOORED) for name in FLOORS),
        Mistake(
            "last-token",
            "only the last token is scored. Each position but the last predicts a token: T - 1 of them.",
        ),
        Mistake("sum", "the losses are added up. Take their mean, or longer texts would give larger steps."),
        Mistake(
            "batch-mean",
            "the losses of a text are added up, and the mean is taken over the batch only. Divide by the number of "
            "predictions, B · (T - 1).",
        ),
        Mistake(
            "over-all-tokens",
            "the sum is divided by the number of tokens, B · T. There is no prediction for the first token of a text: "
            "divide by B · (T - 1).",
        ),
        Mistake("per-token", PER_TOKEN),
        Mistake("per-token-flat", PER_TOKEN),
        Mistake(
            "log-of-mean",
            "this is the logarithm of the mean probability. Take the logarithm of each probability first, then the "
            "mean.",
        ),
        Mistake("bits", "this is in bits, logarithm to base 2. Nats are asked for: the natural logarithm."),
        Mistake(
            "sign",
            "the sign is turned round: this is the mean log-probability, which is negative. The loss is minus that.",
        ),
        Mistake("perplexity", "this is the perplexity, e to the power of the loss. Return the loss itself."),
    ),
    cases=cases,
    probes=(gradient_reaches("logits", ""), refuses_one_token),
    hints=(
        "The model has read tokens 0 … t when it makes the logits at t. On which token should it be judged?",
        "Two slices along T, one of the logits and one of the tokens, of the same length. Then every position counts "
        "alike, whichever text it stands in.",
        "logits[:, :-1]: (B, T - 1, V). tokens[:, 1:]: (B, T - 1). F.cross_entropy wants (N, V) and (N,): flatten the "
        "first two dimensions of both.",
        "def next_token_loss(logits, tokens):\n    if tokens.shape[1] < 2:\n        raise ValueError(...)\n"
        "    x, y = logits[:, ...], tokens[:, ...]\n    return F.cross_entropy(...)",
    ),
    solution="""
import torch.nn.functional as F

def next_token_loss(logits, tokens):
    if tokens.shape[1] < 2:
        raise ValueError("one token has no next one")
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
""",
    also_correct=(
        "from gptlab.unembedding import next_token_loss\n",
        "import torch.nn.functional as F\n"
        "def next_token_loss(logits, tokens):\n"
        "    B, T, V = logits.shape\n"
        "    assert T > 1\n"
        "    return F.cross_entropy(logits.transpose(1, 2)[..., :-1], tokens[:, 1:])\n",
        "def next_token_loss(logits, tokens):\n"
        "    if tokens.size(1) == 1:\n"
        "        raise ValueError('one token')\n"
        "    x, y = logits[:, :-1], tokens[:, 1:].unsqueeze(-1)\n"
        "    return (x.logsumexp(-1) - x.gather(-1, y).squeeze(-1)).mean()\n",
        "import torch\n"
        "def next_token_loss(logits, tokens):\n"
        "    B, T, V = logits.shape\n"
        "    losses = [-logits[b, t].log_softmax(0)[tokens[b, t + 1]] for b in range(B) for t in range(T - 1)]\n"
        "    return torch.stack(losses).mean()\n",
        "import torch\n"
        "def next_token_loss(logits, tokens):\n"
        "    z = logits[:, :-1]\n"
        "    if not z.numel():\n"
        "        raise ValueError('no next token')\n"
        "    e = (z - z.max(-1, keepdim=True).values).exp()\n"
        "    p = e / e.sum(-1, keepdim=True)\n"
        "    hit = torch.nn.functional.one_hot(tokens[:, 1:], logits.shape[-1])\n"
        "    return -(p * hit).sum(-1).log().mean()\n",
    ),
)
