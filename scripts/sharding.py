"""What each of two processes holds of GPT-2 small in training, under three ways to share it, measured.

    torchrun --standalone --nproc-per-node 2 scripts/sharding.py

The trainer takes two steps with DDP, with DDP and PyTorch's ZeroRedundancyOptimizer, and with FSDP2, in float32 on the
CPU, one window of 64 tokens to a process. Exact bytes, and the losses, go into gptlab/assets/sharding.json; and of two
more steps with FSDP2 the fullest moment of the second one's forward and backward pass. It takes three minutes on two
CPU cores, and 6.3 GB.
"""

from __future__ import annotations

import argparse
import gc
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from gptlab.config import PRESETS
from gptlab.data import Tokens, encode_documents, shakespeare
from gptlab.distributed import SharedRun, joined, rank_bytes, trace_rank
from gptlab.files import replacing
from gptlab.memory.sharding import STRATEGIES
from gptlab.model import GPT
from gptlab.training import TrainingSettings, parameter_groups, train

FILE = Path(__file__).resolve().parents[1] / "gptlab/assets/sharding.json"
CONFIG = replace(PRESETS["gpt2"], embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)


def measure(strategy: str, tokens: Tokens, device: torch.device) -> dict[str, Any]:
    """Two steps, then what each rank holds, rank 0 first."""
    run = new_run("fsdp" if strategy == "fsdp" else "ddp", tokens, device)
    if strategy == "zero1":
        settings = run.settings
        groups = parameter_groups(run.model, settings.weight_decay)
        run.optimizer = ZeroRedundancyOptimizer(
            groups, torch.optim.AdamW, lr=settings.learning_rate, betas=settings.betas, fused=True
        )
    held = []
    run.optimizer.register_step_post_hook(lambda optimizer, *_: held.append(rank_bytes(run.model, optimizer)))
    rows = train(run)
    return {"bytes": from_all(asdict(held[-1])), "loss": [row.loss for row in rows]}


def measure_step(tokens: Tokens, device: torch.device) -> list[dict[str, Any]]:
    """The fullest moment of an FSDP2 step's forward and backward pass on each rank, rank 0 first."""
    peak = trace_rank(new_run("fsdp", tokens, device)).peak
    return from_all({"operation": peak.operation, "live": peak.live})


def new_run(strategy: str, tokens: Tokens, device: torch.device) -> SharedRun:
    batch_size = dist.get_world_size()
    settings = TrainingSettings(steps=2, batch_size=batch_size, context=64, learning_rate=1e-4, warmup=0)
    torch.manual_seed(settings.seed)
    return SharedRun(GPT(CONFIG), settings, tokens, strategy=strategy, device=device)


def from_all(value: dict[str, Any]) -> list[dict[str, Any]]:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, default=FILE, help="where the results go")
    options = parser.parse_args()
    tokens = encode_documents(shakespeare("validation"))
    found: dict[str, Any] = {
        "made by": "scripts/sharding.py",
        "config": asdict(CONFIG),
        "strategies": {},
    }
    with joined() as device:
        for strategy in STRATEGIES:
            found["strategies"][strategy] = measure(strategy, tokens, device)
            gc.collect()  # a model that DDP wraps is part of a cycle
            if dist.get_rank() == 0:
                print(strategy, found["strategies"][strategy], flush=True)
        found["fullest moment of a step with fsdp"] = measure_step(tokens, device)
        if dist.get_rank() == 0:
            with replacing(options.file) as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
