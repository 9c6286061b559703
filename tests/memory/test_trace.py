"""The instruments: what they see, and that running under them changes nothing."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gptlab import GPT, fused_loss
from gptlab.memory.measure import SavedBytes, allocator_peaks, saved_bytes
from gptlab.memory.run import MasterWeights, checkpointing, explicit_attention, run_steps
from gptlab.memory.timeline import Moment, Timeline
from gptlab.memory.trace import LiveBytes, trace_step
from tests.conftest import make_model, random_ids
from tests.memory.steps import SMALL, random_steps, tiny_step


@pytest.mark.parametrize("number", range(6))
def test_a_fake_step_has_the_moments_of_the_real_one(number):
    step = random_steps(40, seed=19)[number]
    fake, real = trace_step(step, fake=True), trace_step(step, fake=False)
    assert fake.phases["forward"] == real.phases["forward"]
    assert fake.phases["backward"] == real.phases["backward"]
    assert fake.peak == real.peak


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_fused_loss_multiplies_by_a_gradient_that_is_not_1_on_fake_tensors_too(micro_batches):
    step = tiny_step(loss="fused", micro_batches=micro_batches)
    fake, real = trace_step(step, fake=True), trace_step(step, fake=False)
    assert fake.phases == real.phases
    assert fused_loss.is_one(torch.tensor(1.0)), "as before the trace"
    assert not fused_loss.is_one(torch.tensor(0.5))


def test_the_meter_counts_a_storage_once_and_lets_go_of_it():
    with LiveBytes() as live:
        live.phase = "here"
        a = torch.zeros(10, 10)
        view = a.T[2:]
        assert live.live == 400
        b = a + 1
        assert live.live == 800
        del a
        assert live.live == 800, "the view still holds the storage"
        del view
        assert live.live == 400
        del b
    assert live.live == 0
    assert live.timeline.peak.live == 800
    assert live.timeline.peak.phase == "here"


def test_the_peak_of_a_timeline_is_the_first_highest_moment():
    timeline = Timeline([Moment("a", "x", 1), Moment("b", "y", 5), Moment("b", "z", 5), Moment("b", "w", 2)])
    assert timeline.peak == Moment("b", "y", 5)
    assert timeline.phases == {"a": 1, "b": 5}


def test_the_allocator_is_watched_from_the_building_on_and_only_the_last_step_counts():
    peaks = allocator_peaks(tiny_step())
    assert list(peaks) == ["step", "forward", "backward", "optimizer", "end"]
    first = allocator_peaks(tiny_step(), count=1)
    assert first["forward"] < peaks["forward"], "before the first step there are no moments"


def test_saved_bytes_looks_at_one_forward_pass():
    with pytest.raises(ValueError, match="micro_batches=2 must be 1"):
        saved_bytes(tiny_step(micro_batches=2))


def test_saved_bytes_leaves_out_the_weights():
    model = GPT(tiny_step().config)
    saved = SavedBytes(model)
    with saved.watching():
        model.lm_head(torch.zeros(2, 3, model.config.n_embd))
    assert saved.total == 2 * 3 * model.config.n_embd * 4, "the input, for the weight's gradient"


@pytest.mark.parametrize("switch", [checkpointing, lambda model: explicit_attention()])
def test_a_switch_changes_memory_and_nothing_else(switch):
    model, ids = make_model().train(), random_ids(2, 7)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attn_pdrop"):
            module.attn_pdrop = 0.0
    before = model(ids)
    before.sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with switch(model):
        inside = model(ids)
        inside.sum().backward()
    torch.testing.assert_close(inside, before)
    torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    torch.testing.assert_close(model(ids), before)


def test_master_weights_move_where_bfloat16_weights_do_not():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    alone = torch.nn.Parameter(weight.detach().clone())
    options = {"lr": 6e-4, "weight_decay": 0.1}
    with_master, without = MasterWeights([weight], **options), torch.optim.AdamW([alone], **options)
    for _ in range(100):
        weight.grad, alone.grad = torch.ones_like(weight), torch.ones_like(alone)
        with_master.step()
        without.step()
    assert alone.item() == 1.0
    assert with_master.masters[0].item() == pytest.approx(0.9341956, abs=1e-6)
    assert weight.item() == torch.tensor(0.9341956).bfloat16().item()
    assert weight.grad is None


def test_checkpointing_runs_a_block_again_up_to_the_last_thing_it_keeps():
    """So the MLP's second product, of 8 C² operations a token, is not run again (the formula of chapter 9)."""
    counted = {}
    for again in (False, True):
        step = tiny_step(attention="explicit", checkpointing=again)
        with FlopCounterMode(display=False) as counter:
            run_steps(step, count=1)
        counted[again] = counter.get_total_flops()
    B, T, C, L = 2, 16, SMALL.n_embd, SMALL.n_layer
    assert counted[True] - counted[False] == B * T * L * (24 * C**2 + 4 * T * C - 8 * C**2)
