"""The script behind chapter 7's twelve runs: its models are what it says, and what it stored is complete."""

import json
from dataclasses import asdict, replace

import ablation_tying
import numpy as np
import pytest
import torch

from gptlab.config import GPTConfig
from gptlab.training import Run, train
from gptlab.tying import is_tied
from tests.conftest import TINY


def test_three_kinds_of_equal_width_differ_in_the_head_only():
    tied, untied, copied = (
        ablation_tying.make_model(kind, TINY, seed=3) for kind in ablation_tying.KINDS[:3]
    )
    assert [is_tied(model) for model in (tied, untied, copied)] == [True, False, False]
    for name, parameter in tied.named_parameters():
        assert torch.equal(parameter, untied.get_parameter(name))
        assert torch.equal(parameter, copied.get_parameter(name))
    assert torch.equal(copied.lm_head.weight, copied.wte.weight)
    assert not torch.equal(untied.lm_head.weight, untied.wte.weight)


def test_the_narrow_model_is_untied_and_has_as_many_parameters_as_the_tied_one():
    stored = json.loads(ablation_tying.FILE.read_text())
    tied, narrow = (
        ablation_tying.make_model(k, GPTConfig(**stored["config"]), 0) for k in ("tied", "narrow")
    )
    assert not is_tied(narrow)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (tied, narrow)]
    assert sizes == [1_337_600, 1_341_368]


def test_rows_that_no_text_reads_are_measured_alone():
    rows = torch.tensor([[3.0, 4.0], [9.0, 0.0], [3.0, -4.0], [9.0, 9.0]])
    training = np.array([1, 3, 1], dtype=np.uint16)
    assert ablation_tying.unread_rows(rows, training) == {"length": 5.0, "cosine": 0.6}


def test_a_run_takes_its_place_and_leaves_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(ablation_tying, "SETTINGS", replace(ablation_tying.SETTINGS, steps=2, warmup=1))
    tokens = np.arange(200, dtype=np.uint16) % TINY.vocab_size
    file = tmp_path / "runs.json"
    for name in ("untied-0", "tied-0", "tied-1"):
        kind, seed = name.split("-")
        settings = replace(ablation_tying.SETTINGS, context=TINY.n_positions, batch_size=2, evaluate_every=1)
        run = Run(ablation_tying.make_model(kind, TINY, int(seed)), settings, tokens, tokens)
        train(run, tmp_path / name)
        ablation_tying.store(tmp_path / name, TINY, tokens, tokens, file)
    stored = json.loads(file.read_text())
    assert list(stored["runs"]) == ["tied-0", "untied-0", "tied-1"]
    assert all(len(run["loss"]) == 2 for run in stored["runs"].values())
    assert set(stored["unread"]) == {"tied-0", "untied-0"}


def test_what_is_stored_was_made_with_the_scripts_settings():
    stored = json.loads(ablation_tying.FILE.read_text())
    config = GPTConfig(**stored["config"])
    assert config == ablation_tying.config_for(config.vocab_size)
    assert stored["settings"] == {
        **asdict(ablation_tying.SETTINGS),
        "betas": list(ablation_tying.SETTINGS.betas),
    }


def test_all_runs_are_stored_whole():
    stored = json.loads(ablation_tying.FILE.read_text())
    settings = ablation_tying.SETTINGS
    measured = list(range(settings.evaluate_every, settings.steps + 1, settings.evaluate_every))
    assert list(stored["runs"]) == ablation_tying.EVERY
    assert list(stored["unread"]) == list(ablation_tying.ROWS_OF)
    for name, run in stored["runs"].items():
        assert len(run["loss"]) == settings.steps
        assert [step for step, _ in run["held_out"]] == measured
        assert (run["cosine"] == 1.0) == name.startswith("tied")


@pytest.mark.slow
def test_the_passages_come_from_all_three_plays():
    training, held_out, vocab_size = ablation_tying.texts()
    assert len(held_out) == 3 * ablation_tying.PASSAGE
    assert max(int(training.max()), int(held_out.max())) < vocab_size
    stored = json.loads(ablation_tying.FILE.read_text())
    assert (vocab_size, len(training), len(held_out)) == (
        stored["config"]["vocab_size"], stored["training tokens"], stored["held-out tokens"],
    )  # fmt: skip
