"""The small GPT in the package is what its README and its log say."""

import json
import re
from dataclasses import asdict

import pytest
import torch

import gptlab
from gptlab import data
from gptlab.checkpoint import SHIPPED, load_checkpoint
from gptlab.cli import train as train_command
from gptlab.ledger import Ledger
from gptlab.training import TrainingSettings, evaluate, read_log
from gptlab.tying import is_tied

FOLDER = SHIPPED["shakespeare"]
README = (FOLDER / "README.md").read_text("utf-8")
SETTINGS = json.loads((FOLDER / "settings.json").read_text("utf-8"))


def test_it_is_stored_as_bfloat16_in_at_most_16_mb():
    assert {p.dtype for p in load_checkpoint(FOLDER).parameters()} == {torch.bfloat16}
    assert (FOLDER / "model.safetensors").stat().st_size <= 16_000_000


def test_it_loads_by_name_in_float32_with_its_head_tied_and_the_real_vocabulary():
    model = gptlab.from_pretrained("shakespeare")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert is_tied(model)
    assert model.config.vocab_size == 50257
    assert Ledger.from_model(model) == Ledger.from_config(model.config)
    assert f"{Ledger.from_model(model).total:,} parameters" in README


def test_its_config_and_settings_are_those_of_the_run():
    assert SETTINGS["config"] == asdict(gptlab.from_pretrained("shakespeare").config)
    steps = [row.step for row in read_log(FOLDER)]
    assert steps == list(range(1, SETTINGS["settings"]["steps"] + 1))


def test_the_command_in_its_readme_has_these_settings_as_defaults():
    import inspect

    assert "gptlab train --out shakespeare\n" in README
    defaults = {name: p.default for name, p in inspect.signature(train_command).parameters.items()}
    settings = {**SETTINGS["settings"], "betas": tuple(SETTINGS["settings"]["betas"])}
    given = {name: value for name, value in defaults.items() if name in settings}
    assert len(given) == 10
    assert asdict(TrainingSettings(**given)) == settings
    config = SETTINGS["config"]
    assert (config["n_layer"], config["n_embd"], config["n_head"]) == tuple(
        defaults[name] for name in ("n_layer", "n_embd", "n_head")
    )
    assert config["resid_pdrop"] == config["embd_pdrop"] == defaults["dropout"]


@pytest.mark.slow
def test_its_loss_on_held_out_works_is_the_one_in_its_readme():
    (stated,) = re.findall(r"\*\*([\d.]+)\*\*", README)
    model = gptlab.from_pretrained("shakespeare")
    tokens = data.encode_documents(data.shakespeare("validation"))
    assert evaluate(model, tokens, 8, model.config.n_positions) == pytest.approx(float(stated), abs=2e-4)
    assert read_log(FOLDER)[-1].validation_loss == pytest.approx(float(stated), abs=0.01)
