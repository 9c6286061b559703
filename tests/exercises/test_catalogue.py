"""What every exercise has to prove: its mistakes are visible and told apart, right answers pass, nonsense does not."""

from __future__ import annotations

import inspect
import math
import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from gptlab.exercises import compare
from gptlab.exercises.engine import Outcome, examine, make_cases, run
from gptlab.exercises.exercise import Exercise, NumericExercise, everything, find

ALL = everything()
FUNCTIONS = [exercise for exercise in ALL if isinstance(exercise, Exercise)]
NUMBERS = [exercise for exercise in ALL if isinstance(exercise, NumericExercise)]
SEEDS = [None, 1, 2, 3]

each_exercise = pytest.mark.parametrize("exercise", ALL, ids=lambda exercise: exercise.name)
each_function = pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda exercise: exercise.name)
each_number = pytest.mark.parametrize("exercise", NUMBERS, ids=lambda exercise: exercise.name)
each_mistake = pytest.mark.parametrize(
    ("exercise", "mistake"),
    [(exercise, mistake) for exercise in FUNCTIONS for mistake in exercise.mistakes],
    ids=lambda value: getattr(value, "name", None) or value.id,
)


def define(source: str, name: str) -> Any:
    """What a learner's source defines. It is written so that ``inspect`` can find it, as in a notebook."""
    import linecache

    file = f"<learner {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": "learner"}
    exec(compile(source, file, "exec"), names)
    return names[name]


def outcomes(exercise: Exercise, on: frozenset[str], seed: int | None) -> list[Outcome]:
    return [run(lambda *case: exercise.reference(*case, on=on), case) for case in make_cases(exercise, seed)]


def on_functions(exercise: Exercise) -> Exercise:
    """The exercise without what makes a function of a learner's class, say: its reference is one already."""
    return replace(exercise, adapt=None, probes=()) if exercise.adapt else exercise


@each_function
@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_passes(exercise, seed):
    report = examine(on_functions(exercise), exercise.reference, seed)
    assert report.status == "passed", report


@each_mistake
@pytest.mark.parametrize("seed", SEEDS)
def test_every_mistake_is_visible_and_named(exercise, mistake, seed):
    def mistaken(*case):
        return exercise.reference(*case, on=frozenset({mistake.id}))

    report = examine(on_functions(exercise), mistaken, seed)
    assert report.status == "incorrect", report
    assert report.diagnosis, report
    assert report.diagnosis.id == mistake.id, report
    assert report.diagnosis.also_possible == ()
    assert mistake.message in report.diagnosis.message
    assert report.diagnosis.evidence


@pytest.mark.parametrize("mistake", find("InputEmbedding").mistakes, ids=lambda mistake: mistake.id)
def test_a_mistake_inside_a_class_is_named(mistake):
    class InputEmbedding(torch.nn.Module):
        def __init__(self, vocab_size, n_positions, n_embd):
            super().__init__()
            self.wte = torch.nn.Embedding(vocab_size, n_embd)
            self.wpe = torch.nn.Embedding(n_positions, n_embd)

        def forward(self, tokens):
            on = frozenset({mistake.id})
            return find("InputEmbedding").reference(tokens, self.wte.weight, self.wpe.weight, on=on)

    report = examine(find("InputEmbedding"), InputEmbedding)
    assert report.diagnosis, report
    assert report.diagnosis.id == mistake.id


@each_function
@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_mistakes_give_the_same_answers(exercise, seed):
    cases = make_cases(exercise, seed)
    found = {m.id: outcomes(exercise, frozenset({m.id}), seed) for m in exercise.mistakes}
    for first, second in combinations(exercise.mistakes, 2):
        if first.message != second.message:
            alike = [a.agrees_with(b) for a, b in zip(found[first.id], found[second.id], strict=True)]
            assert not all(alike), (first.id, second.id)
    assert len(cases) >= 3


@each_function
def test_pairs_of_mistakes_are_named_and_never_by_a_single_one(exercise):
    cases = make_cases(exercise)
    singles = {m.id: outcomes(exercise, frozenset({m.id}), None) for m in exercise.mistakes}
    right = outcomes(exercise, frozenset(), None)
    pairs = list(combinations(exercise.mistakes, 2))
    for first, second in random.Random(0).sample(pairs, min(30, len(pairs))):
        both = outcomes(exercise, frozenset({first.id, second.id}), None)
        same_as = [
            name
            for name, answers in {"": right, **singles}.items()
            if all(a.agrees_with(b) for a, b in zip(both, answers, strict=True))
        ]
        if same_as:
            continue  # one hides the other: there is nothing to tell apart

        def mistaken(*case, on=frozenset({first.id, second.id})):
            return exercise.reference(*case, on=on)

        report = examine(on_functions(exercise), mistaken)
        names = {report.diagnosis.id, *report.diagnosis.also_possible} if report.diagnosis else set()
        assert f"{first.id}+{second.id}" in names, report
    assert cases


