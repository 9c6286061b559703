import copy
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gptlab import GPT, PRESETS, load_checkpoint
from gptlab.data import windows_in_order
from gptlab.training import (
    STATE,
    LogRow,
    Run,
    TrainingSettings,
    backward,
    evaluate,
    learning_rate,
    load_state,
    make_optimizer,
    parameter_groups,
    read_log,
    resume,
    save_run,
    train,
    training_loss,
)
from gptlab.tying import is_tied
from gptlab.unembedding import token_loss
from tests.conftest import TINY, make_model, random_ids
from tests.training_process import CONFIG, SETTINGS, TOKENS

NO_DROPOUT = replace(TINY, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)


def small_run(config=TINY, seed: int = 0, **settings) -> Run:
    torch.manual_seed(seed)
    chosen = {"steps": 8, "batch_size": 4, "context": 8, "warmup": 2, "save_every": 3, "evaluate_every": 4}
    return Run(GPT(config), TrainingSettings(**{**chosen, **settings}), TOKENS, TOKENS[:50])


def numbers(rows: list[LogRow]) -> list[tuple]:
    """All but the time that a step took."""
    return [tuple(asdict(row).values())[:-1] for row in rows]


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


# One step


def test_the_loss_goes_down_to_almost_nothing_on_one_batch_learned_by_heart():
    run = small_run(NO_DROPOUT, steps=300, learning_rate=1e-2)
    x, y = run.batches.next()
    run.batches.next = lambda: (x, y)
    rows = train(run)
    assert rows[0].loss > 3.9
    assert rows[-1].loss < 0.1


@pytest.mark.usefixtures("as_a_user")
def test_tr2_a_mean_over_all_targets_not_a_mean_of_means():
    """Two parts with one and three targets, whose token losses are known: (8 + 1 + 1 + 2) / 4 = 3."""

    class Known(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = nn.Linear(2, 2, bias=False)
            self.lm_head.weight.data = torch.eye(2)

        def hidden(self, x):
            # Logits (0, g) with cross-entropy of target 0 equal to the number in x.
            gap = torch.log(torch.expm1(x.double())).float()
            return torch.stack([torch.zeros_like(gap), gap], dim=-1)

    x = torch.tensor([[8, 1, 1], [1, 1, 2]])
    y = torch.tensor([[0, -100, -100], [0, 0, 0]])
    for parts in (1, 2):
        assert backward(Known(), x, y, parts).item() == pytest.approx(3.0)


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("ignored", [[], [0, 1, 2], list(range(16)), [0, 9, 17, 25, 31]])
def test_accumulated_gradients_are_those_of_the_big_batch_also_with_ignored_targets(ignored, precision):
    model = make_model(NO_DROPOUT)
    x, y = random_ids(4, 8, seed=1), random_ids(4, 8, seed=2)
    y.view(-1)[ignored] = -100
    losses, found = [], []
    for parts in (1, 2, 4):
        model.zero_grad()
        losses.append(backward(model, x, y, parts, precision))
        found.append(gradients(model))
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if precision == "fp32" else {"rtol": 0.05, "atol": 0.01}
    for loss, gradient in zip(losses[1:], found[1:], strict=True):
        torch.testing.assert_close(loss, losses[0], **tolerance)
        torch.testing.assert_close(gradient, found[0], **tolerance)


def test_the_step_in_parts_changes_the_weights_as_the_whole_step_does():
    whole, parts = small_run(NO_DROPOUT), small_run(NO_DROPOUT, micro_batches=4)
    a, b = train(whole), train(parts)
    assert [r.loss for r in a] == pytest.approx([r.loss for r in b], rel=1e-5)
    torch.testing.assert_close(whole.model.state_dict(), parts.model.state_dict(), rtol=1e-3, atol=1e-5)


def test_the_gradient_is_that_of_the_canonical_step():
    model = make_model(NO_DROPOUT)
    x, y = random_ids(3, 8, seed=1), random_ids(3, 8, seed=2)
    loss = token_loss(model(x), y)
    loss.backward()
    expected = gradients(model)
    model.zero_grad()
    torch.testing.assert_close(backward(model, x, y), loss.detach())
    torch.testing.assert_close(gradients(model), expected)


def test_all_targets_ignored_is_a_clear_error_and_no_gradient(model):
    x = random_ids(2, 8)
    with pytest.raises(ValueError, match="every one of the 16 targets is -100"):
        backward(model, x, torch.full_like(x, -100))
    assert all(p.grad is None for p in model.parameters())


def test_amp_keeps_weights_gradients_and_moments_in_float32():
    run = small_run(precision="amp")
    train(run)
    state = run.optimizer.state.values()
    tensors = [*run.model.parameters(), *(t for s in state for t in (s["exp_avg"], s["exp_avg_sq"]))]
    assert {t.dtype for t in tensors} == {torch.float32}


# Optimiser and schedule


def test_tr7_matrices_decay_biases_and_gains_do_not():
    with torch.device("meta"):
        model = GPT(PRESETS["gpt2"])
    decayed, others = parameter_groups(model, 0.1)
    sizes = [(len(g["params"]), sum(p.numel() for p in g["params"])) for g in (decayed, others)]
    assert sizes == [(50, 124_318_464), (98, 121_344)]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)


