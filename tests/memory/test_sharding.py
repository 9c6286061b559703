import doctest
import json
import subprocess
import sys
from dataclasses import asdict
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlab import PRESETS, GPTConfig, Ledger
from gptlab.memory import sharding
from gptlab.memory.sharding import STRATEGIES, RankBytes, fsdp_step_bytes, per_rank_bytes, zero_bytes

P = 124_439_808


def odd_configs() -> st.SearchStrategy[GPTConfig]:
    sizes = st.integers(1, 12)
    return st.builds(
        lambda V, T, D, L, H, tied: GPTConfig(
            vocab_size=V, n_positions=T, n_embd=D * H, n_layer=L, n_head=H, tie_word_embeddings=tied
        ),
        *(sizes, sizes, sizes, st.integers(1, 3), st.integers(1, 3), st.booleans()),
    )


# The paper's stages


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ((4, 4, 8), [1_991_036_928, 1_119_958_272, 684_418_944, 248_879_616]),
        ((2, 2, 12), [1_991_036_928, 684_418_944, 466_649_280, 248_879_616]),
    ],
    ids=["float32", "mixed precision"],
)
def test_the_stages_on_eight_ranks(split, expected):
    assert [zero_bytes(P, 8, stage, split) for stage in range(4)] == expected


def test_the_papers_own_example_of_7_5_billion_parameters_on_64_ranks():
    """Rajbhandari et al. 2020, figure 1: 120, 31.4, 16.6 and 1.9 GB."""
    found = [zero_bytes(7_500_000_000, 64, stage, (2, 2, 12)) / 1e9 for stage in range(4)]
    assert found == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@given(n=st.integers(1, 10**9), ranks=st.integers(1, 1000))
def test_a_further_stage_never_holds_more_and_one_rank_always_holds_all(n, ranks):
    held = [zero_bytes(n, ranks, stage) for stage in range(4)]
    assert held == sorted(held, reverse=True)
    assert all(zero_bytes(n, 1, stage) == 16 * n for stage in range(4))
    assert 16 * n <= ranks * held[3] < 16 * (n + ranks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((P, 8, 4), "stage=4 must be 0, 1, 2 or 3"),
        ((P, 0, 1), "world_size=0 must be at least 1"),
        ((0, 8, 1), "n_params=0 must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        zero_bytes(*arguments)


# What PyTorch does


def test_the_form_is_what_was_measured_for_gpt2_on_two_ranks_to_the_byte():
    stored = json.loads((files("gptlab") / "assets/sharding.json").read_text("utf-8"))
    config = GPTConfig(**stored["config"])
    assert Ledger.from_config(config).total == P
    assert set(stored["strategies"]) == set(STRATEGIES)
    for strategy, found in stored["strategies"].items():
        assert [asdict(held) for held in per_rank_bytes(config, 2, strategy)] == found["bytes"]


def test_the_stored_losses_do_not_depend_on_who_holds_what():
    stored = json.loads((files("gptlab") / "assets/sharding.json").read_text("utf-8"))
    first, *others = [found["loss"] for found in stored["strategies"].values()]
    for losses in others:
        assert losses == pytest.approx(first, abs=5e-6)


def test_the_table_in_megabytes():
    def megabytes(strategy: str) -> list[str]:
        return [
            f"{value / 1e6:.2f}" for value in asdict(per_rank_bytes(PRESETS["gpt2"], 2, strategy)[0]).values()
        ]

    assert megabytes("ddp") == ["497.76", "497.76", "995.52"]
    assert megabytes("zero1") == ["497.76", "497.76", "497.76"]
    assert megabytes("fsdp") == ["248.88", "248.88", "497.76"]


def test_an_odd_number_of_rows_leaves_one_rank_with_a_row_less_and_padding_in_its_place():
    first, second = per_rank_bytes(PRESETS["gpt2"], 2, "fsdp")
    row = 4 * 768
    assert (first.parameters, first.gradients) == (second.parameters, second.gradients)
    assert first.moments - second.moments == 2 * row
    assert first.parameters + second.parameters == 4 * P + row


def test_zero1_gives_the_whole_token_table_to_one_of_eight_ranks():
    held = [rank.moments for rank in per_rank_bytes(PRESETS["gpt2"], 8, "zero1")]
    assert max(held) == 8 * 50257 * 768
    assert max(held) / (8 * P / 8) == pytest.approx(2.48, abs=0.005)


@given(config=odd_configs(), ranks=st.integers(1, 9))
def test_the_ranks_together_hold_every_moment_once_and_one_rank_holds_everything(config, ranks):
    n = Ledger.from_config(config).total
    for strategy in ("zero1", "fsdp"):
        assert sum(rank.moments for rank in per_rank_bytes(config, ranks, strategy)) == 8 * n
    for strategy in STRATEGIES:
        assert per_rank_bytes(config, 1, strategy) == (RankBytes(4 * n, 4 * n, 8 * n),)
    split = per_rank_bytes(config, ranks, "fsdp")
    assert len({(rank.parameters, rank.gradients) for rank in split}) == 1
    assert split[0].total == max(rank.total for rank in split) >= zero_bytes(n, ranks, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, "zero2"), "strategy='zero2' must be one of ddp, zero1, fsdp"),
        ((0, "ddp"), "world_size=0 must be"),
    ],
)
def test_another_strategy_or_no_rank_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        per_rank_bytes(PRESETS["gpt2"], *arguments)


