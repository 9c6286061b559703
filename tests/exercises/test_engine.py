from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from gptlab import bpe
from gptlab.exercises import compare
from gptlab.exercises.engine import examine, tells_apart
from gptlab.exercises.exercise import find

PAIRS, MERGE, X, EMBED = find("pair_counts"), find("merge_pair"), find("input_tensor"), find("embed")


def right_x(tokens, W_E, W_P):
    return W_E[tokens] + W_P[: tokens.shape[1]]


# Gates


@pytest.mark.parametrize("attempt", [None, ...])
def test_nothing_is_not_attempted(attempt):
    assert examine(PAIRS, attempt).status == "not_attempted"


def test_a_stub_is_not_attempted():
    def dots(ids): ...

    def documented(ids):
        """Count."""

    def passing(ids):
        pass

    def unwritten(ids):
        raise NotImplementedError

    for stub in (dots, documented, passing, unwritten):
        assert examine(PAIRS, stub).status == "not_attempted", stub


def test_a_constant_answer_is_an_attempt():
    assert examine(find("decode"), lambda ids: "hello").status == "incorrect"
    assert examine(PAIRS, lambda ids: {}).status == "incorrect"


def test_a_forgotten_return_is_said():
    def forgetful(ids):
        counts = {}
        for pair in pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1

    report = examine(PAIRS, forgetful)
    assert report.status == "incorrect"
    assert "is there a return statement?" in report.fact


def test_an_exception_shows_the_learners_line_and_the_input():
    def broken(tokens, W_E, W_P):
        return W_E @ W_P

    report = examine(X, broken)
    assert report.status == "error"
    assert report.line.endswith("return W_E @ W_P")
    assert "float32 (11, 4), float32 (7, 4)" in report.example
    assert "engine.py" not in str(report)


def test_an_exception_inside_the_package_shows_the_line_that_called_it():
    def encode(text):
        return bpe.merge_steps(text, {})[-1]

    report = examine(find("encode"), encode)
    assert report.status == "error"
    assert report.line.endswith("return bpe.merge_steps(text, {})[-1]")


def test_a_changed_dict_of_tensors_is_not_shown_as_equal_to_itself():
    def clips_in_place(grads, max_norm):
        length = torch.cat([grad.flatten() for grad in grads.values()]).norm()
        for grad in grads.values():
            grad.mul_(min(1.0, max_norm / length))
        return grads

    report = examine(find("clip_grad"), clips_in_place)
    assert report.diagnosis.id == "mutates"
    assert report.diagnosis.evidence == "argument 1 has other values than before"


def test_a_name_that_does_not_exist_is_an_error_not_a_crash():
    report = examine(PAIRS, lambda ids: undefined_name)  # noqa: F821
    assert report.status == "error"
    assert "NameError" in report.fact


def test_wrong_type_shape_and_nan_each_have_their_words():
    assert "expected a dict" in examine(PAIRS, lambda ids: list(ids)).fact
    assert "its shape is" in examine(X, lambda t, W_E, W_P: W_E).fact
    assert "NaN or infinite" in examine(X, lambda t, W_E, W_P: right_x(t, W_E, W_P) * torch.nan).fact
    assert "its type is torch.int64" in examine(X, lambda t, W_E, W_P: right_x(t, W_E, W_P).long()).fact


def test_something_that_cannot_be_called_is_said():
    assert "expected a function" in examine(PAIRS, {(1, 2): 3}).fact


def test_broadcasting_never_passes():
    report = examine(X, lambda t, W_E, W_P: right_x(t, W_E, W_P)[None])
    assert report.status == "incorrect"
    assert "its shape is (1, 2, 3, 4), expected (2, 3, 4)" in report.fact


# Descriptions, where no mistake of the catalogue matches


def test_a_constant_ratio_or_offset_is_described():
    assert "every value is 2 times" in examine(X, lambda *a: 2 * right_x(*a)).fact
    assert "every value is +3 from" in examine(X, lambda *a: right_x(*a) + 3).fact