def test_tr7_the_first_step_has_a_learning_rate_and_the_top_is_reached():
    settings = TrainingSettings(steps=10_000, warmup=2000, learning_rate=6e-4)
    assert learning_rate(0, settings) == pytest.approx(2.9985e-7, rel=1e-4)
    assert learning_rate(2000, settings) == pytest.approx(6e-4)
    assert learning_rate(9_999, settings) == pytest.approx(6e-5)
    rates = [learning_rate(step, settings) for step in range(10_000)]
    assert rates == sorted(rates[:2001]) + sorted(rates[2001:], reverse=True)


@pytest.mark.parametrize(
    ("steps", "warmup"), [(1, 0), (9, 0), (10, 1), (99, 9), (999, 99), (1000, 100), (3200, 100), (10**6, 100)]
)
def test_the_warmup_is_a_tenth_of_the_steps_and_100_at_most_unless_given(steps, warmup):
    settings = TrainingSettings(steps=steps)
    assert settings.warmup == warmup
    assert TrainingSettings(**asdict(settings)) == settings
    assert TrainingSettings(steps=steps, warmup=0).warmup == 0
    assert learning_rate(warmup, settings) == settings.learning_rate


def test_evaluation_needs_no_more_rows_at_once_than_training():
    run, rows = small_run(batch_size=4, micro_batches=2), []
    run.model.h[0].register_forward_pre_hook(lambda block, args: rows.append(len(args[0])))
    loss = run.evaluate(TOKENS[:50])
    assert max(rows) == 2
    assert loss == pytest.approx(small_run(batch_size=4).evaluate(TOKENS[:50]), rel=1e-6)


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_a_lack_of_memory_is_neither_a_full_disk_nor_a_damaged_file(tmp_path, monkeypatch, error):
    run = small_run()
    save_run(run, tmp_path)

    def no_room(*_, **__):
        raise error

    monkeypatch.setattr(torch, "save", no_room)
    monkeypatch.setattr(torch, "load", no_room)
    for call in (lambda: save_run(run, tmp_path), lambda: load_state(tmp_path)):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (5, 5), (5, 4), (5, 0)])
def test_tr7_a_schedule_that_is_all_warmup_divides_nothing_by_zero(steps, warmup):
    settings = TrainingSettings(steps=steps, warmup=warmup, learning_rate=1.0)
    rates = [learning_rate(step, settings) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)


def test_tr6_bfloat16_weights_never_move_and_a_warning_says_so():
    def after_100_steps(dtype) -> float:
        w = nn.Parameter(torch.ones(1, 1, dtype=dtype))
        layer = nn.Module()
        layer.w = w
        optimizer = make_optimizer(layer, TrainingSettings(steps=100, learning_rate=6e-4))
        for group in optimizer.param_groups:
            group["betas"] = (0.9, 0.999)
        for _ in range(100):
            w.grad = torch.ones_like(w)
            optimizer.step()
        return w.item()

    assert after_100_steps(torch.float32) == pytest.approx(0.9341956, abs=1e-6)
    with pytest.warns(UserWarning, match="the weight never moves"):
        assert after_100_steps(torch.bfloat16) == 1.0


