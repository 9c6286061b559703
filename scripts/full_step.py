"""The peak of real full-size training steps, read from PyTorch's allocator and stored for chapter 9.

    python scripts/full_step.py          about five minutes on two cores, and 9 GB of memory

GPT-2 small, batch 4, context 1,024, no dropout, on the CPU. Each step runs twice, so that AdamW has its state; the
second run counts. What is stored is what the allocator handed out, beside what the replay predicted.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch

from gptlab import PRESETS
from gptlab.memory.forms import without_dropout
from gptlab.memory.measure import allocator_peaks
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep

FILE = Path(__file__).parents[1] / "gptlab" / "assets" / "full-step.json"
BATCH_SIZE, CONTEXT = 4, 1024
SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "explicit attention": {"attention": "explicit"},
    "each block checkpointed": {"checkpointing": True},
    "chunked loss": {"loss": "chunked"},
    "both": {"checkpointing": True, "loss": "chunked"},
    "fused loss": {"loss": "fused"},
    "two micro-batches": {"micro_batches": 2},
}


def main() -> None:
    rows = []
    for name, how in SWITCHES.items():
        step = TrainingStep(without_dropout(PRESETS["gpt2"]), BATCH_SIZE, CONTEXT, **how)
        peaks, predicted = allocator_peaks(step), replay(step)
        measured = max(peaks.values())
        rows.append({"name": name, "how": how, "predicted": predicted.peak.live, "measured": measured})
        print(
            f"{name:26}{predicted.peak.live:>16,}{measured:>16,}{measured - predicted.peak.live:>8,}",
            flush=True,
        )
    content = {
        "made by": "scripts/full_step.py",
        "what": f"GPT-2 small, batch {BATCH_SIZE}, context {CONTEXT}, float32, AdamW (fused), no dropout",
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "steps": rows,
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