def test_the_first_wrong_value_is_named():
    def one_off(*case):
        x = right_x(*case).clone()
        x[0, 0, 1] += 1
        return x

    assert "the first at [0, 0, 1]: got" in examine(X, one_off).fact


def test_values_in_other_places_are_described():
    assert "other places" in examine(X, lambda *a: right_x(*a).flip(-1)).fact


# Learners' objects as they come


def test_numpy_lists_and_float64_pass():
    for through_numpy in (lambda t, W: W.numpy()[t.numpy()], lambda t, W: W.detach().numpy()[t.numpy()]):
        report = examine(EMBED, through_numpy)
        assert report.right == "5 of 5 cases"
        assert report.diagnosis.id == "no-gradient"  # right values, but nothing could learn
    assert (
        examine(PAIRS, lambda ids: {(a, b): np.int64(n) for (a, b), n in PAIRS.reference(ids).items()}).status
        == "passed"
    )
    assert examine(MERGE, lambda *a: tuple(MERGE.reference(*a))).status == "passed"
    assert examine(X, lambda *a: right_x(*a).double()).status == "passed"


@pytest.mark.parametrize(("value", "expected"), [(36.0, 36), (36, 36.0), (np.float64(36), 36)])
def test_a_whole_number_is_one_in_either_type(value, expected):
    assert compare.same(value, expected)
    assert compare.same({"bytes": value}, {"bytes": expected})
    assert compare.complaint(value, expected) is None


@pytest.mark.parametrize(("value", "expected"), [(36.5, 36), (37, 36.0), (True, 1.0), (float("inf"), 36)])
def test_another_number_is_none(value, expected):
    assert not compare.same(value, expected)


def test_lists_of_tensors_are_compared_tensor_by_tensor():
    batches = [(torch.zeros(2), torch.ones(3)), (torch.ones(2), torch.ones(1))]
    assert compare.same([(a.clone(), b.clone()) for a, b in batches], batches)
    assert not compare.same(batches[:1], batches)
    assert not compare.same([(a, b + 1) for a, b in batches], batches)
    assert compare.short(batches) == "a list of 2"


def test_a_small_tensor_is_shown_with_four_digits():
    assert compare.short(torch.tensor([[1 / 3, -2.0]])) == "tensor([[0.3333, -2.0]])"
    assert compare.short(torch.nn.Sequential(torch.nn.ReLU())) == "Sequential(…)"


def test_a_case_that_shows_all_mistakes_of_an_exercise_is_told_from_one_that_does_not():
    assert tells_apart(MERGE, ([7, 7, 7, 1, 7, 7, 5], (7, 7), 9))
    assert not tells_apart(MERGE, ([7, 7, 7, 5], (7, 7), 9)), "here one merge is all"


def test_a_module_and_an_output_with_a_cache_pass():
    class Adds(torch.nn.Module):
        def forward(self, tokens, W_E, W_P):
            return right_x(tokens, W_E, W_P)

    assert examine(X, Adds()).status == "passed"
    assert examine(X, lambda *a: (right_x(*a), "cache")).status == "passed"


def test_another_order_of_additions_is_within_the_tolerance():
    assert examine(X, lambda *a: right_x(*a) * (1 + 1e-7)).status == "passed"
    assert examine(X, lambda *a: right_x(*a) * (1 + 1e-4)).status == "incorrect"


# Probes


def test_changed_inputs_are_found():
    def in_place(ids, pair, new):
        ids[:] = MERGE.reference(ids, pair, new)
        return ids

    assert examine(MERGE, in_place).diagnosis.id == "mutates"

    def adds_into_the_table(tokens, W_E, W_P):
        with torch.no_grad():
            W_P[0] += 1
            W_P[0] -= 0.5
        return (
            right_x(tokens, W_E, W_P)
            - torch.nn.functional.one_hot(torch.tensor(0), tokens.shape[1])[:, None] * 0.5
        )

    assert examine(X, adds_into_the_table).diagnosis.id == "mutates"


def test_chance_is_found():
    def sometimes(*case):
        return right_x(*case) if random.random() < 2 and next(coin) else right_x(*case) + 1

    coin = iter([True] * 5 + [True] * 5 + [True, False] * 50)
    assert examine(X, sometimes).diagnosis.id == "random"


