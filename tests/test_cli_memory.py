"""What ``gptlab memory`` prints, draws and refuses."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from gptlab import PRESETS
from gptlab.cli import app
from gptlab.cli_memory import both_units, largest_batch, parse_size, what_would_fit
from gptlab.config import config_json
from gptlab.memory import forms
from gptlab.memory.forms import MEASURED_WITH, training_memory, without_dropout
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep
from tests.memory.steps import SMALL, tiny_step

pytestmark = pytest.mark.usefixtures("as_a_user")  # typer's context is of another class than the annotation's

run = CliRunner().invoke
STEP = ["memory", "gpt2", "--batch", "4", "--context", "1024", "--dropout", "0"]


@pytest.fixture
def config_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_json(SMALL)))
    return str(file)


def numbers(text):
    return {int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", text)}


def test_the_table_has_every_part_and_the_peak_in_bytes_and_both_units():
    result = run(app, STEP)
    assert result.exit_code == 0
    assert {497_759_232, 592, 1_991_037_520, 3_267_747_844, 6_407_847_512} <= numbers(result.stdout)
    assert "6,407.85" in result.stdout, "MB"
    assert "6,111.00" in result.stdout, "MiB"
    assert "= 6.408 GB = 5.968 GiB" in result.stdout
    assert "Not counted" in result.stdout


def test_no_number_is_cut_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    assert "6,407,847,512" in run(app, STEP).stdout


def test_the_context_is_the_longest_unless_given_and_dropout_is_the_configs():
    result = run(app, ["memory", "gpt2"])
    assert "batch 4, context 1024" in result.stdout
    assert "dropout 0.1" in result.stdout
    assert 13_967_818_328 in numbers(result.stdout)


def test_json_has_what_the_table_has(config_file):
    result = run(app, ["memory", config_file, "--batch", "2", "--context", "16", "--json"])
    found = json.loads(result.stdout)
    expected = training_memory(SMALL, batch_size=2, context=16)
    assert found["peak"]["bytes"] == expected.peak
    assert found["activations"] == expected.activations
    assert found["state"] == expected.state
    assert found["step"]["batch_size"] == 2


def test_trace_compares_with_a_step_on_fake_tensors(config_file):
    result = run(app, ["memory", config_file, "--batch", "2", "--context", "16", "--trace"])
    assert "difference 0 B" in result.stdout


def test_plot_draws_a_picture(config_file, tmp_path):
    for name in ("step.png", "step.svg", "step.pdf"):
        command = ["memory", config_file, "--batch", "2", "--context", "16", "--plot", str(tmp_path / name)]
        assert run(app, command).exit_code == 0
        assert (tmp_path / name).stat().st_size > 5000


def test_a_step_that_fits_says_what_is_left_and_the_largest_batch():
    result = run(app, [*STEP, "--fits", "8GB"])
    assert result.exit_code == 0
    assert "fits in 8,000,000,000 B" in result.stdout
    assert "1.592 GB are left; the largest batch that fits is 5" in result.stdout


def test_a_step_that_does_not_fit_says_which_switch_would_make_it_fit():
    result = run(app, [*STEP, "--fits", "4.2GB"])
    assert result.exit_code == 1
    assert "does not fit" in result.stdout
    assert "with --checkpointing: 4.140 GB fits" in result.stdout
    assert "with --loss fused" not in result.stdout
    assert "as it is, with --batch 2" in result.stdout


@pytest.mark.parametrize("options", [[], ["--fits", "8GB"], ["--fits", "1GB"], ["--inference"], ["--json"]])
def test_every_result_says_what_is_not_counted(options):
    output = run(app, [*STEP[:-2], *options]).stdout
    assert "what the allocator rounds up" in output
    assert "CUDA context" in output
    assert f"measured with PyTorch {MEASURED_WITH}" in output


@pytest.mark.parametrize("options", [[], ["--fits", "8GB"], ["--fits", "1GB"], ["--inference"]])
def test_another_pytorch_than_the_one_measured_with_is_named(options, monkeypatch):
    monkeypatch.setattr(forms, "version", lambda package: "2.8.1+cpu")
    assert (
        "Installed is PyTorch 2.8.1: nothing was measured with it" in run(app, [*STEP[:-2], *options]).stdout
    )
    monkeypatch.setattr(forms, "version", lambda package: f"{MEASURED_WITH}+cu130")
    assert "Installed is" not in run(app, [*STEP[:-2], *options]).stdout


def test_json_names_both_versions_of_pytorch(config_file, monkeypatch):
    command = ["memory", config_file, "--batch", "2", "--context", "16", "--json"]
    for installed, other in ((f"{MEASURED_WITH}+cpu", None), ("2.8.1", "2.8.1")):
        monkeypatch.setattr(forms, "version", lambda package, installed=installed: installed)
        found = json.loads(run(app, command).stdout)["pytorch"]
        assert found == {"measured_with": MEASURED_WITH, "other_installed": other}


def test_a_step_whose_state_alone_is_too_large_has_no_switch():
    result = run(app, ["memory", "gpt2-xl", "--batch", "1", "--fits", "8GB"])
    assert result.exit_code == 1
    assert "no switch makes it fit: the state alone is 24.922 GB" in result.stdout


def test_the_sets_of_switches_are_the_smallest_ones_and_true():
    step = replace(tiny_step(4, 40), config=replace(SMALL, resid_pdrop=0.1))
    limit = replay(step).peak.live * 6 // 10
    sets = list(what_would_fit(step, limit))
    assert sets
    assert all(size <= limit for _, size in sets)
    for names, _ in sets:
        assert not any(set(other) < set(names) for other, _ in sets)


def test_the_largest_batch_fits_and_one_more_does_not():
    step = tiny_step(1, 40)
    limit = replay(replace(step, batch_size=7)).peak.live
    assert largest_batch(step, limit) == 7
    assert largest_batch(step, limit - 1) == 6
    assert largest_batch(step, 1000) == 0


def test_inference_has_weights_cache_and_logits():
    result = run(app, ["memory", "gpt2", "--inference", "--batch", "1", "--precision", "bf16"])
    assert {248_879_616, 37_748_736, 100_514} <= numbers(result.stdout)
    assert 125_340_740 in numbers(run(app, ["memory", "gpt2", "--inference", "--precision", "int8"]).stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "-1"], "batch_size=-1 must be at least 1"),
        (["--batch", "0"], "batch_size=0 must be at least 1"),
        (["--context", "2000"], "context=2000 is more than the model's n_positions=1024"),
        (["--precision", "fp8"], "precision='fp8' must be one of fp32, amp, bf16, master"),
        (["--loss", "fused", "--precision", "amp"], "loss='fused' computes in fp32, not amp"),
        (["--micro-batches", "3"], "batch_size=4 must be divisible by micro_batches=3"),
        (["--fits", "lots"], "--fits 'lots': give a number and a unit"),
        (["--fits", "0GB"], "--fits '0GB': give a number and a unit"),
        (["--dropout", "1.5"], "pdrop=1.5"),
        (["--plot", "x.jpeg"], "the name must end in .png, .svg or .pdf"),
        (["--plot", "nowhere/x.png"], "the folder nowhere does not exist"),
        (["--inference", "--precision", "amp"], "precision='amp' must be one of fp32, bf16, int8"),
        (["--inference", "--json"], "--inference trains nothing: leave out --json"),
        (["--inference", "--checkpointing", "--loss", "fused"], "leave out --checkpointing and --loss"),
        (["--json", "--fits", "1GB"], "leave out --fits"),
        (["--json", "--trace"], "leave out --trace"),
    ],
)
def test_absurd_input_is_refused_in_a_sentence(options, message):
    result = run(app, ["memory", "gpt2", *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_unknown_model_is_refused():
    assert "is none of gpt2" in run(app, ["memory", "gpt3"]).stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8 * 10**9), ("8 GiB", 8 * 2**30), ("7.5gb", 7_500_000_000), ("512MiB", 2**29), ("1000", 1000)],
)
def test_decimal_and_binary_units_are_told_apart(text, size):
    assert parse_size(text) == size


def test_both_units_are_shown():
    assert both_units(37_748_736) == "37,748,736 B = 37.75 MB = 36.00 MiB"
    assert both_units(1_991_036_928) == "1,991,036,928 B = 1.991 GB = 1.854 GiB"


def test_a_preset_with_a_switch_predicts_what_the_forms_do():
    config = without_dropout(PRESETS["gpt2-medium"])
    result = run(app, ["memory", "gpt2-medium", "--batch", "2", "--dropout", "0", "--checkpointing"])
    assert replay(TrainingStep(config, 2, 1024, checkpointing=True)).peak.live in numbers(result.stdout)
