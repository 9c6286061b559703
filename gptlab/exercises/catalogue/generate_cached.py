"""Chapter 11: one token after another, and each read once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises.catalogue import generate
from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor

    from gptlab.exercises.toy import StepwiseToy


def reference(
    model: StepwiseToy, ids: Tensor, n: int, on: frozenset[str] = NOTHING_WRONG
) -> dict[str, Tensor | bool]:
    import torch

    T, past = ids.shape[1], None
    model.read = 0
    for step in range(n - ("one-too-few" in on)):
        new, start = (ids[:, -1:], T + step - 1) if step else (ids, 0)
        if "position-0" in on:
            start = 0
        if "prompt-not-counted" in on:
            start = step
        if "one-position-more" in on and step:
            start += 1
        if on & {"no-cache", "all-again"}:
            new, start = ids, 0
        if on & {"no-cache", "forgets"}:
            past = None
        logits, longer = model(new, start, past)
        if not (step and "not-updated" in on):
            past = longer
        token = logits[:, 0 if "first-logits" in on else -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return {"ids": ids[:, T:] if "only-new" in on else ids, "each token is read once": model.read <= T + n}


class Counted:
    """The learner's function, and whether the model had to read more tokens than there are."""

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt

    def __call__(self, model: StepwiseToy, ids: Tensor, n: int) -> dict[str, Any]:
        model.read = 0
        most = ids.shape[1] + n
        return {"ids": self.attempt(model, ids, n), "each token is read once": model.read <= most}


def cases(rng: random.Random) -> list[tuple[StepwiseToy, Tensor, int]]:
    import torch

    from gptlab.exercises.engine import tells_apart
    from gptlab.exercises.toy import StepwiseToy

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, n: int, V: int, P: int, C: int) -> tuple[StepwiseToy, Tensor, int]:
        while True:
            model = StepwiseToy(V, P, C, generator)
            ids = torch.randint(V, (B, T), generator=generator)
            if generate.is_clear(model, ids, n, P):
                return model, ids, n

    first = case(2, 3, 6, 19, 12, 8)
    while not tells_apart(EXERCISE, first):
        first = case(2, 3, 6, 19, 12, 8)
    every_position = case(1, 4, 5, 13, 9, 5)
    return [first, every_position, case(3, 2, 7, 17, 12, 4)]


EXERCISE = Exercise(
    name="generate_cached",
    chapter=11,
    task="generate_cached(model, ids, n) continues each row of ids, (B, T), by n tokens, each time the most likely one, "
    "and returns prompt and continuation, (B, T + n). model(new, start, past) reads the tokens new, (B, any number), "
    "which stand at positions start, start + 1 and so on; past holds keys and values of all tokens before them, None if "
    "there are none. It returns their logits and the new past. Have it read each token once: first the prompt, then "
    "each new token by itself. T + n positions are there.",
    difficulty="hard",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "no-cache",
            "the tokens are right, but each step reads the whole text again, without past. Keep what the model "
            "returns, and hand it the newest token alone.",
        ),
        Mistake(
            "all-again",
            "each step hands over the whole text and its past as well, so every earlier token is there several times. "
            "The past holds them already: hand over the newest token alone.",
        ),
        Mistake(
            "position-0",
            "each new token is read at position 0: start is 0 in every step. The first new one stands behind the "
            "prompt, at T.",
        ),
        Mistake(
            "prompt-not-counted",
            "the new tokens are read at positions 1, 2 and so on, as if the prompt were one token. The first new one "
            "stands at T, the next at T + 1.",
        ),
        Mistake(
            "one-position-more",
            "each new token is read one position too late: start is the length of the text with it. It stands at that "
            "length less one.",
        ),
        Mistake(
            "forgets",
            "the newest token is read without past: the model does not know what came before it. Hand back the past "
            "that it returned in the step before.",
        ),
        Mistake(
            "not-updated",
            "the past is that of the prompt in every step, so a new token does not see the new ones before it. Keep "
            "the past that each step returns.",
        ),
        Mistake(
            "first-logits",
            "the first new token is chosen at the first position of the prompt. Take the last one: logits[:, -1]. "
            "With one token it is the same, with the prompt it is not.",
        ),
        Mistake("only-new", "only the new tokens are returned. Return the prompt with them, (B, T + n)."),
        Mistake(
            "one-too-few", "there is one new token too few. The prompt's logits give the first of the n."
        ),
    ),
    cases=cases,
    adapt=Counted,
    hints=(
        "After the prompt, each step reads one token: the one just chosen. All others are in past.",
        "Three things change from step to step: what is read, where it stands, and past. What are they in the first "
        "step, what in the second?",
        "First new = ids, (B, T), start = 0, past = None. Afterwards new = the chosen tokens, (B, 1), start = T, T + 1 "
        "and so on, past as returned. Choose at logits[:, -1].",
        "def generate_cached(model, ids, n):\n    new, start, past = ids, 0, None\n    for _ in range(n):\n"
        "        logits, past = model(new, start, past)\n        start = ...\n        new = ...\n"
        "        ids = torch.cat([ids, new], dim=1)\n    return ids",
    ),
    solution="""
import torch

def generate_cached(model, ids, n):
    new, start, past = ids, 0, None
    for _ in range(n):
        logits, past = model(new, start, past)
        start += new.shape[1]
        new = logits[:, -1].argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
    return ids
""",
    also_correct=(
        "import torch\n"
        "def generate_cached(model, ids, n):\n"
        "    logits, past = model(ids, 0, None)\n"
        "    for _ in range(n):  # the last token is read as well, for nothing\n"
        "        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)\n"
        "        logits, past = model(ids[:, -1:], ids.shape[1] - 1, past)\n"
        "    return ids\n",
        "import torch\n"
        "def generate_cached(model, ids, n):\n"
        "    B, T = ids.shape\n"
        "    out, past = list(ids.unbind(1)), None\n"
        "    for t in range(T + n - 1):  # the prompt token by token, too\n"
        "        logits, past = model(out[t][:, None], t, past)\n"
        "        if t >= T - 1:\n"
        "            out.append(logits[:, 0].argmax(-1))\n"
        "    return torch.stack(out, 1)\n",
        "import torch\n"
        "def generate_cached(model, ids, n, start=0, past=None):\n"
        "    if n == 0:\n"
        "        return ids\n"
        "    logits, past = model(ids[:, start:], start, past)\n"
        "    ids, start = torch.hstack([ids, logits[:, -1].topk(1).indices]), ids.shape[1]\n"
        "    return generate_cached(model, ids, n - 1, start, past)\n",
    ),
)