def test_a_lost_gradient_is_found():
    assert examine(X, lambda t, W_E, W_P: W_E[t] + W_P[: t.shape[1]].detach()).diagnosis.id == "no-gradient"


def test_right_values_that_fail_with_gradients_are_an_error_not_a_crash():
    def in_place(tokens, W_E, W_P):
        W_E += 1
        W_E -= 1
        return right_x(tokens, W_E, W_P)

    assert examine(X, in_place).status in ("error", "incorrect")


# The class of chapter 2


def embedding_class(body: str):
    from tests.exercises.test_catalogue import define

    source = (
        "import torch\nfrom torch import nn\n"
        "class InputEmbedding(nn.Module):\n"
        "    def __init__(self, V, P, C):\n"
        "        super().__init__()\n"
        "        self.wte = nn.Embedding(V, C)\n"
        f"        {body}\n"
        "    def forward(self, t):\n"
        "        return self.wte(t) + self.W_P[: t.shape[1]]\n"
    )
    return define(source, "InputEmbedding")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("self.W_P = torch.randn(P, C)", "plain-tensor"),
        ("self.register_buffer('W_P', torch.randn(P, C))", "buffer"),
        ("self.W_P = nn.Parameter(torch.randn(P, C), requires_grad=False)", "no-gradient"),
    ],
)
def test_a_table_that_cannot_learn_is_named(body, name):
    report = examine(find("InputEmbedding"), embedding_class(body))
    assert report.diagnosis, report
    assert report.diagnosis.id == name


def test_an_object_instead_of_the_class_is_named():
    right = embedding_class("self.W_P = nn.Parameter(torch.randn(P, C))")
    assert examine(find("InputEmbedding"), right).status == "passed"
    assert examine(find("InputEmbedding"), right(9, 7, 4)).diagnosis.id == "not-a-class"


# Good manners


def test_the_random_state_and_torchs_modes_are_put_back():
    def rude(ids):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        return PAIRS.reference(ids)

    random.seed(7)
    before = random.getstate(), torch.get_rng_state().clone(), np.random.get_state()[1].copy()
    assert examine(PAIRS, rude).status == "passed"
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (np.random.get_state()[1] == before[2]).all()
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32


def test_an_interrupt_goes_through():
    def loops(ids):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine(PAIRS, loops)


def test_the_same_attempt_gets_the_same_report():
    def wrong(ids):
        return {}

    assert str(examine(PAIRS, wrong)) == str(examine(PAIRS, wrong))
    assert examine(PAIRS, wrong, seed=1).status == "incorrect"


# Numbers

TOTAL = find("embedding_total")


@pytest.mark.parametrize(
    "answer", [52_511_744, "52,511,744", "52.5M", "52.51M", lambda: 52_511_744, 5.2511744e7]
)
def test_a_number_may_be_written_in_many_ways(answer):
    assert examine(TOTAL, answer).status == "passed"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("53M", "rounded too much"),
        ("52.6M", "near the right value, but not equal"),
        ("many", "cannot read 'many' as a number"),
        ("3 apples", "cannot read the unit 'apples'"),
        (True, "cannot read True"),
        (105_023_488, "is 2 times the right value"),
        ([1], "cannot read [1]"),
    ],
)
def test_a_number_that_is_no_answer_gets_a_fact(answer, words):
    report = examine(TOTAL, answer)
    assert report.status == "incorrect"
    assert words in report.fact, report


def test_a_function_that_computes_the_number_may_fail_without_raising():
    def unwritten():
        raise NotImplementedError

    assert examine(TOTAL, lambda: 1 / 0).status == "error"
    assert "ZeroDivisionError" in examine(TOTAL, lambda: 1 / 0).fact
    assert examine(TOTAL, unwritten).status == "not_attempted"
    assert examine(TOTAL, lambda: None).status == "not_attempted"


def test_numeric_exercises_import_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import gptlab; print(gptlab.check('embedding_total', 51463168).diagnosis.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "token table alone" in done.stdout
