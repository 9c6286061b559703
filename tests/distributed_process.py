"""Runs in two processes, for tests/test_distributed.py: torchrun ... -m tests.distributed_process JOB FOLDER STRATEGY"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from gptlab import GPT, PRESETS
from gptlab.distributed import SharedRun, joined, rank_bytes, trace_rank
from gptlab.training import LogRow, TrainingSettings, parameter_groups, resume, train

# 59 rows do not go into two equal parts; nine held-out windows are a batch of eight, and one.
TOKENS = np.random.default_rng(0).integers(0, 59, 400).astype(np.uint16)
VALIDATION = TOKENS[:150]
CONFIG = replace(
    PRESETS["gpt2"],
    vocab_size=59,
    n_positions=16,
    n_embd=24,
    n_layer=3,
    n_head=4,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
)
# Five rows in pieces of two leave the last of four ranks without any.
SMALL = replace(CONFIG, vocab_size=5, n_positions=5, n_embd=6, n_layer=2, n_head=2)
ODD = {"tied": SMALL, "untied": replace(SMALL, tie_word_embeddings=False, n_positions=3, n_layer=1)}
DROPOUT = replace(CONFIG, embd_pdrop=0.1, resid_pdrop=0.1)
SETTINGS = TrainingSettings(
    steps=20, batch_size=8, context=16, micro_batches=2, warmup=3, save_every=7, evaluate_every=5
)
STOP_AT = 9
FEW = 5


def make_model(config=CONFIG) -> GPT:
    torch.manual_seed(0)
    return GPT(config)


def stop(row: LogRow, at: int = STOP_AT) -> str | None:
    return "stop" if row.step == at else None


def batch_with_ignored(pattern: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight windows; in two parts on two ranks, each has two."""
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randint(59, (2, 8, 16), generator=generator)
    rows = {
        "uneven": [0, 1, 2],
        "a whole part": [2, 3],
        "a whole rank": [4, 5, 6, 7],
        "all but one": [*range(7)],
    }
    y[rows[pattern]] = -100
    y[7, :5] = -100
    return x, y


PATTERNS = ("uneven", "a whole part", "a whole rank", "all but one")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def train_and_measure(folder: Path, strategy: str, shared) -> None:
    """All that needs two ranks and no failure, in one launch: what comes out lies in the folder."""
    rank, found = dist.get_rank(), {}
    run = shared(make_model(), SETTINGS, TOKENS, VALIDATION)
    bytes_held = []
    run.optimizer.register_step_post_hook(
        lambda optimizer, *_: bytes_held.append(rank_bytes(run.model, optimizer))
    )
    found["rows"] = [asdict(row) for row in train(run, folder / "unbroken")]
    found["bytes"] = [asdict(held) for held in bytes_held]

    stopped = shared(make_model(), SETTINGS, TOKENS, VALIDATION)
    train(stopped, folder / "stopped", after_step=stop if rank == 0 else lambda row: None)
    found["stopped at"] = stopped.step
    dist.barrier()
    for name in ("stopped", "alone"):  # the second was saved by one process
        again = resume(folder / name, TOKENS, VALIDATION, make_run=shared)
        found[f"after {name}"] = [asdict(row) for row in train(again)]
        found[f"bytes after {name}"] = asdict(rank_bytes(again.model, again.optimizer))

    few = replace(SETTINGS, steps=FEW)
    found["dropout"] = [row.loss for row in train(shared(make_model(DROPOUT), few, TOKENS))]
    train(shared(make_model(DROPOUT), few, TOKENS), folder / "dropout", after_step=partial(stop, at=3))
    dist.barrier()
    torch.manual_seed(12345)  # other randomness in between
    again = resume(folder / "dropout", TOKENS, make_run=shared)
    found["dropout, resumed"] = [row.loss for row in train(again)]
    found["drawn next"] = torch.rand(3).tolist()

    untied = shared(make_model(replace(CONFIG, tie_word_embeddings=False)), few, TOKENS)
    found["untied"] = [row.loss for row in train(untied, folder / "untied")]

    if strategy == "fsdp":
        found["step"] = trace_rank(shared(make_model(), replace(SETTINGS, micro_batches=1), TOKENS)).moments

    learner, before_parts = shared(make_model(), SETTINGS, TOKENS), []
    learner.loss_model.register_forward_pre_hook(
        lambda *_: before_parts.append(rank_bytes(learner.model, learner.optimizer).gradients), prepend=True
    )
    learner.backward(*learner.batches.next())
    found["gradients before each part"] = before_parts

    gradients = {}
    for pattern in PATTERNS:
        learner = shared(make_model(), SETTINGS, TOKENS)
        loss = learner.backward(*batch_with_ignored(pattern))
        gradients[pattern] = {name: whole(p.grad) for name, p in learner.model.named_parameters()}
        gradients[pattern]["loss"] = loss
    if rank == 0:
        torch.save(gradients, folder / "gradients.pt")
    (folder / f"{strategy}-{rank}.json").write_text(json.dumps(found), "utf-8")


def hold(folder: Path, device: torch.device) -> None:
    """What this rank holds after a step of several models in three ways; no size is a multiple of the ranks'."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns when it is imported

    settings, held = TrainingSettings(steps=1, batch_size=dist.get_world_size(), context=3, warmup=0), {}
    for name, config in ODD.items():
        for strategy in ("ddp", "zero1", "fsdp"):
            whole_or_split = "fsdp" if strategy == "fsdp" else "ddp"
            run = SharedRun(make_model(config), settings, TOKENS % 5, strategy=whole_or_split, device=device)
            if strategy == "zero1":
                groups = parameter_groups(run.model, settings.weight_decay)
                run.optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=1e-3)
            run.backward(*run.batches.next())
            run.optimizer.step()
            held[f"{name} {strategy}"] = asdict(rank_bytes(run.model, run.optimizer))
            if strategy == "fsdp":
                fresh = SharedRun(make_model(config), settings, TOKENS % 5, strategy="fsdp", device=device)
                held[f"{name} step"] = trace_rank(fresh).moments
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(held), "utf-8")


def fail(how: str, folder: Path, shared) -> None:
    """Something goes wrong in step 3."""

    def trouble(row: LogRow) -> None:
        if row.step == 3 and dist.get_rank() == 1:
            if how == "raises":
                raise ValueError("the dog ate rank 1's batch")
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hangs":
                time.sleep(3600)

    run = shared(make_model(), SETTINGS, TOKENS)
    if how == "diverges":
        with torch.no_grad():
            run.model.ln_f.weight.fill_(torch.nan)
    train(run, folder / "failed", after_step=trouble)


def main() -> None:
    torch.set_num_threads(1)
    job, folder, strategy = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    with joined(timeout=20 if job == "hangs" else 120) as device:
        shared = partial(SharedRun, strategy=strategy, device=device)
        if job == "train":
            train_and_measure(folder, strategy, shared)
        elif job == "hold":
            hold(folder, device)
        else:
            fail(job, folder, shared)


if __name__ == "__main__":
    main()
