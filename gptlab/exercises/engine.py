"""Check an attempt: does it give the right answers, and if not, which well-known mistake does it make?

The order: is there anything to check? Does it run? Do type, shape and values agree on every case? If not, is there
a mistake of the exercise, or a pair of them, that gives exactly its answers? If not, how do the answers differ?
If they agree, do the probes find something that values do not show?
"""

from __future__ import annotations

import copy
import dis
import inspect
import random
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from gptlab.exercises import compare, probes
from gptlab.exercises.exercise import Diagnosis, Exercise, Misbuilt, NumericExercise
from gptlab.exercises.quantity import Quantity, parse
from gptlab.exercises.report import Report

PACKAGE = Path(__file__).parents[1]


@dataclass
class Outcome:
    """What an attempt did with one case: the value that it returned, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None

    def agrees_with(self, expected: Outcome) -> bool:
        if self.error is not None or expected.error is not None:
            return type(self.error) is type(expected.error)
        return compare.same(self.value, expected.value)


def examine(exercise: Exercise | NumericExercise, attempt: Any, seed: int | None = None) -> Report:
    """Check ``attempt`` and say what was found. Never raises because of a wrong answer.

    Args:
        exercise: the exercise.
        attempt: the learner's function, class, module or number.
        seed: for the random cases; unless given, it follows from the exercise's name, so that the same
            attempt always gets the same report.
    """
    if attempt is None or attempt is ...:
        return Report(exercise.name, "not_attempted")
    if isinstance(exercise, NumericExercise):
        return _examine_number(exercise, attempt)
    if not callable(attempt):
        return _incorrect(exercise, fact=f"{exercise.name} is {compare.a_kind(attempt)}, expected a function")
    if _is_stub(attempt):
        return Report(exercise.name, "not_attempted")
    with _undisturbed():
        return _examine_function(exercise, attempt, seed)


def _examine_function(exercise: Exercise, attempt: Any, seed: int | None) -> Report:
    try:
        function = exercise.adapt(attempt) if exercise.adapt else attempt
    except Misbuilt as found:
        return Report(exercise.name, "incorrect", diagnosis=found.diagnosis)
    except NotImplementedError:
        return Report(exercise.name, "not_attempted")
    cases = make_cases(exercise, seed)
    expected = [run(exercise.reference, case) for case in cases]
    answers: list[Outcome] = []
    for case in cases:
        answers.append(run(function, case))
        if isinstance(answers[-1].error, NotImplementedError):
            return Report(exercise.name, "not_attempted")
        if isinstance(answers[-1].error, Misbuilt):
            return Report(exercise.name, "incorrect", diagnosis=answers[-1].error.diagnosis)
    right = [answer.agrees_with(wanted) for answer, wanted in zip(answers, expected, strict=True)]
    if all(right):
        return _probe(exercise, function, cases)
    score = f"{sum(right)} of {len(cases)} cases" if any(right) else ""
    worst = right.index(False)
    example = _example(exercise, cases[worst], answers[worst], expected[worst])
    if diagnosis := _recognise(exercise, cases, answers, example):
        return Report(exercise.name, "incorrect", right=score, diagnosis=diagnosis)
    for case, answer in zip(cases, answers, strict=True):
        if answer.error is not None:
            return _error(exercise, answer.error, case, score)
    complaints = [compare.complaint(a.value, e.value) for a, e in zip(answers, expected, strict=True)]
    first = next((i for i, text in enumerate(complaints) if text), None)
    if first is not None:
        fact = complaints[first] or ""
        if all(answer.value is None for answer in answers):
            fact = "it returns None: is there a return statement?"
        return _incorrect(exercise, fact=fact, right=score, example=_call(exercise, cases[first]))
    fact = compare.difference(answers[worst].value, expected[worst].value)
    return _incorrect(exercise, fact=fact, right=score, example=_call(exercise, cases[worst]))


def make_cases(exercise: Exercise, seed: int | None = None) -> list[tuple[Any, ...]]:
    """The arguments to try, the same for the same seed."""
    return exercise.cases(random.Random(zlib.crc32(exercise.name.encode()) if seed is None else seed))


def tells_apart(exercise: Exercise, case: tuple[Any, ...]) -> bool:
    """Whether this one case shows every mistake of an exercise, and no two of them alike."""
    answers = [
        run(partial(exercise.reference, on=frozenset(on)), case, copies=False)
        for on in [(), *((mistake.id,) for mistake in exercise.mistakes)]
    ]
    return not any(one.agrees_with(other) for one, other in combinations(answers, 2))


def run(function: Callable[..., Any], case: tuple[Any, ...], copies: bool = True) -> Outcome:
    """Call a function with copies of the arguments; the reference, which changes none, needs no copies.

    Interrupts go through.
    """
    try:
        return Outcome(value=function(*(copy.deepcopy(case) if copies else case)))
    except Exception as error:  # the learner's: it is reported
        return Outcome(error=error)


def _recognise(
    exercise: Exercise, cases: list[tuple[Any, ...]], answers: list[Outcome], example: str
) -> Diagnosis | None:
    """The mistake, or failing that the pair of mistakes, that gives these answers in every case."""
    for size in (1, 2):
        found = [
            chosen
            for chosen in combinations(exercise.mistakes, size)
            if _gives(exercise, frozenset(mistake.id for mistake in chosen), cases, answers)
        ]
        if found:
            messages = [mistake.message for mistake in found[0]]
            text = (
                messages[0]
                if size == 1
                else "two things are happening. First: {} Second: {}".format(*messages)
            )
            others = tuple("+".join(m.id for m in chosen) for chosen in found[1:])
            return Diagnosis("+".join(mistake.id for mistake in found[0]), text, example, others)
    return None


def _gives(
    exercise: Exercise, on: frozenset[str], cases: list[tuple[Any, ...]], answers: list[Outcome]
) -> bool:
    def mistaken(*case: Any) -> Any:
        return exercise.reference(*case, on=on)

    return all(
        answer.agrees_with(run(mistaken, case, copies=False))
        for case, answer in zip(cases, answers, strict=True)
    )


def _probe(exercise: Exercise, function: Callable[..., Any], cases: list[tuple[Any, ...]]) -> Report:
    """All values are right. Look for what they do not show."""
    score = f"{len(cases)} of {len(cases)} cases"
    for probe in (probes.leaves_its_inputs_alone, probes.gives_the_same_twice, *exercise.probes):
        for case in cases:
            try:
                found = probe(function, copy.deepcopy(case))
            except Exception as error:
                # The learner's: the values are right, but it fails when gradients are recorded, say.
                return _error(exercise, error, case, score)
            if found:
                return Report(exercise.name, "incorrect", right=score, diagnosis=found)
    return Report(exercise.name, "passed", right=score)


def _examine_number(exercise: NumericExercise, attempt: Any) -> Report:
    if callable(attempt):
        outcome = run(attempt, ())
        if outcome.error is not None and not isinstance(outcome.error, NotImplementedError):
            return _error(exercise, outcome.error, (), "")
        attempt = outcome.value
        if attempt is None or attempt is ...:
            return Report(exercise.name, "not_attempted")
    try:
        answer = parse(attempt)
    except ValueError as error:
        return _incorrect(exercise, fact=str(error))
    if answer.agrees_with(exercise.answer):
        return Report(exercise.name, "passed", right=f"{compare.short(attempt)}")
    for wrong in exercise.wrong:
        if answer.agrees_with(wrong.value):
            return Report(
                exercise.name,
                "incorrect",
                diagnosis=Diagnosis("number", wrong.message, f"you answered {attempt}"),
            )
    return _incorrect(exercise, fact=f"{attempt}{_wrong_number(answer, exercise.answer)}")


def _wrong_number(answer: Quantity, right: Quantity) -> str:
    """What is wrong with a number that is no well-known mistake."""
    if answer.measure and answer.measure != right.measure:
        wanted = {
            "bytes": "a number of bytes",
            "share": "a share, such as a percentage",
            "": "a plain number",
        }
        return f" is in another unit than the question asks for: {wanted[right.measure]}"
    if right.measure == "share" and not answer.measure and answer.value > 1:
        answer = replace(answer, value=answer.value / 100, step=max(answer.step, Decimal(1)) / 100)
    if answer.step and abs(answer.value - right.value) <= answer.step / 2:
        return " is rounded too much: give at least three digits"
    read = (
        " has no unit, so it is read as bytes, and" if right.measure == "bytes" and not answer.measure else ""
    )
    ratio = answer.value / right.value
    if abs(ratio - 1) < Decimal("0.05"):
        return (
            f"{read} is near the right value, but not equal to it. If it is rounded, write it with as many digits as "
            "you mean, like 1.23M, 1.23e6 or 1.23 GB"
        )
    return f"{read} is {float(ratio):.3g} times the right value"


def _incorrect(
    exercise: Exercise | NumericExercise, *, fact: str, right: str = "", example: str = ""
) -> Report:
    return Report(exercise.name, "incorrect", right=right, fact=fact, example=example)


def _error(
    exercise: Exercise | NumericExercise, error: Exception, case: tuple[Any, ...], score: str
) -> Report:
    line = _learners_line(error)
    fact = f"{type(error).__name__}: {error}".rstrip(": ")
    return Report(exercise.name, "error", right=score, fact=fact, line=line, example=_call(exercise, case))


def _learners_line(error: Exception) -> str:
    """The last line of the learner's own code on the way to the error."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(PACKAGE) and "site-packages" not in frame.filename
    ]
    return f"line {frames[-1].lineno}: {frames[-1].line}" if frames and frames[-1].line else ""


