"""A ``config.json`` means the same to transformers, or it is refused."""

import json
from contextlib import suppress

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, GPT2Config, GPT2LMHeadModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from gptlab import GPTConfig, Ledger
from gptlab.config_file import read_config

SAME_NAME = (
    "vocab_size",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "embd_pdrop",
    "attn_pdrop",
    "resid_pdrop",
)
SAME_NAME += ("layer_norm_epsilon", "initializer_range", "tie_word_embeddings")

sizes = {
    "vocab_size": st.integers(1, 99),
    "n_positions": st.integers(1, 16),
    "max_position_embeddings": st.integers(1, 16),
    "n_embd": st.sampled_from([12, 24]),
    "hidden_size": st.sampled_from([12, 24]),
    "n_layer": st.integers(1, 3),
    "num_hidden_layers": st.integers(1, 3),
    "n_head": st.sampled_from([1, 2, 3, 5]),
    "num_attention_heads": st.sampled_from([1, 2, 3, 5]),
}
rate = st.sampled_from([0, 0.0, 0.1, 0.5])
others = {
    **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), rate),
    "layer_norm_epsilon": st.sampled_from([1e-5, 1e-6]),
    "initializer_range": st.sampled_from([0.02, 0.1]),
    "tie_word_embeddings": st.booleans(),
    "n_inner": st.sampled_from([None, 48, 96]),
    "activation_function": st.sampled_from(["gelu_new", "gelu"]),
    **dict.fromkeys(("scale_attn_weights", "reorder_and_upcast_attn", "add_cross_attention"), st.booleans()),
    **dict.fromkeys(("scale_attn_by_inverse_layer_idx", "use_cache"), st.booleans()),
    "intermediate_size": st.sampled_from([48, 96, 100]),
    "num_key_value_heads": st.sampled_from([1, 2]),
    **dict.fromkeys(("n_ctx", "block_size", "pad_token_id"), st.integers(1, 16)),
    **dict.fromkeys(("bias", "rotary"), st.booleans()),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    own=st.lists(st.booleans(), min_size=4, max_size=4),
    drawn=st.fixed_dictionaries(sizes),
    second=st.sets(st.sampled_from(sorted(sizes)), max_size=2),
    more=st.lists(st.sampled_from(sorted(others)), max_size=4, unique=True),
    data=st.data(),
)
def test_what_both_accept_both_read_alike(tmp_path, own, drawn, second, more, data):
    pairs = list(zip(list(sizes)[1::2], list(sizes)[2::2], strict=True))
    names = {"vocab_size", *(pair[not mine] for pair, mine in zip(pairs, own, strict=True)), *second}
    found = {"model_type": "gpt2", **{name: drawn[name] for name in names}}
    found |= {name: data.draw(others[name], label=name) for name in more}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(found))
    try:
        ours = read_config(file)
    except ValueError:
        return
    theirs = GPT2Config.from_pretrained(tmp_path)
    assert {name: getattr(theirs, name) for name in SAME_NAME} == {n: getattr(ours, n) for n in SAME_NAME}
    with torch.device("meta"):
        total = sum(parameter.numel() for parameter in GPT2LMHeadModel(theirs).parameters())
    assert Ledger.from_config(ours).total == total
    assert theirs.activation_function == "gelu_new"
    assert theirs.scale_attn_weights
    assert not theirs.scale_attn_by_inverse_layer_idx


FAMILIES = sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - {"gpt2", "gpt-sw3"})  # gpt-sw3 is built as a GPT-2


def defaults(family: str) -> dict[str, object]:
    return json.loads(CONFIG_MAPPING[family]().to_json_string(use_diff=False))


@pytest.mark.filterwarnings("ignore")
def test_no_other_family_is_taken_for_a_gpt2_whatever_name_it_goes_by(tmp_path):
    file, seen, accepted = tmp_path / "config.json", 0, []
    for family in FAMILIES:
        try:
            found = defaults(family)
        except StrictDataclassError:  # has no default
            continue
        nameless = {key: value for key, value in found.items() if key not in ("model_type", "architectures")}
        seen += 1
        for content in (found, nameless, {**found, "model_type": "gpt2"}):
            file.write_text(json.dumps(content))
            with suppress(ValueError):
                accepted.append((family, read_config(file)))
    assert seen > 100
    assert accepted == []


def test_gpt2s_own_defaults_are_ours(tmp_path):
    GPT2Config().to_json_file(tmp_path / "config.json", use_diff=False)
    assert read_config(tmp_path / "config.json") == GPTConfig()
