"""A small training run as a process of its own, to be killed: python -m tests.training_process FOLDER [HOW]

It begins a run in FOLDER, or goes on with the one that is there. HOW is ``fsync:N``, to die by SIGKILL in the N-th
fsync, which is in the middle of a save; ``write:BYTES``, to allow no file above that size, like a full disk; or nothing.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gptlab import GPT, PRESETS
from gptlab.training import STATE, Run, TrainingSettings, resume, train

TOKENS = np.random.default_rng(0).integers(0, 59, 400).astype(np.uint16)
CONFIG = replace(PRESETS["gpt2"], vocab_size=59, n_positions=16, n_embd=24, n_layer=3, n_head=4)
SETTINGS = TrainingSettings(steps=60, batch_size=4, context=16, warmup=5, save_every=3, evaluate_every=7)


def run_in(folder: Path) -> None:
    torch.set_num_threads(1)
    if (folder / STATE).exists():
        run = resume(folder, TOKENS, TOKENS[:50])
    else:
        torch.manual_seed(0)
        run = Run(GPT(CONFIG), SETTINGS, TOKENS, TOKENS[:50])
    print(f"from step {run.step}", flush=True)
    train(run, folder, after_step=lambda row: print(row.step, flush=True))


def die_in_fsync(n: int) -> None:
    real, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == n:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = fsync


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    if how.startswith("fsync:"):
        die_in_fsync(int(how.removeprefix("fsync:")))
    if how.startswith("write:"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is an error, not the end
        limit = int(how.removeprefix("write:"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    run_in(folder)


if __name__ == "__main__":
    main()
