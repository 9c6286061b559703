"""What must hold on every device. The CPU's turn runs everywhere, so that a test cannot rot; CUDA's is marked `gpu`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

import gptlab
from gptlab import GPT, generate, load_checkpoint, save_checkpoint
from gptlab.attention import attend, attend_sdpa
from gptlab.cache import KVCache
from gptlab.training import Run, read_log, resume, train
from gptlab.unembedding import chunked_token_loss, token_loss
from tests.conftest import TINY, make_model, random_ids
from tests.distributed_process import CONFIG, SETTINGS, TOKENS, VALIDATION

EVERY_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
LOSSES = {"rel": 1e-3}  # of a few steps of training: rounding grows with each


@pytest.mark.gpu
def test_cuda_is_the_device_that_is_chosen():
    assert gptlab.device() == torch.device("cuda")


@EVERY_DEVICE
@torch.no_grad()
def test_the_logits_are_those_of_the_cpu(device):
    ids = random_ids(2, 16)
    expected = make_model()(ids)
    torch.testing.assert_close(make_model().to(device)(ids.to(device)).cpu(), expected, **CLOSE)


@EVERY_DEVICE
def test_the_fast_attention_is_the_readable_one_gradients_included(device):
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = torch.randn(4, 2, 4, 16, 8, generator=generator).to(device)
    results = []
    for function in (attend, attend_sdpa):
        inputs = [each.clone().requires_grad_() for each in (q, k, v)]
        out = function(*inputs)
        results.append([out, *torch.autograd.grad(out, inputs, g)])
    torch.testing.assert_close(results[1], results[0], **CLOSE)


@EVERY_DEVICE
@torch.no_grad()
def test_a_cache_gives_the_logits_that_reading_everything_again_gives(device):
    model, ids = make_model().to(device), random_ids(2, 12).to(device)
    cache = KVCache(TINY, 2, device=device)
    pieces = torch.cat([model(ids[:, :7], cache), model(ids[:, 7:8], cache), model(ids[:, 8:], cache)], dim=1)
    torch.testing.assert_close(pieces, model(ids), **CLOSE)


@EVERY_DEVICE
def test_a_seed_on_the_cpu_draws_the_same_tokens(device):
    model, ids = make_model(), random_ids(1, 4)
    expected = generate(model, ids, 20, top_k=10, generator=torch.Generator().manual_seed(5))
    found = generate(
        model.to(device), ids.to(device), 20, top_k=10, generator=torch.Generator().manual_seed(5)
    )
    assert found.cpu().tolist() == expected.tolist()


@EVERY_DEVICE
@torch.no_grad()
def test_the_loss_in_pieces_is_the_whole_loss(device):
    model, ids, targets = make_model().to(device), random_ids(2, 16).to(device), random_ids(2, 16, seed=2)
    targets[0, :3] = -100
    targets = targets.to(device)
    hidden = model.hidden(ids)
    torch.testing.assert_close(
        chunked_token_loss(hidden, model.lm_head.weight.T, targets), token_loss(model(ids), targets), **CLOSE
    )


@EVERY_DEVICE
def test_a_checkpoint_holds_the_same_bits_wherever_the_model_was(device, tmp_path):
    save_checkpoint(make_model().to(device), tmp_path)
    expected = make_model().state_dict()
    for name, tensor in load_checkpoint(tmp_path).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@EVERY_DEVICE
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("amp", 3e-2)])
def test_training_has_the_losses_of_the_cpu_in_float32(device, precision, tolerance):
    settings = replace(SETTINGS, steps=4)
    expected = train(run_on("cpu", settings))
    found = train(run_on(device, replace(settings, precision=precision)))
    assert [row.loss for row in found] == pytest.approx([row.loss for row in expected], rel=tolerance)


@EVERY_DEVICE
def test_a_resumed_run_draws_the_dropout_that_the_unbroken_one_would_have_drawn(device, tmp_path):
    config = replace(CONFIG, embd_pdrop=0.3, resid_pdrop=0.3)
    settings = replace(SETTINGS, steps=5)
    unbroken = train(run_on(device, settings, config))
    train(run_on(device, settings, config), tmp_path, after_step=lambda row: row.step == 2)
    torch.manual_seed(99)  # what the resumed run must not use
    train(resume(tmp_path, TOKENS, VALIDATION, device), tmp_path)
    losses = [[row.loss for row in rows] for rows in (read_log(tmp_path), unbroken)]
    assert losses[0] == pytest.approx(losses[1], **LOSSES)


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_process_under_torchrun_has_the_losses_of_the_plain_run(strategy, tmp_path):
    """The least that starts NCCL. What several GPUs do is not tested; two CPUs are, in test_distributed.py."""
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 60, encoding="utf-8")
    sizes = "--n-layer 1 --n-head 2 --n-embd 16 --context 16 --batch-size 4 --steps 4 --warmup 1 --dropout 0"
    options = ["train", "--text", str(text), *sizes.split()]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    starts = {
        "alone": ["-m", "gptlab", *options],
        strategy: [*torchrun, "-m", "gptlab", *options, "--strategy", strategy],
    }
    losses = {}
    for name, start in starts.items():
        done = subprocess.run(
            [sys.executable, *start, "--out", str(tmp_path / name)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        losses[name] = [asdict(row)["loss"] for row in read_log(tmp_path / name)]
    assert len(losses["alone"]) == 4
    assert losses[strategy] == pytest.approx(losses["alone"], **LOSSES)


def run_on(device, settings, config=CONFIG) -> Run:
    """A run that begins with the same weights on every device: they are drawn on the CPU."""
    torch.manual_seed(0)
    return Run(GPT(config).to(device), settings, TOKENS, VALIDATION)