def test_the_gradient_is_shortened_and_its_length_logged():
    run = small_run(max_norm=1e-4)
    lengths = []
    run.optimizer.register_step_pre_hook(
        lambda *_: lengths.append(
            math.sqrt(sum(p.grad.square().sum().item() for p in run.model.parameters()))
        )
    )
    rows = train(run)
    assert lengths == pytest.approx([1e-4] * 8, rel=1e-3)
    assert all(row.gradient_norm > 0.1 for row in rows)


def test_training_keeps_the_tie():
    run = small_run()
    train(run)
    assert is_tied(run.model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"micro_batches": 3}, "batch_size=4 must be divisible by micro_batches=3"),
        ({"warmup": 9}, "warmup=9 must be 0 to steps=8"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be positive"),
        ({"final_share": 2.0}, "final_share=2.0 must be 0 to 1"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must be at least 0"),
        ({"weight_decay": float("nan")}, "weight_decay=nan must be at least 0"),
        ({"precision": "fp16"}, "precision='fp16' must be 'fp32' or 'amp'"),
        ({"context": 17}, "context=17 is more than the model's n_positions=16"),
    ],
)
def test_a_setting_out_of_range_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        small_run(**change)


def test_a_text_too_short_for_one_window_is_a_clear_error():
    with pytest.raises(ValueError, match="8 tokens are too few for a window of 8"):
        Run(GPT(TINY), TrainingSettings(steps=1, warmup=0, context=8), TOKENS[:8])


def test_a_loss_that_is_no_number_stops_before_it_spoils_the_weights():
    run = small_run()
    with torch.no_grad():
        run.model.h[0].ln_1.weight[0] = math.inf
    before = {name: p.clone() for name, p in run.model.named_parameters()}
    with pytest.raises(FloatingPointError, match="in step 1 the loss is nan .* try a lower learning rate"):
        train(run)
    for name, p in run.model.named_parameters():
        assert torch.equal(p, before[name])


# Evaluation


def test_evaluation_is_the_mean_over_all_tokens_whatever_the_batch_size(model):
    tokens = TOKENS[:100]
    by_hand = [
        token_loss(model(x[None]), y[None]).item()
        for i in range(0, 96, 8)
        for x, y in [[torch.from_numpy(tokens[j : j + 8].astype(np.int64)) for j in (i, i + 1)]]
    ]
    for batch_size in (1, 5, 12, 50):
        assert evaluate(model, tokens, batch_size, 8) == pytest.approx(sum(by_hand) / 12, rel=1e-5)


def test_evaluation_in_half_precision_adds_up_in_float32():
    """Summed in bfloat16, the same loss is 0.2 % off."""
    torch.manual_seed(0)
    half = GPT(TINY).bfloat16()
    single = copy.deepcopy(half).float()
    tokens = np.resize(TOKENS, 2049)
    assert evaluate(half, tokens, 256, 8) == pytest.approx(evaluate(single, tokens, 256, 8), rel=1e-4)


def test_evaluation_does_not_disturb_training():
    a, b = train(small_run(evaluate_every=1)), train(small_run(evaluate_every=8))
    assert [row.loss for row in a] == [row.loss for row in b]
    assert a[-1].validation_loss == b[-1].validation_loss
    assert [row.validation_loss is None for row in b] == [True] * 7 + [False]


def test_evaluation_leaves_every_module_in_its_mode_also_after_an_error(model):
    model.train()
    model.h[1].eval()
    before = [module.training for module in model.modules()]
    evaluate(model, TOKENS[:50], 2, 8)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError, match="too few"):
        evaluate(model, TOKENS[:4], 2, 8)
    assert [module.training for module in model.modules()] == before


# Stopping and going on


