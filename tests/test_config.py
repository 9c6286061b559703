from dataclasses import FrozenInstanceError

import pytest

from gptlab.config import PRESETS, GPTConfig


def test_the_defaults_are_gpt2_small():
    assert GPTConfig() == PRESETS["gpt2"]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2", (12, 768, 12)),
        ("gpt2-medium", (24, 1024, 16)),
        ("gpt2-large", (36, 1280, 20)),
        ("gpt2-xl", (48, 1600, 25)),
    ],
)
def test_presets_have_the_published_sizes(name, sizes):
    config = PRESETS[name]
    assert (config.n_layer, config.n_embd, config.n_head) == sizes
    assert config.head_dim == 64
    assert config.embd_pdrop == config.attn_pdrop == config.resid_pdrop == 0.1


def test_a_config_and_the_presets_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        GPTConfig().n_layer = 3
    with pytest.raises(TypeError):
        PRESETS["gpt2"] = GPTConfig()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_layer": 0}, ValueError, "n_layer=0 must be at least 1"),
        ({"n_embd": 768.0}, TypeError, "n_embd=768.0 must be an integer"),
        ({"n_head": True}, TypeError, "n_head=True must be an integer"),
        ({"n_embd": 770}, ValueError, "n_embd=770 must be divisible by n_head=12"),
        ({"embd_pdrop": 1.0}, ValueError, "embd_pdrop=1.0 must be at least 0 and below 1"),
        ({"attn_pdrop": "0.1"}, TypeError, "attn_pdrop='0.1' must be a number"),
        ({"resid_pdrop": float("nan")}, ValueError, "resid_pdrop=nan"),
        ({"layer_norm_epsilon": 0.0}, ValueError, "layer_norm_epsilon=0.0 must be positive"),
        (
            {"initializer_range": float("inf")},
            ValueError,
            "initializer_range=inf must be positive and finite",
        ),
        ({"tie_word_embeddings": 1}, TypeError, "tie_word_embeddings=1 must be True or False"),
    ],
)
def test_a_bad_value_is_named_with_its_remedy(as_a_user, change, error, message):
    with pytest.raises(error, match=message):
        GPTConfig(**change)
