"""Two processes, started by torchrun, and one, held against each other. What runs in them: distributed_process.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from gptlab import GPT, load_checkpoint
from gptlab.distributed import SharedRun
from gptlab.ledger import Ledger
from gptlab.memory.replay import replay
from gptlab.memory.sharding import fsdp_step_bytes, per_rank_bytes
from gptlab.memory.step import TrainingStep
from gptlab.memory.timeline import Moment
from gptlab.training import LogRow, Run, backward, load_state, read_log, resume, train
from gptlab.tying import is_tied
from tests.distributed_process import (
    CONFIG,
    FEW,
    ODD,
    PATTERNS,
    SETTINGS,
    STOP_AT,
    TOKENS,
    VALIDATION,
    batch_with_ignored,
    make_model,
    stop,
)

CLOSE = {"rel": 0, "abs": 1e-5}


def torchrun(processes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module, and its arguments, in several processes of one thread each."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ]
    return subprocess.run(
        [*command, "-m", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


class Together(NamedTuple):
    """What two processes left behind."""

    strategy: str
    folder: Path
    ranks: list[dict[str, Any]]


@pytest.fixture
def one_thread():
    """As in the processes: another number of threads adds in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def together(request, tmp_path_factory) -> Together:
    folder = tmp_path_factory.mktemp(request.param)
    train(Run(make_model(), SETTINGS, TOKENS, VALIDATION), folder / "alone", after_step=stop)
    done = torchrun(2, "tests.distributed_process", "train", folder, request.param)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"{request.param}-{rank}.json").read_text("utf-8")) for rank in (0, 1)]
    return Together(request.param, folder, ranks)


@pytest.fixture(scope="module")
def alone() -> tuple[GPT, list[LogRow]]:
    run = Run(make_model(), SETTINGS, TOKENS, VALIDATION)
    return run.model, train(run)


@pytest.fixture
def group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def shared_run(strategy: str, config=CONFIG, settings=SETTINGS) -> SharedRun:
    return SharedRun(
        make_model(config), settings, TOKENS, VALIDATION, strategy=strategy, device=torch.device("cpu")
    )


def column(rows: list, name: str) -> list[float | None]:
    return [(row if isinstance(row, dict) else asdict(row))[name] for row in rows]


def assert_same_run(rows: list, expected: list) -> None:
    """Losses, gradients and held-out losses within 1e-5, steps and learning rates exactly."""
    for name in ("step", "learning_rate"):
        assert column(rows, name) == column(expected, name)
    for name in ("loss", "gradient_norm"):
        assert column(rows, name) == pytest.approx(column(expected, name), **CLOSE)
    measured = [
        [value for value in column(each, "validation_loss") if value is not None] for each in (rows, expected)
    ]
    assert measured[0] == pytest.approx(measured[1], **CLOSE)


# One rank: the machinery, with nobody to share with


@pytest.mark.usefixtures("group_of_one", "one_thread")
@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_single_rank_does_exactly_what_the_plain_run_does(strategy, precision, tmp_path):
    settings = replace(SETTINGS, steps=6, evaluate_every=3, save_every=2, precision=precision)
    plain = Run(make_model(), settings, TOKENS, VALIDATION)
    shared = shared_run(strategy, settings=settings)
    expected, rows = train(plain, tmp_path / "plain"), train(shared, tmp_path / "shared")
    assert [tuple(asdict(row).values())[:-1] for row in rows] == [
        tuple(asdict(row).values())[:-1] for row in expected
    ]
    for name, parameter in load_checkpoint(tmp_path / "shared").named_parameters():
        assert torch.equal(parameter, plain.model.get_parameter(name))


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_all_targets_ignored_is_a_clear_error(strategy):
    x, y = batch_with_ignored("uneven")
    with pytest.raises(ValueError, match="every one of the 128 targets is -100"):
        shared_run(strategy).backward(x, torch.full_like(y, -100))


@pytest.mark.usefixtures("group_of_one")
def test_an_unknown_strategy_is_named():
    with pytest.raises(ValueError, match="strategy='zero' must be 'ddp' or 'fsdp'"):
        shared_run("zero")


@pytest.mark.usefixtures("group_of_one")
def test_a_batch_that_cannot_be_shared_out_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    with pytest.raises(ValueError, match="batch_size=8 must be divisible by 3 processes × micro_batches=2"):
        shared_run("ddp")


# Two ranks, and one


