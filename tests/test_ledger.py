import doctest
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from gptlab import GPT, PRESETS, Ledger
from gptlab import ledger as ledger_module

TOTALS = {  # tied, untied: facts about the four published sizes
    "gpt2": (124_439_808, 163_037_184),
    "gpt2-medium": (354_823_168, 406_286_336),
    "gpt2-large": (774_030_080, 838_359_040),
    "gpt2-xl": (1_557_611_200, 1_638_022_400),
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", PRESETS)
def test_config_and_model_give_the_same_ledger(name, tied):
    config = replace(PRESETS[name], tie_word_embeddings=tied)
    with torch.device("meta"):
        model = GPT(config)
    ledger = Ledger.from_config(config)
    assert ledger == Ledger.from_model(model)
    assert ledger.total == TOTALS[name][not tied] == sum(p.numel() for p in model.parameters())


def test_config_and_model_agree_where_all_sizes_differ(model):
    assert Ledger.from_config(model.config) == Ledger.from_model(model)


def test_ledgers_that_differ_in_one_shape_are_not_equal():
    config = PRESETS["gpt2"]
    assert Ledger.from_config(config) != Ledger.from_config(replace(config, vocab_size=50304))
    assert Ledger.from_config(config) != Ledger.from_config(replace(config, n_head=6, n_layer=13))


def test_each_formula_says_how_its_shape_follows_from_the_config():
    config = PRESETS["gpt2"]
    letters = {"V": config.vocab_size, "P": config.n_positions, "C": config.n_embd}
    for row in Ledger.from_config(config):
        sizes = [factor.strip() for factor in row.formula.split("×")]
        shape = tuple(int(size[:-1] or 1) * letters[size[-1]] for size in sizes)
        assert shape == row.shape, row


def test_pc1_117m_against_124m():
    ledger = Ledger.from_config(PRESETS["gpt2"])
    assert ledger.total == 38_597_376 + 786_432 + 12 * 7_087_872 + 1_536
    assert ledger.subtotal("h.0.") == 7_087_872
    assert ledger.subtotal("wte", "wpe") == 39_383_808


def test_pc2_85m_is_the_matrices_of_the_blocks_alone():
    ledger = Ledger.from_config(PRESETS["gpt2"])
    assert (
        sum(row.parameters for row in ledger if row.name.startswith("h.") and len(row.shape) == 2)
        == 84_934_656
    )
    assert ledger.subtotal("h.") == 85_054_464


def test_pc3_a_tied_head_is_not_subtracted():
    ledger = Ledger.from_config(PRESETS["gpt2"])
    assert ledger.total != 85_842_432 == ledger.total - ledger.subtotal("wte")
    matrices = sum(row.parameters for row in ledger if row.name.startswith("h.") and len(row.shape) == 2)
    assert matrices + ledger.subtotal("wte") == 123_532_032  # what a token is multiplied by, head included


@pytest.mark.slow
def test_pc4_a_state_dict_counts_the_tied_tensor_twice_and_the_ledger_once():
    with torch.device("meta"):
        model = GPT(PRESETS["gpt2"])
    state = model.state_dict()
    assert len(state) == 149
    assert sum(tensor.numel() for tensor in state.values()) == 163_037_184
    assert Ledger.from_model(model).total == 124_439_808
    assert len(Ledger.from_model(model).rows) == 148


def test_pc5_a_vocabulary_padded_to_50304():
    padded = replace(PRESETS["gpt2"], vocab_size=50304)
    assert Ledger.from_config(padded).total == 124_475_904
    assert Ledger.from_config(replace(padded, tie_word_embeddings=False)).total == 163_109_376
    assert Ledger.from_config(padded).total - Ledger.from_config(PRESETS["gpt2"]).total == 36_096


def test_pc6_a_replaced_head_is_reported_as_untied():
    with torch.device("meta"):
        model = GPT(PRESETS["gpt2"])
        model.lm_head = nn.Linear(768, 50257, bias=False)
    ledger = Ledger.from_model(model)
    assert ledger.total == 163_037_184
    assert not ledger.tied


def test_a_copy_of_the_head_is_not_a_tie(model):
    assert Ledger.from_model(model).tied
    assert Ledger.from_model(deepcopy(model)).tied
    model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    assert not Ledger.from_model(model).tied


def test_a_subtotal_of_nothing_is_an_error():
    with pytest.raises(ValueError, match=r"no tensor's name starts with \('transformer',\)"):
        Ledger.from_config(PRESETS["gpt2"]).subtotal("transformer")


def test_the_example_in_the_docstring():
    assert doctest.testmod(ledger_module).failed == 0


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_parts_add_up_and_only_an_untied_head_is_one(tied):
    config = replace(PRESETS["gpt2-medium"], tie_word_embeddings=tied)
    ledger = Ledger.from_config(config)
    parts = ledger.parts()
    C, L = config.n_embd, config.n_layer
    assert sum(parts.values()) == ledger.total
    assert parts["attention"] == L * (4 * C * C + 4 * C)
    assert parts["MLP"] == L * (8 * C * C + 5 * C)
    assert parts["LayerNorms"] == (2 * L + 1) * 2 * C
    assert ("head" in parts) is not tied


def test_a_part_that_gpt2_has_not_is_counted_as_other(model):
    model.extra = nn.Linear(3, 5)
    assert Ledger.from_model(model).parts()["other"] == 20
