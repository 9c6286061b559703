"""Chapter 11: one token after another."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake

if TYPE_CHECKING:
    from torch import Tensor

    from gptlab.exercises.toy import Toy


def reference(model: Toy, ids: Tensor, n: int, on: frozenset[str] = NOTHING_WRONG) -> Tensor:
    import torch

    prompt, P = ids, model.config.n_positions
    for step in range(n - ("one-too-few" in on) + ("one-too-many" in on)):
        read = prompt if "never-fed-back" in on else ids[:, -1:] if "newest-only" in on and step else ids
        if "keeps-first" in on:
            read = read[:, :P]
        elif "never-crops" not in on:
            read = read[:, -(P - 1 if "crops-one-more" in on else P) :]
        with torch.no_grad():
            logits = model(read)
        logits = logits[:, 0 if "first-logits" in on else -2 if "second-to-last" in on else -1]
        if "flattened" in on:
            token = logits.argmax().expand(len(ids))
        elif "first-row" in on:
            token = logits[0].argmax().expand(len(ids))
        else:
            token = (-logits if "least-likely" in on else logits).argmax(-1)
        ids = torch.cat([read if "crops-output" in on else ids, token[:, None]], dim=1)
    return ids[:, prompt.shape[1] :] if "only-new" in on else ids


def is_clear(step: Any, ids: Tensor, n: int, P: int) -> bool:
    """Whether no rounding can decide which tokens are chosen, and whether they are not all the same."""
    import torch

    T = ids.shape[1]
    for _ in range(n):
        with torch.no_grad():
            scores = step(ids[:, -P:], 0, None)[0][:, -1]
        best = scores.topk(2)
        if (best.values[:, 0] - best.values[:, 1]).min() < 0.01:
            return False
        ids = torch.cat([ids, best.indices[:, :1]], dim=1)
    return len(ids[:, T:].unique()) > 2


def cases(rng: random.Random) -> list[tuple[Toy, Tensor, int]]:
    import torch

    from gptlab.exercises.engine import tells_apart
    from gptlab.exercises.toy import Toy

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def case(B: int, T: int, n: int, V: int, P: int, C: int) -> tuple[Toy, Tensor, int]:
        while True:
            model = Toy(V, P, C, generator)
            ids = torch.randint(V, (B, T), generator=generator)
            if is_clear(model.step, ids, n, P):
                return model, ids, n

    too_long = case(3, 7, 4, 17, 5, 8)
    while not tells_apart(EXERCISE, too_long):
        too_long = case(3, 7, 4, 17, 5, 8)
    return [too_long, case(1, 4, 6, 13, 6, 5), case(2, 3, 5, 19, 12, 6), case(2, 1, 4, 11, 8, 4)]


EXERCISE = Exercise(
    name="generate",
    chapter=11,
    task="generate(model, ids, n) continues each row of ids, shape (B, T), by n tokens, each time the most likely one, "
    "and returns prompt and continuation, (B, T + n). model(ids) gives logits of shape (B, T, V), as gptlab.GPT does. It "
    "reads at most model.config.n_positions tokens; where there are more, give it the last ones.",
    difficulty="medium",
    minutes=15,
    reference=reference,
    mistakes=(
        Mistake(
            "first-logits",
            "the logits of the first position are used. They predict the second token. What comes next is predicted "
            "at the last position: logits[:, -1].",
        ),
        Mistake(
            "second-to-last",
            "the logits of the second-to-last position are used: they predict the last token, which is there "
            "already. Take logits[:, -1].",
        ),
        Mistake(
            "never-fed-back",
            "the new tokens are never fed back: each step reads the prompt alone, and chooses the same token again. "
            "Append the token to what the model reads next.",
        ),
        Mistake(
            "newest-only",
            "from the second step on the model reads the newest token alone, and has forgotten what came before. "
            "Without a cache it needs all of them.",
        ),
        Mistake(
            "keeps-first",
            "where there are too many tokens, the model reads the first ones, so the new ones never come into its "
            "sight. Give it the last: ids[:, -n_positions:].",
        ),
        Mistake(
            "never-crops",
            "the model gets more tokens than it has positions, and raises an error. Give it the last n_positions: "
            "ids[:, -n_positions:].",
        ),
        Mistake(
            "crops-one-more",
            "the model reads n_positions - 1 tokens where it could read n_positions. Look at the slice: "
            "ids[:, -n_positions:].",
        ),
        Mistake(
            "crops-output",
            "where there are too many tokens, the text itself is cut, and its beginning is missing in the result. "
            "Keep two names: all tokens, and those that the model reads.",
        ),
        Mistake("only-new", "only the new tokens are returned. Return the prompt with them, (B, T + n)."),
        Mistake("one-too-few", "there is one new token too few. Count the steps: range(n)."),
        Mistake("one-too-many", "there is one new token too many. Count the steps: range(n)."),
        Mistake(
            "flattened",
            "argmax looks at the whole batch as one row, so its result is no token id: with two rows it goes up to "
            "2V - 1. Each row has its own: argmax(dim=-1).",
        ),
        Mistake(
            "first-row",
            "every row is continued with the token of the first one. Each row has its own: argmax(dim=-1), (B,).",
        ),
        Mistake(
            "least-likely", "the least likely token is chosen each time. Take the largest logit: argmax."
        ),
    ),
    cases=cases,
    hints=(
        "The model says what comes next. Write it down, and ask again.",
        "Of the logits (B, T, V) a step needs those at one position. The chosen tokens, one a row, go to the end of "
        "ids. And what if the text has grown longer than the model can read?",
        "logits = model(ids[:, -P:]) with P = n_positions; logits[:, -1].argmax(dim=-1): (B,); as a column (B, 1), "
        "torch.cat with ids along dim=1.",
        "def generate(model, ids, n):\n    for _ in range(n):\n        logits = model(...)\n        token = ...\n"
        "        ids = torch.cat([ids, ...], dim=1)\n    return ids",
    ),
    solution="""
import torch

def generate(model, ids, n):
    for _ in range(n):
        with torch.no_grad():
            logits = model(ids[:, -model.config.n_positions :])
        token = logits[:, -1].argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids
""",
    also_correct=(
        "import torch\n"
        "def generate(model, ids, n):\n"
        "    rows = []\n"
        "    for row in ids.tolist():\n"
        "        for _ in range(n):\n"
        "            read = row[max(0, len(row) - model.config.n_positions) :]\n"
        "            row.append(int(model(torch.tensor([read]))[0, len(read) - 1].argmax()))\n"
        "        rows.append(row)\n"
        "    return rows\n",
        "import torch\n"
        "@torch.no_grad()\n"
        "def generate(model, ids, n):\n"
        "    B, T = ids.shape\n"
        "    out = torch.zeros(B, T + n, dtype=ids.dtype)\n"
        "    out[:, :T] = ids\n"
        "    for t in range(T, T + n):\n"
        "        start = max(0, t - model.config.n_positions)\n"
        "        out[:, t] = model(out[:, start:t])[:, -1].topk(1).indices[:, 0]\n"
        "    return out\n",
        "import torch\n"
        "def generate(model, ids, n):\n"
        "    if n == 0:\n"
        "        return ids\n"
        "    probs = model(ids[:, -model.config.n_positions :]).softmax(-1)\n"
        "    return generate(model, torch.hstack([ids, probs[:, -1:].argmax(-1)]), n - 1)\n",
    ),
)
