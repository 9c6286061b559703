"""The replay says what PyTorch does, to the byte: at each operation, in each phase, at the peak."""

import subprocess
import sys

import pytest

from gptlab import PRESETS, fused_loss
from gptlab.memory import replay as replay_module
from gptlab.memory.forms import without_dropout
from gptlab.memory.measure import allocator_peaks
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep
from gptlab.memory.trace import trace_step
from tests.memory.steps import SMALL, random_steps, tiny_step

PHASES = ("forward", "backward", "optimizer")


def by_phase(timeline):
    return {phase: timeline.phases[phase] for phase in PHASES}


@pytest.mark.pinned("torch")  # another one frees in another order
@pytest.mark.parametrize("number", range(60))
def test_the_peak_of_every_phase_is_that_of_the_real_step(number):
    step = random_steps(60, seed=7)[number]
    predicted, traced = replay(step), trace_step(step, fake=False)
    assert by_phase(predicted) == by_phase(traced)
    assert predicted.peak.live == traced.peak.live
    assert (predicted.peak.phase, predicted.peak.operation) == (traced.peak.phase, traced.peak.operation)


@pytest.mark.pinned("torch")  # another one frees in another order
def test_every_moment_is_that_of_the_real_step():
    step = tiny_step()
    predicted = [(m.phase, m.operation, m.live) for m in replay(step).moments if m.phase != "optimizer"]
    real = trace_step(step, fake=False).moments
    there = {(m.phase, m.operation, m.live) for m in real}
    assert [moment for moment in predicted if moment not in there] == []
    levels = [m.live for m in real if m.phase in ("forward", "backward")]
    assert max(levels) - min(levels) > 100_000, "a timeline this flat would prove nothing"


@pytest.mark.parametrize("how", [{}, {"loss": "chunked"}, {"precision": "bf16"}, {"checkpointing": True}])
def test_the_peak_is_what_the_allocator_handed_out(how):
    for batch_size, context in ((2, 4), (2, 40)):  # the optimizer's end of the step dominates, or the loss
        step = tiny_step(batch_size, context, **how)
        assert allocator_peaks(step)["backward"] == replay(step).peak.live


def test_the_allocator_has_eight_bytes_more_for_each_number_that_explicit_attention_divides_by():
    step = tiny_step(attention="explicit")
    assert allocator_peaks(step)["backward"] == replay(step).phases["backward"] + 8 * SMALL.n_layer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "how", "peak"),
    [
        ("gpt2", {}, 6_407_847_512),
        ("gpt2", {"precision": "amp"}, 5_591_655_512),
        ("gpt2", {"precision": "bf16"}, 3_205_140_564),
        ("gpt2", {"attention": "explicit"}, 8_833_990_232),
        ("gpt2", {"checkpointing": True}, 4_139_777_624),
        ("gpt2", {"loss": "chunked"}, 4_411_794_008),
        ("gpt2", {"loss": "chunked", "checkpointing": True}, 2_299_882_072),
        ("gpt2-xl", {}, 41_369_569_816),
    ],
)
def test_the_peak_at_full_size_is_that_of_the_fake_step(preset, how, peak):
    step = TrainingStep(without_dropout(PRESETS[preset]), 4, 1024, **how)
    assert replay(step).peak.live == trace_step(step).peak.live == peak


def test_the_peak_is_at_the_loss_and_is_the_sum_that_the_formula_says():
    config = without_dropout(PRESETS["gpt2"])
    timeline = replay(TrainingStep(config, 4, 1024))
    P, V, N, tensors, activations = 124_439_808, 50_257, 4096, 148, 3_267_747_844
    assert timeline.peak.operation == "_log_softmax_backward_data"
    assert timeline.peak.live == 12 * P + activations + 8 * V * N + 4 * tensors + 4


def test_nothing_is_left_alive_but_what_was_there_before():
    run = replay_module.Replay(tiny_step(checkpointing=True, loss="chunked"))
    run.train()
    assert (run.memory.live, run.memory.activations, run.memory.gradients) == (0, 0, 0)


def test_the_fused_loss_has_the_buffer_that_the_replay_counts():
    assert replay_module.FUSED_ROWS == fused_loss.ROWS


def test_a_replay_needs_no_pytorch():
    code = (
        "import sys; from gptlab import GPTConfig; from gptlab.memory.forms import training_memory; "
        "training_memory(GPTConfig(), batch_size=1, context=8).peak; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
