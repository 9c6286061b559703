"""Closed forms against what autograd saves and what exists."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from gptlab import GPT, PRESETS, KVCache
from gptlab.generation import next_logits
from gptlab.memory import forms
from gptlab.memory.forms import (
    MEASURED_WITH,
    activations,
    inference_memory,
    kv_cache_bytes,
    other_pytorch,
    training_memory,
    without_dropout,
)
from gptlab.memory.measure import saved_bytes
from gptlab.memory.replay import Replay
from gptlab.memory.run import build, make_optimizer, run_steps
from gptlab.memory.step import TrainingStep
from gptlab.memory.trace import LiveBytes
from tests.memory.steps import SMALL, random_steps, tiny_step

GPT2 = without_dropout(PRESETS["gpt2"])
ROOT = Path(__file__).resolve().parents[2]


def test_the_version_that_was_measured_with_is_the_pinned_one():
    assert f"\ntorch=={MEASURED_WITH}\n" in (ROOT / "requirements.txt").read_text("utf8")


def test_where_a_text_promises_bytes_it_names_the_version():
    named = f"PyTorch {MEASURED_WITH}"
    for file in ("README.md", "gptlab/cli.py", "gptlab/memory/forms.py", "gptlab/memory/replay.py"):
        text = (ROOT / file).read_text("utf8")
        assert "peak" in text
        assert named in text, file


def test_no_pytorch_at_all_is_not_another_version(monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(forms, "version", missing)
    assert other_pytorch() is None


@pytest.mark.parametrize("number", range(60))
def test_saved_activations_are_counted_to_the_byte(number):
    step = random_steps(60, seed=11, micro_batches=False)[number]
    assert sum(activations(step).values()) == saved_bytes(step, fake=False)


def test_fake_tensors_save_what_real_ones_do():
    for step in random_steps(6, seed=13, micro_batches=False):
        assert saved_bytes(step, fake=True) == saved_bytes(step, fake=False)


@pytest.mark.parametrize(
    ("how", "total"),
    [
        ({}, 3_267_747_844),
        ({"precision": "amp"}, 2_451_555_844),
        ({"precision": "bf16"}, 1_635_090_434),
        ({"attention": "explicit"}, 5_693_890_564),
        ({"checkpointing": True}, 999_677_956),
        ({"checkpointing": True, "loss": "chunked"}, 176_267_264 + 8),  # 8: the number of targets
    ],
)
def test_activations_of_gpt2_small_at_batch_4_and_context_1024(how, total):
    assert sum(activations(TrainingStep(GPT2, 4, 1024, **how)).values()) == total


def test_the_closed_form_of_the_docstring_is_the_sum_of_its_parts():
    L, H, C, V, T, N = 12, 12, 768, 50_257, 1024, 4096
    formula = (
        L * N * (64 * C + 4 * H + 16) + N * (4 * C + 8) + 4 * N * C + N * (4 * V + 8) + 4 + 8 * N + 8 * T
    )
    assert sum(activations(TrainingStep(GPT2, 4, T)).values()) == formula


@pytest.mark.parametrize("number", range(8))
def test_the_replay_keeps_at_the_end_of_the_forward_pass_what_the_closed_form_says(number):
    # The other losses keep the hidden states in another way.
    steps = [step for step in random_steps(40, seed=17, micro_batches=False) if step.loss == "full"]
    step = steps[number]
    run = Replay(step)
    loss = run.loss()
    kept = run.memory.activations
    assert loss.width in (2, 4)
    ids_and_targets = 2 * 8 * step.rows * step.context  # they are there before the step
    assert kept == sum(activations(step).values()) - ids_and_targets


@pytest.mark.parametrize("precision", ["fp32", "amp", "bf16", "master"])
def test_state_is_what_model_and_optimizer_hold(precision):
    step = tiny_step(precision=precision)
    predicted = training_memory(SMALL, batch_size=2, context=16, precision=precision)
    model = build(step)
    optimizer = make_optimizer(step, model.parameters())
    adamw = getattr(optimizer, "adamw", optimizer)
    assert not adamw.state, "AdamW's state does not exist before the first step"
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert predicted.weights == sum(p.nbytes for p in model.parameters())
    assert predicted.gradients == sum(p.grad.nbytes for p in model.parameters())
    optimizer.step()
    held = sum(value.nbytes for state in adamw.state.values() for value in state.values())
    held += sum(master.nbytes for master in getattr(optimizer, "masters", []))
    assert sum(predicted.optimizer.values()) == held


def test_the_sixteen_byte_rule_and_its_exceptions():
    def state(precision):
        return training_memory(GPT2, batch_size=1, context=1, precision=precision).state - 4 * 148

    assert state("fp32") == state("amp") == state("master") == 16 * 124_439_808 == 1_991_036_928
    assert state("bf16") == 8 * 124_439_808


def test_adamw_has_no_state_before_the_first_step_and_its_exact_state_after_it():
    memory = training_memory(GPT2, batch_size=1, context=1)
    assert sum(memory.optimizer.values()) == 995_519_056


def test_the_peak_is_the_sum_of_its_parts_and_two_tensors_of_logits_are_in_passing():
    memory = training_memory(GPT2, batch_size=4, context=1024)
    parts = memory.at_the_peak
    V, N = 50_257, 4096
    assert sum(parts.values()) == memory.peak
    assert parts["gradients"] == 0, "no parameter has its gradient yet"
    ids_and_targets, loss_and_its_gradient = 2 * 8 * N, 8
    assert parts["in passing"] == 2 * 4 * V * N + ids_and_targets + loss_and_its_gradient


def test_binding_the_logits_costs_4VN_more():
    V, N = SMALL.vocab_size, 32
    peaks = {}
    for bound in (False, True):
        with LiveBytes() as live:
            model = GPT(SMALL).train()
            x, y = torch.zeros(2, 16, dtype=torch.long), torch.zeros(2, 16, dtype=torch.long)
            live.timeline.moments.clear()
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            if not bound:
                del logits
            loss.backward()
        peaks[bound] = live.timeline.peak.live
    assert peaks[True] - peaks[False] == 4 * V * N


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize(("B", "T"), [(1, 40), (3, 17)])
def test_reading_a_prompt_takes_the_predicted_bytes(precision, dtype, B, T):
    predicted = inference_memory(SMALL, batch_size=B, context=T, precision=precision)
    with LiveBytes() as live:
        model = build(TrainingStep(SMALL, B, T, precision)).eval()
        ids = torch.zeros(B, T, dtype=torch.long)
        cache = KVCache(SMALL, B, max_length=T, dtype=dtype)
        live.timeline.moments.clear()
        logits = next_logits(model, ids, cache)
    assert predicted.weights == sum(p.nbytes for p in model.parameters())
    assert predicted.cache == cache.nbytes == kv_cache_bytes(SMALL, B, T, dtype.itemsize)
    assert predicted.logits == logits.nbytes
    assert predicted.peak == live.timeline.peak.live


def test_the_cache_and_the_logits_of_gpt2_small():
    assert kv_cache_bytes(GPT2, 1, 1, bytes_per_value=2) == 36_864
    assert kv_cache_bytes(GPT2, 1, 1024, bytes_per_value=2) == 37_748_736
    assert inference_memory(GPT2, batch_size=8, context=1024).logits == 1_608_224


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"context": 1025}, "context=1025 is more than the model's n_positions=1024"),
        ({"precision": "fp64"}, "precision='fp64' must be one of fp32, bf16, int8"),
    ],
)
def test_inference_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        inference_memory(GPT2, **{"batch_size": 1, "context": 8, **wrong})


def test_dropout_costs_masks():
    with_dropout = replace(SMALL, resid_pdrop=0.1)
    more = sum(activations(TrainingStep(with_dropout, 2, 16)).values())
    assert more - sum(activations(tiny_step()).values()) == 2 * SMALL.n_layer * 4 * 32 * SMALL.n_embd


def test_run_steps_trains_without_changing_what_it_is_given():
    step = tiny_step(micro_batches=2, checkpointing=True, attention="explicit")
    phases = []
    run_steps(step, phases.append)
    once = ["step", "forward", "backward", "forward", "backward", "optimizer", "end"]
    assert phases == ["build", *once, *once]
