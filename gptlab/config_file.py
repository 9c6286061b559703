"""``config.json``: read as what it is, a GPT-2 or another model, and written as transformers reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any

from gptlab.config import GPTConfig

# A file must give these: one that does not is cut short, or another program's.
_SIZES = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")

# Other names for them, which transformers reads in every family of models (GPT2Config.attribute_map).
_ALIASES = {
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}

# Settings that would make it another model than the one built here, each with the only value that it may have.
_FIXED: Mapping[str, object] = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
_FIXED_ELSEWHERE: Mapping[str, object] = {
    "hidden_act": "gelu_new",
    "bias": True,  # nanoGPT: of all linear layers and LayerNorms
    "attention_bias": True,
    "mlp_bias": True,
    "use_bias": True,
    "qkv_bias": True,
    "attention_head_type": "multihead",
    "position_embedding_type": "absolute",
    "normalization_type": "layer_norm",
    "do_layer_norm_before": True,
}

# Settings of other programs and families that change what is computed, and why they are not read.
_FOREIGN: Mapping[str, str] = {
    key: why
    for keys, why in (
        (
            "block_size",
            "nanoGPT's name, whose GELU is not GPT-2's tanh form: write n_positions if yours is GPT-2's",
        ),
        ("afn", "GPT-1's name, whose LayerNorms stand elsewhere"),
        ("layer_norm_eps", "GPT-2's name is layer_norm_epsilon"),
        ("n_embed d_model num_layers n_layers num_heads n_heads", "GPT-2 has another name for it"),
        ("auto_map", "the model is built by code of its own"),
        ("pruned_heads", "every block has all its heads here"),
        ("is_encoder_decoder type_vocab_size", "GPT-2 is a decoder, with one kind of token"),
        (
            "dropout hidden_dropout hidden_dropout_prob attention_dropout attention_probs_dropout_prob",
            "dropout has three rates here: write embd_pdrop, attn_pdrop and resid_pdrop",
        ),
        (
            "rope_theta rope_scaling rope_parameters rotary rotary_dim rotary_pct rotary_emb_base "
            "partial_rotary_factor alibi",
            "GPT-2's positions are a learned table",
        ),
        (
            "rms_norm_eps rms_norm norm_type qk_norm use_qk_norm use_rmsnorm",
            "GPT-2 normalises by LayerNorm alone",
        ),
        (
            "num_kv_heads multi_query multi_query_group_num sliding_window window_size attention_types "
            "attention_layers layer_types attn_logit_softcapping final_logit_softcapping parallel_attn "
            "use_parallel_residual new_decoder_architecture",
            "in GPT-2 each head has keys of its own and sees the whole past, and attention comes before the MLP",
        ),
        (
            "num_experts num_local_experts n_routed_experts num_experts_per_tok moe_intermediate_size",
            "GPT-2 has one MLP in a block",
        ),
    )
    for key in keys.split()
}

# Settings that change no number of the model: of transformers, and of generating text with it.
_HARMLESS = re.compile(
    r"_name_or_path|architectures|(torch_)?dtype|transformers_version|use_cache|return_dict(_in_generate)?|n_ctx|"
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|output_\w+|summary_\w+|"
    r"\w+_token_id|chunk_size_feed_forward|reorder_and_upcast_attn|gradient_checkpointing|torchscript|"
    r"_?attn_implementation\w*|use_bfloat16|is_decoder"
)


def read_config(path: str | PathLike[str]) -> GPTConfig:
    """Read a ``config.json`` in Hugging Face's layout, with its names for the sizes or those of every family.

    The five sizes must be there; the rest is GPT-2's unless given. A setting that would make it another model is an
    error. So is an unknown one, unless the file says ``"model_type": "gpt2"``: then it is ignored, as by transformers.

    Raises:
        ValueError: the file is not a JSON object, or describes a model that is not a GPT-2, or leaves out a size.
    """
    found = json_object(Path(path).read_bytes(), path)
    _check_family(found, path)
    values: dict[str, Any] = {}
    for key, value in found.items():
        name = _ALIASES.get(key, key)
        if name in values and values[name] != value:
            other = next(k for k in found if k != key and _ALIASES.get(k, k) == name)
            raise ValueError(
                f"{path}: {other}={found[other]!r} and {key}={value!r} name the same size: keep one"
            )
        values[name] = value
    if missing := [name for name in _SIZES if name not in values]:
        raise ValueError(f"{path}: {', '.join(missing)} must be given: no size is assumed")
    try:
        config = GPTConfig(
            **{field.name: values[field.name] for field in fields(GPTConfig) if field.name in values}
        )
    except (TypeError, ValueError) as err:
        raise ValueError(f"{path}: {err}") from err
    _check_shapes(found, config, path)
    return config


def json_object(text: bytes | str, source: object) -> dict[str, Any]:
    """The JSON object in a text; ``source`` is named where it is none.

    Raises:
        ValueError: it is no JSON, or not an object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ValueError(f"{source} is not valid JSON: {err}") from err
    if not isinstance(found, dict):
        raise ValueError(f"{source} must hold a JSON object, not a {type(found).__name__}")
    return found


def _check_family(found: Mapping[str, Any], path: object) -> None:
    """Raise where a setting would make it another model than GPT-2, whichever program the file is from."""
    fixed = {**_FIXED, **_FIXED_ELSEWHERE}
    known = {
        *fixed,
        *_FOREIGN,
        *_ALIASES,
        *_shapes(GPTConfig()),
        *(field.name for field in fields(GPTConfig)),
    }
    for key, value in found.items():
        if key in fixed and value != fixed[key]:
            raise ValueError(f"{path}: {key}={value!r}, but this package builds {key}={fixed[key]!r} only")
        if key in _FOREIGN and value is not False and value not in (None, [], {}):  # else it is switched off
            raise ValueError(f"{path}: {key}={value!r} is no setting of a GPT-2: {_FOREIGN[key]}")
    names = found.get("architectures")
    if isinstance(names, list) and not all(str(name).startswith("GPT2") for name in names):
        raise ValueError(f"{path}: architectures={names!r}, but this package builds GPT-2 only")
    for key, value in found.items():
        if "model_type" not in found and key not in known and not _HARMLESS.fullmatch(key):
            raise ValueError(
                f"{path}: {key}={value!r} is no setting of a GPT-2: leave it out if it changes nothing, or add "
                f'"model_type": "gpt2", as transformers writes it'
            )


def _shapes(config: GPTConfig) -> dict[str, int]:
    """Sizes that other families choose and that follow in GPT-2 from the rest; the first is GPT-2's own name."""
    mlp = dict.fromkeys(
        ("n_inner", "intermediate_size", "ffn_dim", "ffn_hidden_size", "d_ff", "dff"), 4 * config.n_embd
    )
    return {**mlp, "num_key_value_heads": config.n_head, "head_dim": config.head_dim}


def _check_shapes(found: Mapping[str, Any], config: GPTConfig, path: object) -> None:
    for key, value in _shapes(config).items():
        if found.get(key) not in (None, value):
            raise ValueError(f"{path}: {key}={found[key]!r}, but in a GPT-2 of this size it is {value}")


def config_json(config: GPTConfig) -> dict[str, Any]:
    """The content of a ``config.json`` that transformers reads as the same model."""
    end_of_text = config.vocab_size - 1  # GPT-2's only special token is its last one, 50256
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_FIXED,
        **asdict(config),
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
    }