@pytest.mark.slow
def test_two_ranks_have_the_losses_and_gradients_of_one(together, alone):
    _, expected = alone
    assert len(expected) == 20
    assert_same_run(together.ranks[0]["rows"], expected)
    assert_same_run(read_log(together.folder / "unbroken"), expected)


@pytest.mark.slow
def test_both_ranks_know_the_same(together):
    first, second = ([{**row, "seconds": 0} for row in rank["rows"]] for rank in together.ranks)
    assert first == second


@pytest.mark.slow
def test_two_ranks_end_with_the_weights_of_one(together, alone):
    model, _ = alone
    saved = load_checkpoint(together.folder / "unbroken")
    assert is_tied(saved)
    torch.testing.assert_close(
        dict(saved.named_parameters()), dict(model.named_parameters()), rtol=0, atol=1e-5
    )


@pytest.mark.slow
def test_an_untied_model_trains_too(together):
    config = replace(CONFIG, tie_word_embeddings=False)
    run = Run(make_model(config), replace(SETTINGS, steps=FEW), TOKENS)
    assert together.ranks[0]["untied"] == pytest.approx([row.loss for row in train(run)], **CLOSE)
    assert not is_tied(load_checkpoint(together.folder / "untied"))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_ignored_targets_count_nothing_wherever_they_lie(together, pattern):
    model = make_model()
    loss = backward(model, *batch_with_ignored(pattern), 2)
    expected = {"loss": loss, **{name: p.grad for name, p in model.named_parameters()}}
    found = torch.load(together.folder / "gradients.pt", weights_only=True)[pattern]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_one_process_goes_on_where_two_have_stopped(together, alone):
    _, expected = alone
    assert [rank["stopped at"] for rank in together.ranks] == [
        STOP_AT,
        STOP_AT,
    ]  # rank 0 alone had asked for it
    assert_same_run(train(resume(together.folder / "stopped", TOKENS, VALIDATION)), expected[STOP_AT:])


@pytest.mark.slow
@pytest.mark.parametrize("who", ["stopped", "alone"])
def test_two_processes_go_on_where_two_or_one_have_stopped(together, alone, who):
    _, expected = alone
    for rank in together.ranks:
        assert_same_run(rank[f"after {who}"], expected[STOP_AT:])


@pytest.mark.slow
def test_with_dropout_two_go_on_bit_for_bit_and_draw_different_masks(together):
    for rank in together.ranks:
        assert rank["dropout, resumed"] == rank["dropout"][3:]
        assert len(rank["dropout"]) == FEW
    first, second = together.ranks
    assert first["dropout"] == second["dropout"]
    assert first["drawn next"] != second["drawn next"]


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_has_the_form_of_one_processes(together, tmp_path):
    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: form(item) for key, item in value.items()}
        if isinstance(value, list):
            return [form(item) for item in value]
        return (type(value), value.dtype, value.shape) if isinstance(value, torch.Tensor) else value

    state, plain = (load_state(together.folder / name) for name in ("stopped", "alone"))
    assert len(state.pop("random_of_ranks")) == 2
    assert form(state) == form(plain)
    head, table = (state["model"][f"{name}.weight"] for name in ("lm_head", "wte"))
    assert head.data_ptr() == table.data_ptr()
    sizes = [(together.folder / name / "model.safetensors").stat().st_size for name in ("stopped", "alone")]
    assert sizes[0] == sizes[1]
    assert not list((together.folder / "stopped").glob(".*.partial"))


# What a rank holds


@pytest.mark.slow
def test_what_two_ranks_hold_is_what_the_form_says_to_the_byte_in_every_step(together):
    for rank, expected in zip(together.ranks, per_rank_bytes(CONFIG, 2, together.strategy), strict=True):
        assert rank["bytes"] == [asdict(expected)] * 20
        assert rank["bytes after alone"] == {**asdict(expected), "gradients": 0}


def norms_and_tables(moments: list[Moment], config) -> dict[str, int]:
    """What is alive in each block at its last norm in the forward pass and in the backward pass, and at the end."""
    blocks = config.n_layer
    live: dict[str, list[int]] = {}
    for moment in moments:
        live.setdefault(moment.operation, []).append(moment.live)
    forward, backward = live["native_layer_norm"], live["native_layer_norm_backward"]
    found = {f"forward, block {i}": forward[2 * i + 1] for i in range(blocks)}
    found |= {f"backward, block {i}": backward[2 * (blocks - i)] for i in range(blocks)}
    last = "add" if config.tie_word_embeddings else "embedding_dense_backward"
    return found | {"backward, tables": live[last][-1]}