# Along a step


def test_the_fullest_moment_of_gpt2s_step_on_two_ranks_is_what_was_measured_but_for_what_is_no_state():
    stored = json.loads((files("gptlab") / "assets/sharding.json").read_text("utf-8"))
    ids, counters, numbers = 2 * 8 * 2 * 64, 4 * 148, 28  # count, share, losses and their sum
    for rank, found in enumerate(stored["fullest moment of a step with fsdp"]):
        form = fsdp_step_bytes(GPTConfig(**stored["config"]), 2, rank)
        assert max(form, key=form.__getitem__) == "backward, tables"
        assert found == {"operation": "add", "live": form["backward, tables"] + ids + counters + numbers}


def test_on_eight_ranks_gpt2s_step_adds_up_by_hand():
    V, T, C = 50257, 1024, 768
    block, root = 12 * C * C + 13 * C, V * C + T * C + 2 * C
    assert root / P == pytest.approx(0.3165, abs=5e-5)
    eighth = (P + 7 * C) // 8  # 50,264 rows of the table would divide by eight; all else does
    kept = 4 * eighth + 8 * eighth
    whole = kept + 4 * (root + 7 * C)
    form = fsdp_step_bytes(PRESETS["gpt2"], 8)
    assert form["before"] == kept
    assert form["forward, block 7"] == whole + 2 * 4 * block
    assert form["backward, block 1"] == whole + 4 * (V * C + 2 * C) + 4 * 4 * block + 10 * 4 * block // 8
    assert (
        form["backward, tables"] == whole + 4 * (3 * V * C + T * C + 2 * C) + 4 * block + 12 * 4 * block // 8
    )
    assert form["backward, tables"] == max(form.values()) == 881_429_760
    assert form["after"] == kept + 4 * eighth == 248_890_368


@given(config=odd_configs(), ranks=st.integers(2, 9), data=st.data())
def test_a_rank_never_holds_less_in_a_step_than_before_it_and_what_stays_is_the_other_form(
    config, ranks, data
):
    rank = data.draw(st.integers(0, ranks - 1))
    form, kept = fsdp_step_bytes(config, ranks, rank), per_rank_bytes(config, ranks, "fsdp")[rank]
    assert form["before"] == kept.parameters + kept.moments == min(form.values())
    assert form["after"] == kept.total
    assert list(form)[1] == "forward, block 0"
    assert list(form)[-3:] == ["backward, block 0", "backward, tables", "after"]


@pytest.mark.parametrize(
    ("ranks", "rank", "message"),
    [
        (1, 0, "world_size=1 must be at least 2: one rank has nobody to share with"),
        (2, 2, "rank=2 must be from 0 to 1"),
        (2, -1, "rank=-1 must be from 0 to 1"),
    ],
)
def test_a_rank_that_is_not_there_or_is_alone_is_named(ranks, rank, message):
    with pytest.raises(ValueError, match=message):
        fsdp_step_bytes(PRESETS["gpt2"], ranks, rank)


def test_the_example_in_the_docstring_holds():
    assert doctest.testmod(sharding).failed == 0


def test_no_pytorch_is_needed():
    code = "import sys; import gptlab.memory.sharding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
