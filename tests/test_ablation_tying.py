"""The script behind chapter 7's nine runs: its models are what it says, and what it stored is complete."""

import json
from dataclasses import asdict

import ablation_tying
import pytest
import torch

from gptlab.config import GPTConfig
from gptlab.tying import is_tied
from tests.conftest import TINY


def test_the_three_kinds_differ_in_the_head_only():
    tied, untied, copied = (ablation_tying.make_model(kind, TINY, seed=3) for kind in ablation_tying.KINDS)
    assert [is_tied(model) for model in (tied, untied, copied)] == [True, False, False]
    for name, parameter in tied.named_parameters():
        assert torch.equal(parameter, untied.get_parameter(name))
        assert torch.equal(parameter, copied.get_parameter(name))
    assert torch.equal(copied.lm_head.weight, copied.wte.weight)
    assert not torch.equal(untied.lm_head.weight, untied.wte.weight)


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
    assert set(stored["runs"]) == {
        f"{kind}-{seed}" for kind in ablation_tying.KINDS for seed in ablation_tying.SEEDS
    }
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
