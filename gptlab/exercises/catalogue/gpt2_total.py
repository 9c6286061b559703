"""Chapter 8: the total of GPT-2 small, and what the other totals that are seen have counted."""

from __future__ import annotations

from gptlab.config import PRESETS
from gptlab.exercises.exercise import NumericExercise, WrongNumber
from gptlab.exercises.quantity import parse
from gptlab.ledger import Ledger

_SMALL = PRESETS["gpt2"]
_LEDGER = Ledger.from_config(_SMALL)
_TOTAL = _LEDGER.total
_V, _P, _C, _L, _H = (
    _SMALL.vocab_size,
    _SMALL.n_positions,
    _SMALL.n_embd,
    _SMALL.n_layer,
    _SMALL.n_head,
)
_HEAD, _BLOCKS = _V * _C, _LEDGER.subtotal("h.")
_BIASES = 9 * _C * _L  # of the linear layers
_NORMS = (2 * _L + 1) * 2 * _C
_QKV = 3 * _C * _C * _L
_MASKS = _P * _P * _L
_NO_PROJECTION = _TOTAL - (_C * _C + _C) * _L
_GPT1_VOCABULARY = _TOTAL - (_V - 40_478) * _C


EXERCISE = NumericExercise(
    name="gpt2_total",
    chapter=8,
    task="How many parameters does GPT-2 small have? V = 50,257, P = 1,024, C = 768, L = 12, H = 12.",
    difficulty="medium",
    minutes=10,
    answer=parse(_TOTAL),
    wrong=(
        WrongNumber(
            parse(117_000_000),
            "that is the paper's label. OpenAI said later that its counts were wrong. Count the tensors.",
        ),
        WrongNumber(
            parse(_TOTAL + _HEAD),
            "the head is counted as well. It is the token table under a second name, one Parameter. Adding up a "
            "state_dict gives this number, too: it lists both names.",
        ),
        WrongNumber(parse(_TOTAL - _P * _C), "the position table is missing, 1,024 · 768."),
        WrongNumber(
            parse(_BLOCKS), "those are the twelve blocks alone. The two tables and ln_f are missing."
        ),
        WrongNumber(parse(_BLOCKS + 2 * _C), "those are the blocks and ln_f. The two tables are missing."),
        WrongNumber(
            parse(12 * _C * _C * _L),
            "those are the matrices of the blocks alone, 12C² in each. Biases, LayerNorms and tables are missing.",
        ),
        WrongNumber(
            parse(_TOTAL - _HEAD),
            "the token table is missing. The head is this table: one of the two has to be counted.",
        ),
        WrongNumber(
            parse(_TOTAL - _BLOCKS // _L * (_L - 1)),
            "there is one block in it, or the same one twelve times, as [block] * 12 makes it. Twelve different ones "
            "are needed.",
        ),
        WrongNumber(parse(_TOTAL - 2 * _C), "the final LayerNorm, ln_f, is missing: 2C."),
        WrongNumber(parse(_TOTAL - _NORMS), "the LayerNorms are missing: 25 of them, with 2C each."),
        WrongNumber(parse(_TOTAL - 2 * _C * _L), "each block has one LayerNorm. It has two, ln_1 and ln_2."),
        WrongNumber(
            parse(_TOTAL - _NORMS // 2), "the LayerNorms have no bias. Each has a gain and a bias, 2C."
        ),
        WrongNumber(
            parse(_TOTAL - _BIASES), "the biases of the linear layers are missing, 9C in each block."
        ),
        WrongNumber(
            parse(_TOTAL - _BIASES - _NORMS // 2),
            "all biases are missing: those of the linear layers, 9C in each block, and those of the LayerNorms.",
        ),
        WrongNumber(
            parse(_TOTAL - _BIASES - _NORMS),
            "those are the matrices and tables alone: the ones that weight decay reaches. Biases and LayerNorms are "
            "missing.",
        ),
        WrongNumber(parse(_TOTAL - 3 * _C * _L), "the biases of Q, K and V are missing, 3C in each block."),
        WrongNumber(
            parse(_TOTAL - 3 * _C * _L + _HEAD),
            "two things: the biases of Q, K and V are missing, 3C in each block, and the tied head is counted.",
        ),
        WrongNumber(
            parse(_NO_PROJECTION),
            "attention's output projection is missing, C² + C in each block. That it begins like the paper's 117M is "
            "an accident.",
        ),
        WrongNumber(
            parse(_GPT1_VOCABULARY),
            "that is with the 40,478 tokens of GPT-1. It rounds to the paper's 117M, and probably explains it. "
            "GPT-2's vocabulary has 50,257.",
        ),
        WrongNumber(
            parse(_TOTAL - _QKV + _QKV // _H),
            "the weights of Q, K and V are divided by the number of heads. A head has C/H of the columns, and there "
            "are H heads: together they have all of them.",
        ),
        WrongNumber(
            parse(_TOTAL - (_QKV + 3 * _C * _L) // _H * (_H - 1)),
            "weights and biases of Q, K and V are divided by the number of heads. A head has C/H of the columns, and "
            "there are H heads: together they have all of them.",
        ),
        WrongNumber(
            parse(_TOTAL + _MASKS),
            "the causal masks are counted, 1024² in each block. A mask is a buffer: nobody learns it.",
        ),
        WrongNumber(
            parse(_TOTAL + _MASKS + _HEAD),
            "two things: the causal masks are counted, 1024² in each block, and the tied head, which a state_dict "
            "lists under a second name.",
        ),
        WrongNumber(
            parse(_TOTAL + (50_304 - _V) * _C),
            "the vocabulary is 50,304, padded to a multiple of 64 as nanoGPT has it. GPT-2's has 50,257 tokens.",
        ),
        WrongNumber(
            parse(_TOTAL + (50_304 - _V) * _C + 50_304 * _C),
            "two things: the vocabulary is 50,304, padded to a multiple of 64, and the tied head is counted.",
        ),
        WrongNumber(parse(_TOTAL - _C), "one token is missing: <|endoftext|> has a row, too. V is 50,257."),
        WrongNumber(parse(_TOTAL + _V), "the head has a bias, V values. GPT-2's head has none."),
    ),
    hints=(
        "Two tables, twelve blocks, one LayerNorm. Is there anything else that is learnt?",
        "The head is one of the tables. A block has two LayerNorms and four linear layers, all with biases.",
        "V · C + P · C + L · (12C² + 13C) + 2C.",
        "50257 * 768 + 1024 * 768 + 12 * (...) + ...",
    ),
    solution="50257 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768",
)