def _call(exercise: Exercise | NumericExercise, case: tuple[Any, ...]) -> str:
    return f"{exercise.name}({', '.join(compare.short(argument, 40) for argument in case)})"


def _example(exercise: Exercise, case: tuple[Any, ...], answer: Outcome, expected: Outcome) -> str:
    if answer.error is not None:
        got = f"raises {type(answer.error).__name__}"
    elif compare.is_tensor(expected.value) or compare.is_named(expected.value):
        fact = compare.complaint(answer.value, expected.value)
        got = fact or compare.difference(answer.value, expected.value)
        return f"{_call(exercise, case)}: {got}"
    else:
        got = f"gives {compare.short(answer.value)}"
    return f"{_call(exercise, case)} {got}, expected {compare.short(expected.value)}"


def _is_stub(attempt: Any) -> bool:
    """Whether a function's body, for a class that of ``forward``, is nothing but ``...``, ``pass`` or a docstring."""
    if inspect.isclass(attempt):
        attempt = vars(attempt).get("forward")
    code = getattr(inspect.unwrap(attempt), "__code__", None)
    if code is None:
        return False
    idle = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP", "CACHE"}
    constants = set(code.co_consts) - {attempt.__doc__}
    return all(step.opname in idle for step in dis.get_instructions(code)) and constants <= {None, ...}


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put back what an attempt may have changed: the random generators, gradients on or off, the default type.

    The generators start alike, so that an attempt that draws from them gets the same report again.
    """
    python_state = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    numpy_state = numpy.random.get_state() if numpy else None
    if torch:
        torch_state, grad, dtype = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
        torch.random.default_generator.manual_seed(0)
    if numpy:
        numpy.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)
            torch.set_grad_enabled(grad)
            torch.set_default_dtype(dtype)