def assert_holds_along_the_step(
    traced: list, config, rank: int, ranks: int, batch_size: int, context: int
) -> None:
    """A rank has alive what one process has, but for weights, gradients and moments, where it has what the form says.

    And the ids of the whole batch, their count (8 bytes), its share and the sum of losses (4 each), and from the
    backward pass on the loss times the ranks (4).
    """
    size = {
        name: 4 * Ledger.from_config(config).subtotal(name) for name in ("", "h.0.", "ln_f", "wte", "wpe")
    }
    L, whole = config.n_layer, {}  # what one process holds
    for i in range(L):
        whole[f"forward, block {i}"] = 3 * size[""]
        whole[f"backward, block {i}"] = 3 * size[""] + size["wte"] + size["ln_f"] + (L - i) * size["h.0."]
    tables = 3 if config.tie_word_embeddings else 2
    whole["backward, tables"] = (
        3 * size[""] + L * size["h.0."] + size["ln_f"] + size["wpe"] + tables * size["wte"]
    )

    alone = replay(TrainingStep(config, batch_size // ranks, context, loss="fused")).moments
    alone = norms_and_tables([moment for moment in alone if moment.phase != "optimizer"], config)
    form, more_ids = fsdp_step_bytes(config, ranks, rank), 16 * (batch_size - batch_size // ranks) * context
    expected = {
        name: alone[name] - whole[name] + form[name] + more_ids + 8 + 4 + 4 + 4 * name.startswith("backward")
        for name in whole
    }
    assert norms_and_tables([Moment(*moment) for moment in traced], config) == expected
    assert set(form) == {"before", *whole, "after"}


@pytest.mark.slow
def test_along_a_step_two_ranks_hold_what_the_form_says_to_the_byte(together):
    if together.strategy == "ddp":
        pytest.skip("the form is FSDP2's")
    for i, rank in enumerate(together.ranks):
        assert_holds_along_the_step(rank["step"], CONFIG, i, 2, 8, 16)


@pytest.mark.slow
def test_between_the_parts_of_a_step_a_rank_holds_no_more_of_the_gradient_than_after_it(together):
    for rank, expected in zip(together.ranks, per_rank_bytes(CONFIG, 2, together.strategy), strict=True):
        assert rank["gradients before each part"] == [0, expected.gradients]


@pytest.mark.slow
def test_what_four_ranks_hold_is_what_the_form_says_to_the_byte_where_nothing_divides_evenly(tmp_path):
    done = torchrun(4, "tests.distributed_process", "hold", tmp_path, "all")
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text("utf-8")) for rank in range(4)]
    for name, config in ODD.items():
        for strategy in ("ddp", "zero1", "fsdp"):
            expected = [asdict(held) for held in per_rank_bytes(config, 4, strategy)]
            assert [rank[f"{name} {strategy}"] for rank in ranks] == expected, (name, strategy)
        for i, rank in enumerate(ranks):
            assert_holds_along_the_step(rank[f"{name} step"], config, i, 4, 4, 3)


# When something goes wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "strategy", "message"),
    [
        ("raises", "ddp", "ValueError: the dog ate rank 1's batch"),
        ("dies", "fsdp", "ConnectionError: rank 0 of 2 has lost another one"),
        ("hangs", "ddp", "ConnectionError: rank 0 of 2 has lost another one"),
        ("diverges", "fsdp", "FloatingPointError: in step 1 the loss is nan"),
    ],
)
def test_trouble_on_one_rank_ends_all_with_one_message_and_the_checkpoint_is_whole(
    tmp_path, alone, how, strategy, message
):
    done = torchrun(2, "tests.distributed_process", how, tmp_path, strategy)
    assert done.returncode == 1
    said = done.stderr.count(message)
    assert said <= 1, done.stderr
    if (
        how != "dies"
    ):  # torchrun may end the survivor before it notices; then torchrun's report names the signal
        assert said == 1, done.stderr
    elif not said:
        assert "SIGKILL" in done.stderr
    again = resume(tmp_path / "failed", TOKENS)
    assert again.step == 0
    if how != "diverges":
        losses = [row.loss for row in train(again, tmp_path / "failed")]
        assert losses == pytest.approx([row.loss for row in alone[1]], **CLOSE)
