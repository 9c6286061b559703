from __future__ import annotations

import json
import multiprocessing
import os
from itertools import pairwise

import pytest

import gptlab
from gptlab.exercises import records
from gptlab.exercises.exercise import everything


def right(ids):
    pairs = list(pairwise(ids))
    return {pair: pairs.count(pair) for pair in pairs}


def wrong(ids):
    return {}


def also_wrong(ids):
    return {0: 0}


def still_wrong(ids):
    return {1: 1}


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("GPTLAB_HOME", str(tmp_path))


def test_a_check_is_remembered_and_a_pass_stays():
    assert gptlab.check("pair_counts", wrong).status == "incorrect"
    assert records.of("pair_counts")["status"] == "incorrect"
    assert gptlab.check("pair_counts", right).status == "passed"
    gptlab.check("pair_counts", wrong)
    assert records.of("pair_counts")["status"] == "passed"
    assert "✓ pair_counts" in str(gptlab.progress())


def test_a_stub_leaves_no_trace(tmp_path):
    def stub(ids): ...

    gptlab.check("pair_counts", stub)
    assert not list(tmp_path.iterdir())


def test_no_code_is_kept(tmp_path):
    gptlab.check("pair_counts", wrong)
    text = (tmp_path / "progress.json").read_text()
    assert "return" not in text
    assert json.loads(text)["version"] == 1


def test_hints_escalate_and_a_chosen_level_does_not_count():
    assert "Hint 1 of 4" in str(gptlab.hint("pair_counts"))
    assert "Hint 2 of 4" in str(gptlab.hint("pair_counts"))
    assert "Hint 1 of 4" in str(gptlab.hint("pair_counts", level=1))
    assert "Hint 3 of 4" in str(gptlab.hint("pair_counts"))
    assert "Hint 4 of 4" in str(gptlab.hint("pair_counts"))
    assert "Hint 4 of 4" in str(gptlab.hint("pair_counts"))
    with pytest.raises(ValueError, match="level=5: pair_counts has hints 1 to 4"):
        gptlab.hint("pair_counts", level=5)


def test_the_solution_opens_after_three_different_attempts():
    def shown() -> str:
        return " ".join(str(gptlab.solution("pair_counts")).split())

    assert "after 3 more attempts" in shown()
    for _ in range(3):
        gptlab.check("pair_counts", wrong)  # the same one three times
    assert "after 2 more attempts" in shown()
    gptlab.check("pair_counts", also_wrong)
    assert "after 1 more attempt." in shown()
    gptlab.check("pair_counts", still_wrong)
    assert shown().startswith("def pair_counts(ids):")


def test_the_solution_opens_after_a_pass_or_when_asked():
    assert str(gptlab.solution("merge_pair", reveal=True)).startswith("def merge_pair")
    gptlab.check("pair_counts", right)
    assert str(gptlab.solution("pair_counts")).startswith("def pair_counts")


def test_assert_check_raises_with_the_report_and_notes_nothing(tmp_path):
    gptlab.assert_check("pair_counts", right)
    with pytest.raises(AssertionError, match="pair_counts: not yet"):
        gptlab.assert_check("pair_counts", wrong)
    assert not list(tmp_path.iterdir())


def test_an_unknown_exercise_is_told_the_closest():
    with pytest.raises(ValueError, match="no exercise 'pair_count'; did you mean 'pair_counts'"):
        gptlab.check("pair_count", right)
    with pytest.raises(ValueError, match="there are: decode, encode"):
        gptlab.check("quantum", right)


def test_progress_can_be_exported_and_reset(tmp_path):
    gptlab.check("pair_counts", wrong)
    gptlab.check("merge_pair", lambda *a: [])
    gptlab.export_progress(tmp_path / "me.json")
    assert set(json.loads((tmp_path / "me.json").read_text())["exercises"]) == {"pair_counts", "merge_pair"}
    gptlab.reset_progress("pair_counts")
    assert records.of("pair_counts")["attempts"] == []
    assert records.of("merge_pair")["attempts"]
    gptlab.reset_progress()
    assert records.load() == {}
    with pytest.raises(ValueError, match="no exercise"):
        gptlab.reset_progress("pair_count")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged"),
        ("[]", "is not a progress file"),
        ('{"version": 2, "exercises": {}}', "upgrade gptlab"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone_and_said(tmp_path, content, words):
    (tmp_path / "progress.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        gptlab.progress()
    report = gptlab.check("pair_counts", right)  # the check itself still works
    assert report.status == "passed"
    assert words in report.remark
    assert (tmp_path / "progress.json").read_text() == content


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    gptlab.check("pair_counts", wrong)
    before = (tmp_path / "progress.json").read_text()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert "No space left" in gptlab.check("pair_counts", right).remark
    assert (tmp_path / "progress.json").read_text() == before


def _work(home: str, name: str) -> None:
    os.environ["GPTLAB_HOME"] = home
    for i in range(20):
        records.update(name, lambda record, i=i: record["attempts"].append(f"{name}{i}"))


def test_two_processes_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_work, args=(str(tmp_path), name)) for name in ("pair_counts", "merge_pair")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(len(records.of(name)["attempts"]) == 20 for name in ("pair_counts", "merge_pair"))


def test_the_card_has_no_script_and_escapes_what_it_shows():
    def raises(ids):
        raise ValueError("<script>alert(1)</script>")

    card = gptlab.check("pair_counts", raises)._repr_html_()
    assert "<script" not in card
    assert "&lt;script&gt;" in card


def test_a_report_fits_a_terminal_and_has_no_colour_codes():
    text = str(gptlab.check("pair_counts", wrong))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text


def test_a_solution_is_shown_as_it_is_written_and_runs():
    for exercise in everything():
        shown = repr(gptlab.solution(exercise.name, reveal=True))
        assert shown == exercise.solution.strip()
        compile(shown, exercise.name, "exec")


def test_no_line_of_a_hint_in_words_is_longer_than_a_terminal_is_wide():
    lines = [line for level in (1, 2, 3) for line in repr(gptlab.hint("lr_at", level)).split("\n")]
    assert max(map(len, lines)) <= 80


def test_a_record_that_cannot_be_written_names_the_remedy(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPTLAB_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="set the environment variable GPTLAB_HOME"):
        gptlab.hint("pair_counts")
    report = gptlab.check("pair_counts", right)
    assert report.status == "passed"
    assert "set the environment variable GPTLAB_HOME" in report.remark