@pytest.mark.parametrize("stop_at", [1, 3, 5, 7])
def test_a_run_that_is_stopped_and_resumed_is_the_unbroken_run_bit_for_bit(tmp_path, stop_at):
    unbroken = small_run()
    expected = train(unbroken)
    first = train(small_run(), tmp_path, after_step=lambda row: "stop" if row.step == stop_at else None)
    torch.manual_seed(12345)  # other randomness in between
    again = resume(tmp_path, TOKENS, TOKENS[:50])
    rest = train(again, tmp_path)
    assert numbers(first + rest) == numbers(expected) == numbers(read_log(tmp_path))
    assert is_tied(again.model)
    for name, p in unbroken.model.named_parameters():
        assert torch.equal(p, again.model.get_parameter(name))


def test_the_weights_lie_beside_the_state_as_a_model_of_their_own(tmp_path):
    run = small_run()
    train(run, tmp_path)
    loaded = load_checkpoint(tmp_path)
    assert loaded.config == run.model.config
    ids = random_ids(2, 8)
    assert torch.equal(loaded(ids), run.model(ids))


def test_ck2_the_state_holds_plain_containers_and_is_read_without_executing_anything(tmp_path):
    train(small_run(), tmp_path)
    state = torch.load(tmp_path / STATE, weights_only=True)
    assert state["step"] == 8
    assert state["config"] == asdict(TINY)


def test_a_file_that_would_execute_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "evil"),))

    torch.save({"step": Evil()}, tmp_path / STATE)
    with pytest.raises(ValueError, match=r"state\.pt is damaged or no checkpoint"):
        load_state(tmp_path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_truncated_state_is_a_clear_error(tmp_path, keep):
    train(small_run(), tmp_path)
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"state\.pt is damaged or no checkpoint"):
        resume(tmp_path, TOKENS)


def test_a_state_of_something_else_is_a_clear_error(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / STATE)
    with pytest.raises(ValueError, match="has no entry 'settings'"):
        resume(tmp_path, TOKENS)


def test_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        resume(tmp_path, TOKENS)


def test_other_tokens_than_the_run_began_with_are_refused(tmp_path):
    train(small_run(), tmp_path)
    other = TOKENS.copy()
    other[17] ^= 1
    for tokens in (other, TOKENS[:-1]):
        with pytest.raises(ValueError, match="the run began with other tokens"):
            resume(tmp_path, tokens)


def test_a_line_of_the_log_that_was_cut_off_is_left_out(tmp_path):
    train(small_run(), tmp_path)
    log = tmp_path / "log.csv"
    log.write_bytes(log.read_bytes()[:-5])
    assert [row.step for row in read_log(tmp_path)] == [1, 2, 3, 4, 5, 6, 7]


def test_a_line_that_is_no_row_is_named(tmp_path):
    train(small_run(), tmp_path)
    with (tmp_path / "log.csv").open("a") as file:
        file.write("9,what,1,1,,1\n")
    with pytest.raises(ValueError, match=r"log\.csv is damaged: .*'what'"):
        read_log(tmp_path)


def test_a_new_run_does_not_write_over_one_that_has_begun(tmp_path):
    train(small_run(), tmp_path)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(ValueError, match="holds a run that has begun"):
        train(small_run(), tmp_path)
    assert (tmp_path / STATE).read_bytes() == before


def test_a_state_with_settings_that_are_unknown_here_says_so(tmp_path):
    train(small_run(), tmp_path)
    state = load_state(tmp_path)
    state["settings"]["flavour"] = 1
    torch.save(state, tmp_path / STATE)
    with pytest.raises(ValueError, match="is from another version of gptlab: .*flavour"):
        resume(tmp_path, TOKENS)


def process(folder, how: str = "") -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.training_process", str(folder), *([how] if how else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def unbroken() -> list[LogRow]:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the process: another number of threads adds in another order
    rows = train(Run(GPT(CONFIG), SETTINGS, TOKENS, TOKENS[:50]))
    torch.set_num_threads(threads)
    return rows


def finish(folder, unbroken) -> None:
    done = process(folder)
    output, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors
    assert numbers(read_log(folder)) == numbers(unbroken), output
    assert not list(folder.glob(".*.partial"))


