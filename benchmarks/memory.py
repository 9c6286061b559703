"""The memory of a training step beside transformers', and what it costs to predict one.

    python -m benchmarks.memory

GPT-2 small, batch 4, context 1,024, float32, AdamW, no dropout. One instrument follows the second step of both sides on
fake tensors. transformers is called with ``labels=`` and its output is dropped at once.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from statistics import median

os.environ["HF_HUB_OFFLINE"] = "1"  # transformers reads this when it is imported

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gptlab import PRESETS
from gptlab.memory.forms import training_memory, without_dropout
from gptlab.memory.replay import replay
from gptlab.memory.step import TrainingStep
from gptlab.memory.timeline import Moment, Timeline
from gptlab.memory.trace import LiveBytes, trace_step

BATCH_SIZE, CONTEXT = 4, 1024
SMALL, XL = (without_dropout(PRESETS[name]) for name in ("gpt2", "gpt2-xl"))
LOSSES = {"full": 0.80, "chunked": 0.55, "fused": 0.55}  # the most that each may take of transformers' peak
PREDICTION, TRACE, TRACE_MEMORY = 10.0, 15.0, 500.0  # ms, s and MB


def transformers_peak() -> Moment:
    """The peak of transformers' step."""
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    config = GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="sdpa")
    live = LiveBytes()
    with FakeTensorMode(), live:
        model = GPT2LMHeadModel(config).train()
        ids = torch.zeros(BATCH_SIZE, CONTEXT, dtype=torch.long)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for _ in range(2):
            live.timeline = Timeline()
            live.phase = "forward"
            loss = model(ids, labels=ids).loss
            live.phase = "backward"
            loss.backward()
            del loss
            live.phase = "optimizer"
            optimizer.step()
            optimizer.zero_grad()
    return live.timeline.peak


def compare_peaks() -> None:
    theirs = transformers_peak()
    print(f"peak of a training step, B={BATCH_SIZE} T={CONTEXT}, traced on fake tensors")
    print(f"  transformers        {theirs.live:>15,} B, {theirs.phase}, {theirs.operation}")
    for loss, target in LOSSES.items():
        peak = trace_step(TrainingStep(SMALL, BATCH_SIZE, CONTEXT, loss=loss)).peak  # type: ignore[arg-type]
        ratio = peak.live / theirs.live
        verdict = "met" if ratio <= target else "MISSED"
        print(
            f"  gptlab, {loss + ' loss':<12}{peak.live:>15,} B, {peak.phase}, {peak.operation}; "
            f"ratio {ratio:.3f}, target {target:.2f} at most: {verdict}"
        )


def time_prediction() -> None:
    step = TrainingStep(XL, BATCH_SIZE, CONTEXT)
    times = []
    for _ in range(31):
        start = time.perf_counter()
        training_memory(XL, batch_size=BATCH_SIZE, context=CONTEXT)
        times.append(1000 * (time.perf_counter() - start))
    verdict = "met" if median(times) <= PREDICTION else "MISSED"
    print(
        f"predicting gpt2-xl: {median(times):.1f} ms, the median of 31 ({min(times):.1f} to {max(times):.1f}); "
        f"target {PREDICTION:.0f} ms: {verdict}"
    )
    command = [sys.executable, "-m", "benchmarks.memory", "--trace-xl"]
    seconds, megabytes, peak = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.split()
    met = float(seconds) <= TRACE and float(megabytes) <= TRACE_MEMORY
    print(
        f"tracing a gpt2-xl step on fake tensors: {seconds} s and {megabytes} MB, the process with PyTorch; "
        f"targets {TRACE:.0f} s and {TRACE_MEMORY:.0f} MB: {'met' if met else 'MISSED'}"
    )
    difference = int(peak) - replay(step).peak.live
    print(f"  peak {int(peak):,} B, {difference} B from the predicted one")


def trace_xl() -> None:
    """The other end: in a fresh process, so that its memory is its own."""
    start = time.perf_counter()
    peak = trace_step(TrainingStep(XL, BATCH_SIZE, CONTEXT)).peak.live
    seconds = time.perf_counter() - start
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{seconds:.1f} {kilobytes / 1000:.0f} {peak}")


if __name__ == "__main__":
    if "--trace-xl" in sys.argv:
        trace_xl()
    else:
        compare_peaks()
        time_prediction()
