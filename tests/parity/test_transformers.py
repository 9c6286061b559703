"""The same weights give the same logits in Hugging Face's transformers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_model
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from gptlab import GPT, PRESETS, generate, get_tokenizer, load_checkpoint, save_checkpoint
from gptlab.config_file import config_json
from gptlab.generation import sample_probs
from gptlab.ledger import Ledger
from gptlab.tying import is_tied
from gptlab.unembedding import next_token_loss
from tests.conftest import TINY, make_model, random_ids

TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def assert_parity(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-5 of the largest logit."""
    assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def tiny_transformers_model(tied: bool) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=59, n_positions=16, n_embd=24, n_layer=3, n_head=4, tie_word_embeddings=tied)
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return theirs


@TIED
@torch.no_grad()
def test_we_read_what_transformers_saves(tmp_path, tied):
    theirs = tiny_transformers_model(tied)
    theirs.save_pretrained(tmp_path)
    ours = load_checkpoint(tmp_path)
    assert is_tied(ours) == tied
    ids = random_ids(2, 16)
    assert_parity(ours(ids), theirs(ids).logits)


@torch.no_grad()
def test_we_read_what_safetensors_keeps_of_a_tied_pair(tmp_path):
    theirs = tiny_transformers_model(tied=True)
    theirs.config.save_pretrained(tmp_path)
    save_model(theirs, str(tmp_path / "model.safetensors"))
    assert "transformer.wte.weight" not in load_file(tmp_path / "model.safetensors")
    ours = load_checkpoint(tmp_path)
    assert is_tied(ours)
    ids = random_ids(2, 16)
    assert_parity(ours(ids), theirs(ids).logits)


@TIED
@torch.no_grad()
def test_transformers_reads_what_we_save(tmp_path, tied):
    ours = make_model(replace(TINY, tie_word_embeddings=tied))
    save_checkpoint(ours, tmp_path)
    theirs, info = GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (theirs.lm_head.weight is theirs.transformer.wte.weight) == tied
    ids = random_ids(2, 16)
    assert_parity(ours(ids), theirs.eval()(ids).logits)


@TIED
def test_loss_and_gradients_agree(tmp_path, tied):
    theirs = tiny_transformers_model(tied)
    theirs.save_pretrained(tmp_path)
    ours, ids = load_checkpoint(tmp_path), random_ids(2, 16)
    loss, their_loss = next_token_loss(ours(ids), ids), theirs(ids, labels=ids).loss
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-5)
    loss.backward()
    their_loss.backward()
    assert_parity(ours.wte.weight.grad, theirs.transformer.wte.weight.grad)
    assert_parity(ours.wpe.weight.grad, theirs.transformer.wpe.weight.grad)
    assert_parity(ours.h[2].attn.c_attn.weight.grad.T, theirs.transformer.h[2].attn.c_attn.weight.grad)


def test_greedy_continuations_agree(tmp_path):
    theirs = tiny_transformers_model(tied=True)
    theirs.save_pretrained(tmp_path)
    ids = random_ids(2, 3)
    everything = torch.ones_like(ids)
    expected = theirs.generate(
        ids, attention_mask=everything, max_new_tokens=10, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert torch.equal(generate(load_checkpoint(tmp_path), ids, 10, temperature=0.0), expected)


@pytest.mark.parametrize("top_k", [None, 3, 500])
@pytest.mark.parametrize("top_p", [None, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_sampling_distribution_agrees(temperature, top_k, top_p):
    logits = 4 * torch.randn(3, 50257, generator=torch.Generator().manual_seed(0))
    logits[0] = torch.linspace(0, 1, 50257)
    logits[0, 0] = 18.0  # one likely token and very many very unlikely ones
    ids = torch.zeros(3, 1, dtype=torch.long)
    theirs = TemperatureLogitsWarper(temperature)(ids, logits)
    if top_k:
        theirs = TopKLogitsWarper(top_k)(ids, theirs)
    if top_p:
        theirs = TopPLogitsWarper(top_p)(ids, theirs)
    ours, expected = sample_probs(logits, temperature, top_k, top_p), theirs.softmax(-1)
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("key", ["architectures", "bos_token_id", "eos_token_id", "activation_function"])
def test_our_config_says_what_the_published_one_says(key):
    published = {**GPT2Config().to_dict(), "architectures": ["GPT2LMHeadModel"]}
    assert config_json(PRESETS["gpt2"])[key] == published[key]


def test_gpt1_has_the_count_that_the_book_derives_for_it():
    with torch.device("meta"):
        gpt1 = OpenAIGPTLMHeadModel(OpenAIGPTConfig())
    count = sum(parameter.numel() for parameter in gpt1.parameters())
    assert count == 116_534_784 == (40_478 + 512) * 768 + Ledger.from_config(PRESETS["gpt2"]).subtotal("h.")
    assert not any("ln_f" in name for name, _ in gpt1.named_parameters())
    page = (Path(__file__).parents[2] / "book" / "which-124m.ipynb").read_text("utf-8")
    assert f"= {count:,}" in page


@pytest.mark.slow
@torch.no_grad()
def test_one_full_size_forward_of_the_124m_model(tmp_path):
    torch.manual_seed(0)
    ours = GPT(PRESETS["gpt2"]).eval()
    for block in ours.h:  # fresh biases are 0, and would hide a mistake
        for linear in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj):
            linear.bias.normal_(std=0.02)
    save_checkpoint(ours, tmp_path)
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    text = "The course builds this model step by step, and here it is whole. " * 12
    ids = torch.tensor([get_tokenizer().encode(text)])
    assert_parity(ours(ids), theirs(ids).logits)
