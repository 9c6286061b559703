from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save_file
from typer.testing import CliRunner

from gptlab import PRESETS, GPTConfig, Ledger, save_checkpoint
from gptlab.checkpoint import inspect_checkpoint
from gptlab.cli import app
from gptlab.config_file import config_json
from tests.conftest import TINY, make_model


def run(*arguments: object, columns: int = 80):
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, ["ledger", *(str(argument) for argument in arguments)], env=environment)


def rewrite(folder, change) -> None:
    file = folder / "model.safetensors"
    save_file(change(load(file.read_bytes())), file)  # load_file's tensors are maps of the file


@pytest.fixture
def config_file(tmp_path):
    def write(config: GPTConfig, **more):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config_json(config) | more))
        return file

    return write


@pytest.fixture
def folder(tmp_path):
    save_checkpoint(make_model(TINY), tmp_path / "mine")
    return tmp_path / "mine"


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("name", PRESETS)
def test_the_table_has_every_tensor_of_a_block_and_every_sum_at_80_columns(name, untied):
    config = replace(PRESETS[name], tie_word_embeddings=not untied)
    ledger = Ledger.from_config(config)
    result = run(name, *["--untied"] * untied)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    first = result.stdout.splitlines()[0]
    assert first == (
        f"{name}: {ledger.total:,} parameters in {len(ledger.rows)} tensors, {'untied' if untied else 'tied'}"
    )
    for row in ledger:
        if not row.name.startswith("h.") or row.name.startswith("h.0."):
            (line,) = [
                line for line in result.stdout.splitlines()
                if line.split()[:1] == [row.name.removeprefix("h.0.")]
            ]  # fmt: skip
            assert f"{row.parameters:,}" in line
            assert " × ".join(f"{n:,}" for n in row.shape) in line
            assert row.formula in line
    for part in ledger.parts().values():
        assert f" {part:,} " in result.stdout
    assert ("lm_head is wte" in result.stdout) is not untied


def test_without_a_name_it_counts_gpt2():
    assert run().stdout == run("gpt2").stdout
    assert "284,812,800 operations" in run().stdout


@pytest.mark.parametrize("columns", [20, 60])
def test_a_narrow_terminal_loses_formulas_but_never_a_digit(columns):
    shown = run("gpt2", columns=columns).stdout
    assert "3C × C" not in shown
    assert "38,597,376   31.02%" in shown
    assert "…" not in shown


def test_a_very_large_model_still_shows_whole_numbers(config_file):
    big = GPTConfig(vocab_size=256_000, n_embd=12_288, n_layer=96, n_head=96)
    shown = run(config_file(big)).stdout
    assert f"{Ledger.from_config(big).total:,}" in shown
    assert "256,000 × 12,288" in shown
    assert all(len(line) <= 80 for line in shown.splitlines()[1:])  # the first names the file


def test_json_says_the_same_as_the_ledger(config_file):
    odd = GPTConfig(vocab_size=1234, n_positions=77, n_embd=96, n_layer=5, n_head=3)
    found = json.loads(run(config_file(odd), "--json").stdout)
    ledger = Ledger.from_config(odd)
    assert found["total"] == ledger.total == sum(row["parameters"] for row in found["tensors"])
    assert found["parts"] == ledger.parts()
    assert [(row["name"], tuple(row["shape"])) for row in found["tensors"]] == [
        (row.name, row.shape) for row in ledger
    ]
    assert found["config"]["n_positions"] == 77
    assert found["tied"] is True
    assert json.loads(run(config_file(odd), "--json", "--untied").stdout)["total"] == ledger.total + 1234 * 96


def test_a_checkpoint_is_counted_from_its_header(folder):
    shown = run(folder).stdout
    file = folder / "model.safetensors"
    total = Ledger.from_config(TINY).total
    assert f"{total:,} parameters in" in shown
    assert f"{file.stat().st_size:,} B" in shown
    assert f"parameters {4 * total:,} B (F32)" in shown
    assert run(file).stdout.splitlines()[1:] == shown.splitlines()[1:]


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_masks_and_a_second_copy_of_the_table_are_not_parameters(folder, prefix):
    mask = torch.ones(1, 1, 16, 16)

    def older(tensors):
        extra = {f"h.{i}.attn.bias": mask.clone() for i in range(3)}
        extra["lm_head.weight"] = tensors["wte.weight"].clone()
        return {prefix + name: tensor for name, tensor in (tensors | extra).items()}

    rewrite(folder, older)
    found = inspect_checkpoint(folder)
    assert found.ledger == Ledger.from_config(TINY)
    assert found.parameter_bytes == 4 * found.ledger.total
    assert found.other_bytes == 3 * mask.nbytes + 4 * TINY.vocab_size * TINY.n_embd
    assert found.file_bytes == found.header_bytes + found.parameter_bytes + found.other_bytes
    assert "3 causal-mask buffers, the token table once more" in " ".join(run(folder).stdout.split())


