import doctest
import json
import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, load_file, save_file
from torch import nn

from gptlab import GPT, PRESETS, checkpoint, from_pretrained, load_checkpoint, save_checkpoint
from gptlab.checkpoint import clean_names, inspect_checkpoint
from gptlab.tying import is_tied, untie
from tests.conftest import TINY, make_model, random_ids


def stored(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file that will be written again: load_file's may be maps of it (safetensors 0.5)."""
    return load(file.read_bytes())


def rewrite(directory: Path, change) -> None:
    """Change the tensors of a saved checkpoint: ``change`` maps a dict of tensors to another."""
    file = directory / "model.safetensors"
    save_file(change(stored(file)), file, metadata={"format": "pt"})


def same(a: GPT, b: GPT) -> bool:
    return a.config == b.config and all(
        n == m and p.dtype == q.dtype and torch.equal(p, q)
        for (n, p), (m, q) in zip(a.named_parameters(), b.named_parameters(), strict=True)
    )


def test_the_example_in_the_docstring():
    assert doctest.testmod(checkpoint).failed == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(
    tied=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    as_file=st.booleans(),
    n_layer=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_saving_and_loading_is_the_identity(tmp_path, tied, dtype, as_file, n_layer, seed):
    config = replace(TINY, n_layer=n_layer, tie_word_embeddings=tied, attn_pdrop=0.25)
    model = make_model(config, seed).to(dtype)
    path = tmp_path / f"{tied}-{dtype}-{n_layer}-{seed}" / ("weights.safetensors" if as_file else "")
    save_checkpoint(model, path)
    loaded = load_checkpoint(path)
    assert same(loaded, model)
    assert is_tied(loaded) == tied
    assert not loaded.training


PREFIXES = {
    "none": "",
    "transformer": "transformer.",
    "doubled": "transformer.transformer.",
    "compiled": "_orig_mod.transformer.",
    "parallel": "module._orig_mod.",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_ld3_prefixes_and_mask_buffers_of_old_files(tmp_path, model, prefix):
    save_checkpoint(model, tmp_path)

    def old_layout(tensors):
        buffers = {f"h.{i}.attn.bias": torch.ones(1, 1, 16, 16).tril() for i in range(3)}
        buffers |= {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(3)}
        return {prefix + name: tensor for name, tensor in (tensors | buffers).items()}

    rewrite(tmp_path, old_layout)
    assert same(load_checkpoint(tmp_path), model)


def test_ld3_any_other_name_is_an_error(tmp_path, model):
    save_checkpoint(model, tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | {"score.weight": torch.zeros(2, 24)})
    with pytest.raises(ValueError, match="'score.weight' is no parameter of GPT-2"):
        load_checkpoint(tmp_path)


@pytest.mark.slow
def test_ld4_a_tied_model_is_saved_without_its_head(tmp_path):
    torch.manual_seed(0)
    save_checkpoint(GPT(PRESETS["gpt2"]), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == 148
    assert "wte.weight" in tensors
    assert "lm_head.weight" not in tensors
    assert sum(tensor.nbytes for tensor in tensors.values()) == 497_759_232


@pytest.mark.parametrize("change", ["clone", "clone and change"])
def test_ld7_a_head_that_is_no_longer_tied_is_not_dropped(tmp_path, model, change):
    model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    if change == "clone and change":
        with torch.no_grad():
            model.lm_head.weight[3, 4] += 1
    with pytest.raises(ValueError, match="says tie_word_embeddings=True, but the head is"):
        save_checkpoint(model, tmp_path)
    assert not any(tmp_path.iterdir())
    untie(model)
    save_checkpoint(model, tmp_path)
    assert same(load_checkpoint(tmp_path), model)


def test_ld7_a_head_that_was_tied_by_hand_is_not_stored_as_untied(tmp_path):
    model = make_model(replace(TINY, tie_word_embeddings=False))
    model.lm_head.weight = model.wte.weight
    with pytest.raises(ValueError, match=r"the head is the token table: call gptlab.tying.tie\(model\)"):
        save_checkpoint(model, tmp_path)


def test_a_file_whose_head_contradicts_its_config_is_refused(tmp_path):
    save_checkpoint(make_model(replace(TINY, tie_word_embeddings=False)), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with pytest.raises(ValueError, match="tie_word_embeddings=False, its config.json says True"):
        load_checkpoint(tmp_path)
    rewrite(tmp_path, dict)  # as by a program that notes no config beside the tensors
    with pytest.raises(ValueError, match="lm_head.weight differs from wte.weight"):
        load_checkpoint(tmp_path)


def test_weights_and_config_of_two_models_are_not_mixed(tmp_path):
    save_checkpoint(make_model(), tmp_path / "a.safetensors")
    save_checkpoint(make_model(replace(TINY, n_head=6)), tmp_path / "b.safetensors")
    assert load_checkpoint(tmp_path / "b.safetensors").config.n_head == 6
    with pytest.raises(ValueError, match="a.safetensors was saved with n_head=4, its config.json says 6"):
        load_checkpoint(tmp_path / "a.safetensors")


def test_dropout_may_be_changed_in_the_config(tmp_path, model):
    save_checkpoint(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"attn_pdrop": 0.0}))
    assert load_checkpoint(tmp_path).config.attn_pdrop == 0.0


def test_a_compiled_model_is_saved_like_the_model_itself(tmp_path, model):
    save_checkpoint(torch.compile(model), tmp_path)
    assert same(load_checkpoint(tmp_path), model)


def test_what_could_not_be_loaded_is_not_saved(tmp_path, model, as_a_user):
    with pytest.raises(TypeError, match=r"not DataParallel: of a wrapper pass its model.module"):
        save_checkpoint(nn.DataParallel(model), tmp_path)
    with pytest.raises(TypeError, match="dtype=torch.int8 must be a floating-point type"):
        save_checkpoint(model, tmp_path, dtype=torch.int8)
    model.adapter = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"adapter.weight of shape \(2, 2\) does not fit the model's config"):
        save_checkpoint(model, tmp_path)
    del model.adapter
    model.wpe = nn.Embedding(20, 24)
    with pytest.raises(ValueError, match=r"wpe.weight of shape \(20, 24\) does not fit"):
        save_checkpoint(model, tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_file_is_marked_as_pytorchs_and_its_names_are_the_models(tmp_path):
    untied = make_model(replace(TINY, tie_word_embeddings=False))
    save_checkpoint(untied, tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as opened:
        assert opened.metadata()["format"] == "pt"
        assert set(opened.keys()) == {name for name, _ in untied.named_parameters()}


def test_another_programs_metadata_is_left_alone(tmp_path, model):
    save_checkpoint(model, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(stored(file), file, metadata={"format": "pt", "config": "not ours, and not JSON"})
    assert same(load_checkpoint(tmp_path), model)


def test_loading_does_not_depend_on_the_default_device(tmp_path, model):
    save_checkpoint(model, tmp_path)
    with torch.device("meta"):
        loaded = load_checkpoint(tmp_path)
    assert same(loaded, model)


def test_a_file_of_a_presets_sizes_needs_no_config(tmp_path, model, monkeypatch):
    monkeypatch.setattr(checkpoint, "PRESETS", {"wide": replace(TINY, n_embd=28), "tiny": TINY})
    save_checkpoint(model, tmp_path)
    (tmp_path / "config.json").unlink()
    assert same(load_checkpoint(tmp_path / "model.safetensors"), model)


def test_files_have_the_permissions_that_the_user_chose(tmp_path, model):
    before = os.umask(0o077)
    try:
        save_checkpoint(model, tmp_path)
    finally:
        os.umask(before)
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_tied_file_that_repeats_its_head_loads_tied(tmp_path, model):
    save_checkpoint(model, tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | {"lm_head.weight": tensors["wte.weight"].clone()})
    loaded = load_checkpoint(tmp_path)
    assert is_tied(loaded)
    assert same(loaded, model)


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("beside", [True, False], ids=["with config.json", "of a preset's sizes"])
def test_a_tied_file_that_holds_the_heads_name_alone_loads_tied(tmp_path, monkeypatch, model, prefix, beside):
    save_checkpoint(model, tmp_path)
    rewrite(
        tmp_path,
        lambda tensors: {
            prefix + ("lm_head.weight" if name == "wte.weight" else name): t for name, t in tensors.items()
        },
    )
    if not beside:
        monkeypatch.setattr(checkpoint, "PRESETS", {"tiny": TINY})
        (tmp_path / "config.json").unlink()
    loaded = load_checkpoint(tmp_path / "model.safetensors")
    assert is_tied(loaded)
    assert same(loaded, model)


def test_an_untied_file_needs_both_names(tmp_path):
    save_checkpoint(make_model(replace(TINY, tie_word_embeddings=False)), tmp_path)
    rewrite(tmp_path, lambda tensors: {name: t for name, t in tensors.items() if name != "wte.weight"})
    with pytest.raises(ValueError, match="'wte.weight' is missing"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("noted", ["[1]", "{", "3", "null", '"gpt2"'])
@pytest.mark.parametrize("read", [load_checkpoint, inspect_checkpoint])
def test_a_config_among_the_metadata_that_is_none_is_named(tmp_path, model, noted, read):
    save_checkpoint(model, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(stored(file), file, metadata={"gptlab_config": noted})
    with pytest.raises(ValueError, match=r"model.safetensors: the metadata gptlab_config (is not|must hold)"):
        read(tmp_path)


def test_ld12_types_change_only_when_asked(tmp_path, model):
    save_checkpoint(model, tmp_path)
    assert load_checkpoint(tmp_path).wte.weight.dtype == torch.float32
    loaded = load_checkpoint(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert is_tied(loaded)
    save_checkpoint(loaded, tmp_path)
    assert load_checkpoint(tmp_path).wte.weight.dtype == torch.bfloat16
    save_checkpoint(loaded, tmp_path, dtype=torch.float32)
    assert load_checkpoint(tmp_path).wte.weight.dtype == torch.float32
    assert loaded.wte.weight.dtype == torch.bfloat16  # saving changed the file, not the model


def test_ck1_prefixes_in_any_nesting():
    assert clean_names(["_orig_mod.module.h.0.w"]) == {"_orig_mod.module.h.0.w": "h.0.w"}
    assert clean_names(["module._orig_mod.h.0.w"]) == {"module._orig_mod.h.0.w": "h.0.w"}
    assert clean_names(["h.0._orig_mod.w"]) == {"h.0._orig_mod.w": "h.0.w"}


def test_ck1_the_name_of_a_real_submodule_survives():
    assert list(clean_names(["module.w", "h.0.w"]).values()) == ["module.w", "h.0.w"]
    assert list(clean_names(["h.0.module.w", "h.1.w"]).values()) == ["h.0.module.w", "h.1.w"]


def test_two_names_for_one_parameter_are_refused():
    with pytest.raises(
        ValueError, match="'wte.weight' and 'transformer.wte.weight' both stand for 'wte.weight'"
    ):
        clean_names(["wte.weight", "transformer.wte.weight"])


def test_linear_weights_are_stored_transposed(tmp_path, model):
    save_checkpoint(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["h.0.attn.c_attn.weight"].shape == (24, 72)
    assert torch.equal(
        tensors["h.0.attn.c_proj.weight"], model.h[0].attn.c_proj.weight.T
    )  # square: shape tells nothing
    assert torch.equal(tensors["wte.weight"], model.wte.weight)


def test_a_truncated_file_is_named(tmp_path, model):
    save_checkpoint(model, tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(
        ValueError, match=r"model.safetensors is not a complete safetensors file: .*download it again"
    ):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"\x80\x02}q\x00."])
def test_a_foreign_file_is_named(tmp_path, content):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete safetensors file"):
        load_checkpoint(file)


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path, model):
    save_checkpoint(model, tmp_path)
    whole = stored(tmp_path / "model.safetensors")
    rewrite(tmp_path, lambda tensors: {n: t for n, t in tensors.items() if n != "h.1.mlp.c_fc.bias"})
    with pytest.raises(ValueError, match="'h.1.mlp.c_fc.bias' is missing"):
        load_checkpoint(tmp_path)
    rewrite(tmp_path, lambda tensors: {n: t for n, t in whole.items() if n != "wte.weight"})
    with pytest.raises(ValueError, match=r"'wte.weight' is missing \(1 such names\)"):
        load_checkpoint(tmp_path)
    rewrite(tmp_path, lambda _: whole | {"wpe.weight": torch.zeros(17, 24)})
    with pytest.raises(ValueError, match=r"wpe.weight has shape \(17, 24\), the config asks for \(16, 24\)"):
        load_checkpoint(tmp_path)
    rewrite(tmp_path, lambda _: whole | {"ln_f.bias": torch.zeros(24, dtype=torch.int8)})
    with pytest.raises(ValueError, match="ln_f.bias is torch.int8, weights must be floating point"):
        load_checkpoint(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="model.safetensors does not exist"):
        load_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileNotFoundError, match="has pytorch_model.bin but no model.safetensors"):
        load_checkpoint(tmp_path)


def test_a_file_without_config_must_have_the_sizes_of_a_preset(tmp_path, model):
    save_checkpoint(model, tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="there is no config.json beside"):
        load_checkpoint(tmp_path / "model.safetensors")


def test_a_loaded_model_does_not_depend_on_the_file_any_more(tmp_path, model):
    save_checkpoint(model, tmp_path)
    loaded = load_checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as opened:  # the same file, other bytes
        opened.write(b"\xff" * size)
    assert same(loaded, model)


def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path, model, monkeypatch):
    save_checkpoint(model, tmp_path)
    other = make_model(seed=5)

    def full_disk(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(other, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert same(load_checkpoint(tmp_path), model)


def test_saving_does_not_change_the_model(tmp_path, model):
    before = deepcopy(model)
    save_checkpoint(model, tmp_path, dtype=torch.bfloat16)
    assert same(model, before)


def test_from_pretrained_takes_a_path(tmp_path, model):
    save_checkpoint(model, tmp_path)
    assert same(from_pretrained(tmp_path), model)


def test_from_pretrained_names_what_it_knows():
    with pytest.raises(
        ValueError,
        match="'gpt3' is none of shakespeare, gpt2, gpt2-medium, gpt2-large, gpt2-xl, and no path that exists",
    ):
        from_pretrained("gpt3")


def test_from_pretrained_says_offline_what_to_do(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConnectionError, match=r"hf download openai-community/gpt2 .*--local-dir gpt2"):
        from_pretrained("gpt2")


def test_from_pretrained_asks_for_a_fixed_commit(monkeypatch, tmp_path, model):
    asked = []

    def fake_download(repository, file, revision):
        asked.append((repository, file, revision))
        return str(tmp_path / file)

    save_checkpoint(model, tmp_path)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fake_download)
    assert same(from_pretrained("gpt2-xl"), model)
    revision = "15ea56dee5df4983c59b2538573817e1667135e2"
    assert asked == [("openai-community/gpt2-xl", f, revision) for f in ("config.json", "model.safetensors")]


def test_a_name_means_the_published_weights_even_beside_a_folder_of_that_name(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    save_checkpoint(model, "gpt2")
    monkeypatch.setattr(checkpoint, "download", lambda name: tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        from_pretrained("gpt2")
    assert same(from_pretrained("./gpt2"), model)


def test_every_published_size_has_a_fixed_commit():
    assert checkpoint.HUB.keys() == PRESETS.keys()
    assert all(len(commit) == 40 and int(commit, 16) for _, commit in checkpoint.HUB.values())


def test_no_pickle_is_read():
    source = Path(checkpoint.__file__).read_text()
    assert "torch.load" not in source
    assert "import pickle" not in source


def test_a_loaded_model_computes_the_same(tmp_path, model):
    save_checkpoint(model, tmp_path)
    ids = random_ids(2, 9)
    assert torch.equal(load_checkpoint(tmp_path)(ids), model(ids))


@pytest.mark.skipif(os.name != "posix", reason="file size limits are POSIX")
def test_a_full_disk_is_an_os_error_and_leaves_the_old_file(tmp_path):
    import resource
    import signal

    save_checkpoint(make_model(), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    ignored = signal.signal(
        signal.SIGXFSZ, signal.SIG_IGN
    )  # a write beyond the limit is an error, not the end
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(OSError, match=r"model\.safetensors could not be written"):
            save_checkpoint(make_model(seed=1), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("dtype", [torch.int8, "float32"])
def test_a_type_that_no_weight_has_is_the_callers_error_and_not_the_files(as_a_user, tmp_path, dtype):
    save_checkpoint(make_model(), tmp_path)
    with pytest.raises(TypeError, match=f"dtype={dtype!r} must be a floating-point type"):
        load_checkpoint(tmp_path, dtype=dtype)
    with pytest.raises(TypeError, match=f"dtype={dtype!r} must be a floating-point type"):
        save_checkpoint(make_model(), tmp_path, dtype=dtype)


def test_a_published_name_where_a_path_belongs_is_told_apart_from_a_missing_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gpt2 does not exist: .*from_pretrained\('gpt2'\)"):
        load_checkpoint("gpt2")
