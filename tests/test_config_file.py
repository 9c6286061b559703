import json
from dataclasses import asdict, replace

import pytest

from gptlab.config import PRESETS, GPTConfig
from gptlab.config_file import config_json, read_config


def test_config_json_survives_writing_and_reading(tmp_path):
    config = replace(PRESETS["gpt2"], n_layer=3, tie_word_embeddings=False, embd_pdrop=0.0)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_json(config)))
    assert read_config(file) == config


SIZES = {"vocab_size": 59, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4}
ALIASES = {
    "vocab_size": 59,
    "max_position_embeddings": 16,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
LLAMA = {
    **ALIASES,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
}
NANOGPT = {"vocab_size": 59, "n_layer": 3, "n_head": 4, "n_embd": 24, "block_size": 16}


@pytest.fixture
def read(tmp_path):
    def written_and_read(content):
        file = tmp_path / "config.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_config(file)

    return written_and_read


@pytest.mark.parametrize("sizes", [SIZES, ALIASES], ids=["own names", "the names of every family"])
@pytest.mark.parametrize("family", [{}, {"model_type": "gpt2"}], ids=["unnamed", "gpt2"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n_ctx": 1024, "summary_type": "cls_index", "n_inner": None, "architectures": ["GPT2LMHeadModel"]},
        {"reorder_and_upcast_attn": True, "use_cache": False, "torch_dtype": "float16", "pad_token_id": 0},
        {"n_inner": 96, "intermediate_size": 96, "num_key_value_heads": 4, "head_dim": 6, "bias": True},
        {"rope_scaling": None, "sliding_window": None, "alibi": False, "pruned_heads": {}},
    ],
)
def test_keys_that_do_not_change_the_model_are_ignored(read, sizes, family, more):
    assert read({**family, **sizes, **more}) == GPTConfig(**SIZES)


def test_a_key_that_nobody_knows_is_ignored_only_where_the_file_says_gpt2(as_a_user, read):
    assert read({"model_type": "gpt2", **SIZES, "my_note": 1}) == GPTConfig(**SIZES)
    with pytest.raises(
        ValueError, match="my_note=1 is no setting of a GPT-2: leave it out if it changes nothing"
    ):
        read({**SIZES, "my_note": 1})


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_left_out_is_named_and_not_assumed(as_a_user, read, name):
    with pytest.raises(ValueError, match=f": {name} must be given"):
        read({"model_type": "gpt2", **{key: value for key, value in SIZES.items() if key != name}})


def test_a_file_without_sizes_is_not_gpt2_small(as_a_user, read):
    with pytest.raises(ValueError, match="vocab_size, n_positions, n_embd, n_layer, n_head must be given"):
        read({})


@pytest.mark.parametrize("turned", [False, True])
def test_two_names_of_a_size_must_agree(as_a_user, read, turned):
    both = {"hidden_size": 48, **SIZES} if turned else {**SIZES, "hidden_size": 48}
    with pytest.raises(
        ValueError, match="(hidden_size=48 and n_embd=24|n_embd=24 and hidden_size=48) name the same"
    ):
        read(both)
    assert read({**SIZES, **ALIASES}) == GPTConfig(**SIZES)


@pytest.mark.parametrize(
    "config", [*PRESETS.values(), GPTConfig(**SIZES, tie_word_embeddings=False, attn_pdrop=0.0)]
)
def test_our_own_files_are_read_with_and_without_the_name_of_the_family(read, config):
    ours = config_json(config)
    assert read(ours) == config
    assert read({key: value for key, value in ours.items() if key != "model_type"}) == config
    assert read(asdict(config)) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "must hold a JSON object, not a list"),
        ({"model_type": "llama"}, "model_type='llama', but this package builds model_type='gpt2' only"),
        ({"architectures": ["LlamaForCausalLM"], **SIZES}, "architectures=.*builds GPT-2 only"),
        ({**SIZES, "activation_function": "relu"}, "activation_function='relu'"),
        ({**SIZES, "hidden_act": "silu"}, "hidden_act='silu'"),
        ({**SIZES, "scale_attn_weights": False}, "scale_attn_weights=False"),
        ({**SIZES, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({**SIZES, "add_cross_attention": True}, "add_cross_attention=True"),
        ({**SIZES, "n_inner": 100}, "n_inner=100, but in a GPT-2 of this size it is 96"),
        ({**SIZES, "n_layer": "12"}, "n_layer='12' must be an integer"),
        (LLAMA, "rms_norm_eps=1e-05 is no setting of a GPT-2: GPT-2 normalises by LayerNorm alone"),
        ({**ALIASES, "num_key_value_heads": 2}, "num_key_value_heads=2, but in a GPT-2 of this size it is 4"),
        ({**ALIASES, "intermediate_size": 64}, "intermediate_size=64, but in a GPT-2 of this size it is 96"),
        ({**ALIASES, "rope_theta": 1e4}, "rope_theta=10000.0 is no setting of a GPT-2: .* a learned table"),
        (NANOGPT, "block_size=16 is no setting of a GPT-2: nanoGPT's name.*: write n_positions"),
        ({**SIZES, "bias": False}, "bias=False, but this package builds bias=True only"),
        ({**SIZES, "dropout": 0.0}, "dropout=0.0 is no setting of a GPT-2: .*write embd_pdrop, attn_pdrop"),
        ({**SIZES, "afn": "gelu"}, "afn='gelu' .* GPT-1"),
        ({**SIZES, "pruned_heads": {"0": [1]}}, "pruned_heads"),
    ],
)
@pytest.mark.parametrize("family", [{}, {"model_type": "gpt2"}], ids=["unnamed", "gpt2"])
def test_a_config_json_of_another_model_is_refused(as_a_user, read, content, message, family):
    with pytest.raises(ValueError, match=message):
        read({**family, **content} if isinstance(content, dict) else content)
