"""Chapter 6: what a model that knows nothing loses."""

from __future__ import annotations

from decimal import Decimal

from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import Quantity, parse

EXERCISE = NumericExercise(
    name="first_loss",
    chapter=6,
    task="A model gives the same probability to each of GPT-2's 50,257 tokens. What is its next-token loss, in nats, "
    "to three decimals?",
    difficulty="easy",
    minutes=5,
    answer=parse("10.825"),
    wrong=(
        WrongNumber(
            parse("15.617"), "that is in bits, log₂ 50257. Nats are asked for: the natural logarithm."
        ),
        WrongNumber(parse("4.701"), "that is log₁₀ 50257. Nats are asked for: the natural logarithm."),
        WrongNumber(
            parse("-10.825"),
            "that is the log-probability of a token, ln(1/50257). The loss is minus that.",
        ),
        WrongNumber(
            parse("6.644"),
            "that is ln 768, from the width C. The model chooses among the V tokens, not among its features.",
        ),
        WrongNumber(
            parse("6.931"),
            "that is ln 1024, from the number of positions. The model chooses among the V tokens.",
        ),
        WrongNumber(
            parse("10.826"),
            "that is ln 50304, from a vocabulary padded to a multiple of 64. GPT-2's has 50,257 tokens.",
        ),
        WrongNumber(
            Quantity(Decimal("10.970"), step=Decimal("0.04")),
            "that is about what a fresh model measures: ln V and about half the variance of its logits, since fresh "
            "logits are not all equal. The question has them equal.",
        ),
        WrongNumber(
            parse("50257"), "that is the perplexity, e to the power of the loss. The loss is its logarithm."
        ),
        WrongNumber(
            parse("0.0000199"),
            "that is the probability of a token, 1/50257. The loss is minus its logarithm.",
        ),
    ),
    hints=(
        "The loss at a position is minus the logarithm of the probability that the right token got.",
        "Which probability does each token get? Whatever comes next, it is the same.",
        "-ln(1/V) = ln V, with V = 50,257.",
        "math.log(...)",
    ),
    solution="math.log(50257)",
)