@pytest.mark.slow
def test_killed_at_random_moments_a_run_loses_at_most_the_steps_since_the_last_checkpoint(tmp_path, unbroken):
    moments = random.Random(7)
    seen = 0
    for _ in range(5):
        running = process(tmp_path)
        begun_at = int(running.stdout.readline().removeprefix("from step "))
        assert seen - begun_at <= SETTINGS.save_every
        steps = moments.randrange(4, 12)
        for _ in range(steps):
            seen = int(running.stdout.readline())
        time.sleep(moments.uniform(0, 0.02))  # somewhere within a step, or a save
        running.send_signal(signal.SIGKILL)
        rest = running.communicate()[0].split()
        seen = int(rest[-1]) if rest else seen
    assert seen < SETTINGS.steps
    finish(tmp_path, unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 4, 8, 12])
def test_killed_in_the_middle_of_a_save_a_run_goes_on_from_the_checkpoint_before(tmp_path, unbroken, n):
    killed = process(tmp_path, f"fsync:{n}")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    finish(tmp_path, unbroken)


@pytest.mark.slow
def test_a_full_disk_is_a_clear_error_and_the_last_checkpoint_survives(tmp_path, unbroken):
    train_a_little = process(tmp_path, "fsync:12")
    train_a_little.communicate(timeout=120)
    shutil.copytree(tmp_path, tmp_path / "before")
    size = (tmp_path / STATE).stat().st_size
    full = process(tmp_path, f"write:{size // 2}")
    _, errors = full.communicate(timeout=120)
    assert full.returncode == 1
    assert "could not be written" in errors
    assert "The last complete one is still there" in errors
    assert (tmp_path / STATE).read_bytes() == (tmp_path / "before" / STATE).read_bytes()
    finish(tmp_path, unbroken)


@pytest.mark.parametrize("name", ["steps", "batch_size", "context", "warmup", "seed"])
def test_a_count_that_is_no_integer_is_refused(as_a_user, name):
    """With steps=3.5 a run would take four, and not save the last."""
    with pytest.raises(TypeError, match=rf"{name}=3\.0 must be an integer"):
        TrainingSettings(**{"steps": 200, name: 3.0})


def test_held_out_tokens_too_few_for_a_window_are_an_error_before_the_first_step():
    with pytest.raises(ValueError, match="5 tokens are too few for a window of 8"):
        Run(GPT(TINY), TrainingSettings(steps=1, warmup=0, context=8), TOKENS, TOKENS[:5])


def test_an_unknown_precision_does_not_pass_for_another():
    with pytest.raises(ValueError, match="precision='bf16' must be 'fp32' or 'amp'"):
        backward(GPT(TINY), torch.ones(2, 3).long(), torch.ones(2, 3).long(), precision="bf16")


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_generator_takes_is_named(seed):
    with pytest.raises(ValueError, match=rf"seed={seed} must be 0 to 2\^63 - 1"):
        TrainingSettings(steps=100, seed=seed)


def hooked(model: GPT) -> None:
    model.lm_head.register_forward_hook(lambda module, args, output: 2 * output)


def with_a_bias(model: GPT) -> None:
    head = torch.nn.Linear(model.config.n_embd, model.config.vocab_size)
    head.weight = model.lm_head.weight
    model.lm_head = head


def adapted(model: GPT) -> None:
    """As a low-rank adapter would be: a module round the head, with weights of its own."""
    narrow = torch.nn.Linear(model.config.n_embd, 2)
    wide = torch.nn.Linear(2, model.config.vocab_size)
    model.lm_head.register_forward_hook(lambda module, args, output: output + wide(narrow(args[0])))


@pytest.mark.parametrize("change", [hooked, with_a_bias, adapted])
def test_a_head_that_is_more_than_its_weight_is_used_whole_in_training_and_evaluation(change):
    model = make_model(NO_DROPOUT)
    torch.manual_seed(4)
    change(model)
    x, y = random_ids(2, 9), random_ids(2, 9, seed=2)
    assert_close(training_loss(model, x, y, "fp32"), token_loss(model(x), y))
    in_parts = [token_loss(model(x), y).item() for x, y in windows_in_order(TOKENS[:81], 2, 8)]
    assert evaluate(model, TOKENS[:81], 2, 8) == pytest.approx(sum(in_parts) / len(in_parts), rel=1e-5)