@each_function
def test_differently_written_right_answers_pass(exercise):
    assert len(exercise.also_correct) >= 3
    for source in exercise.also_correct:
        report = examine(exercise, define(source, exercise.name))
        assert report.status == "passed", f"{source}\n{report}"


@each_function
def test_the_solution_passes_its_own_check(exercise):
    assert examine(exercise, define(exercise.solution, exercise.name)).status == "passed"


@each_number
def test_the_solution_computes_the_answer(exercise):
    answer = eval(exercise.solution, {"math": math})
    assert examine(exercise, answer).status == "passed"
    assert examine(exercise, f"{answer:,}").status == "passed"


@each_number
def test_every_wrong_number_is_recognised_and_no_two_are_the_same(exercise):
    values = [wrong.value.value for wrong in exercise.wrong]
    assert len({*values, exercise.answer.value}) == len(values) + 1
    for wrong in exercise.wrong:
        report = examine(exercise, str(wrong.value.value))
        assert report.diagnosis, report
        assert report.diagnosis.message == wrong.message


def scrambled(value: Any, rng: random.Random) -> Any:
    """Something of the same type and size that is no answer."""
    if isinstance(value, torch.Tensor):
        return torch.randn(value.shape, generator=torch.Generator().manual_seed(rng.randrange(2**31)))
    if isinstance(value, list):
        return [rng.randrange(1000, 2000) for _ in value] + [rng.randrange(1000, 2000)]
    if isinstance(value, dict):
        return {
            (rng.randrange(1000), rng.randrange(1000)): rng.randrange(1, 9) for _ in range(len(value) + 1)
        }
    if isinstance(value, bool):
        return rng.random() < 0.5
    return "".join(rng.choices("abcdefgh", k=len(value) + 1))


@each_function
@pytest.mark.parametrize("seed", range(25))
def test_random_answers_match_no_mistake(exercise, seed):
    rng = random.Random(seed)

    def nonsense(*case):
        return scrambled(exercise.reference(*case), rng)

    report = examine(on_functions(exercise), nonsense)
    assert report.status in ("incorrect", "error")
    assert report.diagnosis is None, report


@each_exercise
def test_everything_a_learner_may_read_is_there(exercise):
    assert len(exercise.hints) >= 4 or isinstance(exercise, NumericExercise)
    for text in (exercise.task, exercise.solution, *exercise.hints):
        assert text.strip()
    if isinstance(exercise, Exercise):
        assert exercise.name in exercise.hints[-1], "the last hint is a skeleton"
    assert 1 <= exercise.minutes <= 60


@each_function
def test_reports_name_no_tensor_at_length(exercise):
    for mistake in exercise.mistakes:

        def mistaken(*case, on=frozenset({mistake.id})):
            return exercise.reference(*case, on=on)

        report = examine(on_functions(exercise), mistaken)
        assert all(len(line) <= 80 for line in str(report).splitlines())
        assert len(str(report)) < 1200


def test_a_catalogue_module_is_named_after_its_exercise():
    for exercise in ALL:
        assert find(exercise.name) is exercise
        assert inspect.getmodule(find)


def test_cases_are_the_same_for_the_same_seed():
    for exercise in FUNCTIONS:
        for a, b in zip(make_cases(exercise, 5), make_cases(exercise, 5), strict=True):
            assert all(compare.same(x, y) for x, y in zip(a, b, strict=True))


def test_no_false_claims():
    """The totals that are reported: a false claim is a right answer that is called a mistake."""
    claims = [
        examine(exercise, define(source, exercise.name))
        for exercise in FUNCTIONS
        for source in (*exercise.also_correct, exercise.solution)
    ]
    assert sum(report.diagnosis is not None for report in claims) == 0
    recognised = sum(len(e.mistakes) for e in FUNCTIONS) + sum(len(e.wrong) for e in NUMBERS)
    assert len(ALL) >= 55
    assert recognised >= 560