def test_a_head_that_is_not_the_table_in_a_tied_checkpoint_is_said(folder):
    rewrite(folder, lambda tensors: tensors | {"lm_head.weight": tensors["wte.weight"] + 1})
    result = run(folder)
    assert result.exit_code == 2
    assert "differs from wte.weight" in result.output
    (folder / "config.json").write_text(json.dumps(config_json(replace(TINY, tie_word_embeddings=False))))
    assert f"{Ledger.from_config(TINY).total + 59 * 24:,} parameters" in run(folder).stdout


@pytest.mark.parametrize("kept", ["wte.weight", "lm_head.weight"])
def test_a_tied_table_under_either_name_is_counted_once(folder, kept):
    def renamed(tensors):
        return {kept if name == "wte.weight" else name: tensor for name, tensor in tensors.items()}

    rewrite(folder, renamed)
    found = inspect_checkpoint(folder)
    assert found.ledger == Ledger.from_config(TINY)
    assert found.parameter_bytes == 4 * found.ledger.total
    assert found.other_bytes == 0


def test_the_names_of_every_family_are_counted_as_gpt2s(tmp_path):
    file = tmp_path / "config.json"
    sizes = '"hidden_size": 1600, "num_hidden_layers": 48, "num_attention_heads": 25, "max_position_embeddings": 1024'
    file.write_text(f'{{"model_type": "gpt2", "vocab_size": 50257, {sizes}}}')
    assert f": {Ledger.from_config(PRESETS['gpt2-xl']).total:,} parameters" in run(file).stdout


def test_a_checkpoint_beside_the_config_of_another_is_said(folder, config_file):
    (folder / "config.json").write_text(json.dumps(config_json(replace(TINY, n_head=6))))
    result = run(folder)
    assert result.exit_code == 2
    assert "was saved with n_head=4, its config.json says 6" in " ".join(result.output.split())


def test_types_of_the_file_are_told(tmp_path):
    save_checkpoint(make_model(TINY), tmp_path, dtype=torch.bfloat16)
    assert f"parameters {2 * Ledger.from_config(TINY).total:,} B (BF16)" in run(tmp_path).stdout


def damaged(file):
    file.write_bytes(file.read_bytes()[:-5])


def no_json(file):
    file.write_bytes(struct.pack("<Q", 8) + b"{{{{{{{{" + bytes(8))


@pytest.mark.parametrize("harm", [damaged, no_json])
def test_a_damaged_checkpoint_is_said(folder, harm):
    harm(folder / "model.safetensors")
    result = run(folder)
    assert result.exit_code == 2
    assert "is not a complete safetensors file" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must hold a JSON object, not a list"),
        ("{}", "vocab_size, n_positions, n_embd, n_layer, n_head must be given"),
        ('{"vocab_size": 9, "block_size": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}', "block_size=8"),
        (
            '{"vocab_size": 9, "n_positions": 8, "n_embd": 100, "n_layer": 1, "n_head": 7}',
            "n_embd=100 must be divisible by n_head=7",
        ),
        ('{"model_type": "llama"}', "model_type='llama'"),
    ],
)
def test_a_config_that_is_none_says_why(tmp_path, content, words):
    file = tmp_path / "config.json"
    file.write_text(content)
    result = run(file)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_an_unknown_name_lists_the_sizes():
    result = run("gpt3")
    assert result.exit_code == 2
    assert "'gpt3' is none of gpt2, gpt2-medium, gpt2-large, gpt2-xl, and no file or folder" in result.output


def test_a_folder_with_a_config_alone_is_counted_and_an_empty_one_is_not(tmp_path, config_file):
    config_file(TINY)
    assert f"{Ledger.from_config(TINY).total:,} parameters" in run(tmp_path).stdout
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty")
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_untying_a_checkpoint_is_refused(folder):
    result = run(folder, "--untied")
    assert result.exit_code == 2
    assert "--untied asks what a config would give" in result.output


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_card_is_written(tmp_path, ending, start):
    file = tmp_path / f"card.{ending}"
    assert run("gpt2-medium", "--card", file).exit_code == 0
    data = file.read_bytes()
    assert data.startswith(start)
    if ending == "png":
        assert struct.unpack(">II", data[16:24]) == (1080, 1080)


@pytest.mark.parametrize(
    ("name", "words"), [("card.bmp", "must end in .png"), ("no/card.png", "does not exist")]
)
def test_a_card_that_cannot_be_written_says_why(tmp_path, name, words):
    result = run("--card", tmp_path / name)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / name).exists()


def test_counting_a_config_and_drawing_its_card_need_no_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gptlab.cli import app\n"
        f"app(['ledger', 'gpt2-xl', '--card', {str(tmp_path / 'card.png')!r}])"
    )
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpt2-xl: 1,557,611,200 parameters in 580 tensors, tied\n")
    assert "\x1b" not in done.stdout
    assert (tmp_path / "card.png").exists()
