"""What other tools answered: stored whole, the right values right, and every difference explained to the byte."""

import json
import re
from dataclasses import fields

import estimators
import pytest
from estimators import CONFIG, B, T

from gptlab.ledger import Ledger

STORED = json.loads(estimators.FILE.read_text("utf-8"))
ROWS = {row["tool"]: row for row in STORED["tools"]}
RIGHT = STORED["right"]

V, C, L, H = CONFIG.vocab_size, CONFIG.n_embd, CONFIG.n_layer, CONFIG.n_head
N = B * T
P = Ledger.from_config(CONFIG).total
TABLE = Ledger.from_config(CONFIG).subtotal("wte")


def given(tool: str) -> dict[str, int]:
    return ROWS[tool]["gives"]


def test_every_question_has_its_answer_in_order():
    assert list(ROWS) == list(estimators.QUESTIONS)
    assert len(STORED["tools"]) == len(ROWS)
    assert STORED["question"] == estimators.QUESTION


@pytest.mark.parametrize("tool", ROWS)
def test_an_answer_is_well_formed(tool):
    row = ROWS[tool]
    assert set(row) == {"tool"} | {field.name for field in fields(estimators.Answer)}
    assert row["gives"]
    assert set(row["gives"]) <= set(RIGHT)
    assert all(type(number) is int and number > 0 for number in row["gives"].values())
    assert set(row["printed"]) <= set(row["gives"])
    assert re.fullmatch(r"\d+\.\d+\.\d+|commit [0-9a-f]{7}", row["version"])
    assert row["called"]
    for sentences in (row["leaves_out"], row["differs"]):
        assert sentences.endswith(".")
        assert len(sentences) < 200


@pytest.mark.parametrize("tool", ROWS)
def test_what_is_printed_is_what_is_given_in_the_units_that_are_named(tool):
    row = ROWS[tool]
    for name, text in row["printed"].items():
        number, unit = re.fullmatch(r"([\d.]+) ?([A-Za-z]+)", text).groups()
        last_digit = 10 ** -len(number.partition(".")[2])
        exact = row["gives"][name] / row["units"][unit]
        assert abs(float(number) - exact) <= last_digit / 2 * (1 + 1e-9), name


def test_the_right_values_are_the_scripts_and_the_ledgers():
    assert estimators.right_values() == RIGHT
    assert RIGHT["parameters"] == P
    assert RIGHT["weights"] == RIGHT["gradients"] == 4 * P
    assert RIGHT["optimizer"] == 2 * RIGHT["weights"]
    assert RIGHT["state"] == RIGHT["weights"] + RIGHT["gradients"] + RIGHT["optimizer"]


def test_the_right_activations_and_peak_follow_from_the_config():
    per_block = N * (64 * C + 4 * H + 16)
    head_and_loss = 4 * N * C + N * (4 * V + 8) + 4
    activations = L * per_block + N * (4 * C + 8) + head_and_loss + 8 * N + 8 * T
    assert RIGHT["activations"] == activations
    step_counters = 4 * len(Ledger.from_config(CONFIG).rows)
    assert RIGHT["total"] == 12 * P + activations + 8 * N * V + step_counters + 4


def test_the_configs_dropout_is_off_and_the_rest_is_gpt2_small():
    assert CONFIG.embd_pdrop == CONFIG.attn_pdrop == CONFIG.resid_pdrop == 0.0
    assert (P, CONFIG.tie_word_embeddings) == (124_439_808, True)


def test_those_that_are_said_to_agree_do():
    agree = [tool for tool, row in ROWS.items() if row["differs"] == estimators.AGREES]
    assert agree == ["transformers", "Lightning"]
    for tool in agree:
        assert given(tool).items() <= RIGHT.items()


def test_mem_trackers_peak_is_right_and_its_parts_differ_as_said():
    gives = given("PyTorch MemTracker")
    assert gives["total"] == RIGHT["total"]
    assert (gives["weights"], gives["gradients"]) == (RIGHT["weights"], RIGHT["gradients"])
    assert gives["optimizer"] - RIGHT["optimizer"] == 4 * 148
    ids_and_targets, loss = 2 * 8 * N, 4
    assert gives["activations"] - RIGHT["activations"] == loss - ids_and_targets


def test_accelerates_total_is_the_state():
    gives = given("accelerate estimate-memory")
    assert gives["total"] == gives["weights"] + gives["gradients"] + gives["optimizer"] == RIGHT["state"]


def test_deepspeeds_bytes_per_parameter():
    assert given("DeepSpeed, ZeRO-2")["state"] == 20 * P
    assert given("DeepSpeed, ZeRO-3")["state"] == 18 * P + 4 * TABLE


def test_torchinfos_parameters_and_passes():
    outputs = L * 11 * N * C + N * C + N * V  # of the blocks, of the last LayerNorm, of the head
    theirs, ours = given("torchinfo, on transformers' model"), given("torchinfo, on gptlab's model")
    assert theirs["parameters"] == P + TABLE
    assert theirs["weights"] == 4 * (P + TABLE)
    assert theirs["activations"] == 2 * 4 * (outputs + N * C + T * C)  # and of the two tables
    assert ours["parameters"] == P
    assert ours["weights"] == 4 * (P - T * C)
    assert ours["activations"] == 2 * 4 * outputs


def test_the_cookbooks_parameters_and_activations():
    gives = given("EleutherAI cookbook, calc_transformer_mem.py")
    assert ROWS["EleutherAI cookbook, calc_transformer_mem.py"]["restated"]
    assert gives["parameters"] == P + TABLE - L * 5 * C
    assert gives["optimizer"] == 12 * gives["parameters"]
    scores = B * H * T * T
    assert gives["activations"] == L * (66 * N * C + 9 * scores)


def test_llm_analysis_counts_another_block():
    gives = given("llm-analysis")
    biases = L * 11 * C + C
    assert gives["parameters"] == P - biases - T * C
    assert gives["optimizer"] == 12 * gives["parameters"]
    assert gives["activations"] == L * N * (73 * C + 192) + 4 * N * C + 4 * N * V
    assert round(100 * (1 - gives["total"] / RIGHT["total"]), 1) == 5.2


def test_only_what_could_not_be_called_is_restated():
    assert [tool for tool, row in ROWS.items() if row["restated"]] == [
        "EleutherAI cookbook, calc_transformer_mem.py"
    ]


def test_a_tool_that_prints_in_another_way_is_an_error():
    assert estimators.grab(r"Total: (.*)", "Peak: 1 B\nTotal:  2 B \n") == "2 B"
    with pytest.raises(ValueError, match="use the versions"):
        estimators.grab(r"Total: (.*)", "Sum: 2 B")


def test_a_tool_that_is_not_installed_keeps_its_stored_answer(tmp_path, monkeypatch, capsys):
    def absent() -> estimators.Answer:
        raise ModuleNotFoundError("No module named 'absent'")

    file = tmp_path / "estimators.json"
    file.write_text(json.dumps({"tools": [{"tool": "absent", "gives": {"weights": 7}}]}))
    present = estimators.Answer("1.2.3", "f()", {"weights": 8}, "All else.", "Nothing.")
    monkeypatch.setattr(
        estimators, "QUESTIONS", {"absent": absent, "never": absent, "present": lambda: present}
    )
    monkeypatch.setattr("sys.argv", ["estimators.py", "--file", str(file)])
    estimators.main()
    rows = json.loads(file.read_text())["tools"]
    assert [(row["tool"], row["gives"]["weights"]) for row in rows] == [("absent", 7), ("present", 8)]
    assert "absent: skipped (No module named 'absent')" in capsys.readouterr().out
