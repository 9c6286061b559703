"""Chapter 10: what one step has read."""

from __future__ import annotations

from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse

EXERCISE = NumericExercise(
    name="tokens_per_step",
    chapter=10,
    task="nanoGPT trains GPT-2 small with micro-batches of 12 windows of 1,024 tokens, and adds up the gradients of 40 "
    "of them, on all its GPUs together, for one step. How many tokens does a step learn from?",
    difficulty="easy",
    minutes=5,
    answer=parse(12 * 1024 * 40),
    wrong=(
        WrongNumber(parse(12 * 1024), "that is one micro-batch. A step adds up the gradients of 40 of them."),
        WrongNumber(parse(12 * 40), "that is the number of windows. Each has 1,024 tokens."),
        WrongNumber(
            parse(1024 * 40), "that is one window in each micro-batch. A micro-batch has 12 of them."
        ),
        WrongNumber(
            parse(12 * 1023 * 40),
            "a token is left out in each window. The targets are a window of their own, one token later, so that all "
            "1,024 positions have one.",
        ),
        WrongNumber(
            parse(12 * 1000 * 40), "that is with 1,000 tokens in a window. There are 1,024, which is 2¹⁰."
        ),
        WrongNumber(
            parse(512 * 1024),
            "that is GPT-2's own batch, 512 windows of 1,024. The question has 12 · 40 = 480 windows.",
        ),
        WrongNumber(
            parse(12 * 1024 * 40 * 8),
            "that is multiplied by eight GPUs. The 40 are those of all GPUs together, 5 on each of 8.",
        ),
        WrongNumber(
            parse(12 * 1024 * 5), "that is what one of eight GPUs reads, 5 micro-batches. There are 40."
        ),
    ),
    hints=(
        "A step is one change of the weights. Which tokens have a part in its gradient?",
        "Windows in a micro-batch, tokens in a window, micro-batches in a step.",
        "12 · 1,024 · 40.",
        "12 * 1024 * ...",
    ),
    solution="12 * 1024 * 40",
)
