"""GPT-2 small in fp32 on two threads: time and memory, side by side with transformers' GPT2LMHeadModel.

    python -m benchmarks.compare [--quick] [--json FILE]

Both sides hold the same random weights and must agree (logits, loss, tokens) before anything is timed. A
missed target is printed and no more: only a disagreement gives an exit status other than 0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median

os.environ["HF_HUB_OFFLINE"] = "1"  # transformers reads this when it is imported

import torch
from torch import Tensor

from gptlab.attention import CausalSelfAttention
from gptlab.checkpoint import SHIPPED, load_checkpoint, save_checkpoint
from gptlab.config import PRESETS, GPTConfig
from gptlab.config_file import read_config
from gptlab.flops import forward_flops
from gptlab.generation import generate
from gptlab.model import GPT
from gptlab.quantization import quantize
from gptlab.training import training_loss
from gptlab.unembedding import token_loss

THREADS = 2
SEED = 0
LEARNING_RATE = 1e-4
FORWARD_TOKENS, STEP_TOKENS = 1024, 512
PROMPT_TOKENS, NEW_TOKENS = 32, 64
TOLERANCE = 1e-5  # of the largest logit, and of the loss

CONFIG = PRESETS["gpt2"]  # with its dropout of 0.1, which acts in training steps only
SMALL = read_config(SHIPPED["shakespeare"] / "config.json")
SMALL_BATCH, SMALL_ROUNDS = 8, 9


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    rounds: int
    target: float  # the least ratio theirs / ours; 0 where it is only reported


CASES = [
    Case("forward", f"forward, B=1 T={FORWARD_TOKENS}, no gradients", 7, 1.0),
    Case("step", f"training step, B=1 T={STEP_TOKENS}, fused AdamW", 21, 1.25),
    Case("plain step", "the same without dropout", 21, 1.25),
    Case("decode", f"greedy decoding, {PROMPT_TOKENS} + {NEW_TOKENS} tokens, KV cache", 9, 1.05),
    Case("decode bf16", "the same in bfloat16, theirs in float32", 9, 1.9),
    Case("decode int8", "the same in int8, theirs in float32", 5, 0.0),
]

CONVERTED = {"decode bf16": 1 / 2, "decode int8": 1 / 4}  # gptlab's bytes for each of float32's, scales aside


class Ours:
    """gptlab, called as the course calls it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.model: torch.nn.Module = load_checkpoint(checkpoint)

    def convert(self, case: str) -> None:
        """Take up the weights in the type that the case asks for."""
        if case == "decode bf16":
            self.model = load_checkpoint(self.checkpoint, dtype=torch.bfloat16)
        if case == "decode int8":
            self.model = quantize(load_checkpoint(self.checkpoint))

    def start_training(self) -> None:
        """Training starts from a GPT(config), whose weights lie in memory as PyTorch makes them."""
        state = load_checkpoint(self.checkpoint).state_dict()
        self.model = GPT(CONFIG)
        self.model.load_state_dict(state)

    def forward(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model(ids)

    def loss(self, ids: Tensor) -> Tensor:
        # The last token has no next one; -100 leaves it out, as transformers does.
        targets = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-100)
        assert isinstance(self.model, GPT)
        return training_loss(self.model, ids, targets, "fp32")  # as gptlab.training does

    def decode(self, prompt: Tensor) -> Tensor:
        assert isinstance(self.model, GPT)
        return generate(self.model, prompt, NEW_TOKENS, temperature=0.0)


class Theirs:
    """transformers with SDPA attention, called as its documentation does."""

    def __init__(self, checkpoint: Path) -> None:
        # Imported here, so that the process that measures our memory does not hold it.
        from transformers import GPT2LMHeadModel, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model = GPT2LMHeadModel.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        # Every run makes all the tokens, also if the end of text is among them.
        self.model.generation_config.eos_token_id = None

    def forward(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model(ids, use_cache=False).logits  # without it, it would also fill a cache

    def loss(self, ids: Tensor) -> Tensor:
        return self.model(ids, labels=ids).loss

    def decode(self, prompt: Tensor) -> Tensor:
        return self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW_TOKENS, do_sample=False
        )


SIDES: dict[str, Callable[[Path], Ours | Theirs]] = {"ours": Ours, "theirs": Theirs}


def random_ids(tokens: int) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(CONFIG.vocab_size, (1, tokens), generator=generator)


def runner(side: Ours | Theirs, case: str) -> Callable[[], object]:
    """The case as a function without arguments: what is timed, and what memory is measured of."""
    if case == "forward":
        ids = random_ids(FORWARD_TOKENS)
        return lambda: side.forward(ids)
    if case.startswith("decode"):
        if isinstance(side, Ours):
            side.convert(case)
        prompt = random_ids(PROMPT_TOKENS)
        return lambda: side.decode(prompt)
    if isinstance(side, Ours):
        side.start_training()
    ids = random_ids(STEP_TOKENS)
    side.model.train()
    set_dropout(side.model, 0.0 if case == "plain step" else CONFIG.resid_pdrop)
    optimizer = torch.optim.AdamW(side.model.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> None:
        side.loss(ids).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def set_dropout(model: torch.nn.Module, p: float) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = p
        if isinstance(module, CausalSelfAttention):
            module.attn_pdrop = p


# Equality


def disagreements(ours: Ours, theirs: Theirs) -> list[str]:
    """What the two sides compute differently, one line each; empty if nothing."""
    found = []
    ids = random_ids(FORWARD_TOKENS)
    expected = theirs.forward(ids)
    error = float((ours.forward(ids) - expected).abs().max() / expected.abs().max())
    print(f"logits differ by at most {error:.1e} of the largest")
    if not error <= TOLERANCE:  # a NaN must not pass
        found.append(f"the logits differ by {error:.1e} of the largest, more than {TOLERANCE:.0e}")
    ids = random_ids(STEP_TOKENS)
    with torch.no_grad():
        loss, expected_loss = float(ours.loss(ids)), float(theirs.loss(ids))
    print(f"losses {loss:.6f} and {expected_loss:.6f}")
    if not abs(loss - expected_loss) <= TOLERANCE * expected_loss:
        found.append(f"the losses differ: {loss} and {expected_loss}")
    prompt = random_ids(PROMPT_TOKENS)
    tokens, expected_tokens = ours.decode(prompt), theirs.decode(prompt)
    same = torch.equal(tokens, expected_tokens)
    new = tokens[0, PROMPT_TOKENS:]
    print(f"{'the same' if same else 'other'} {len(new)} tokens, {len(new.unique())} of them distinct")
    if not same or len(new) != NEW_TOKENS:
        found.append(f"the tokens differ: {new.tolist()} and {expected_tokens[0, PROMPT_TOKENS:].tolist()}")
    return found


# Time


@dataclass(frozen=True)
class Timing:
    ours: list[float]  # seconds, one a round
    theirs: list[float]
    others: float  # the share of the machine's CPU time that other processes took meanwhile

    @property
    def ratios(self) -> list[float]:
        """Theirs / ours within each round: what slows the machine down for a while slows both."""
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare_time(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> Timing:
    """Time both in every round, in the order A B, B A, A B ..., after one run of each that is not counted."""
    ours()
    theirs()
    ours_times: list[float] = []
    theirs_times: list[float] = []
    start, others = time.perf_counter(), cpu_seconds_of_others()
    for i in range(rounds):
        order = [(ours, ours_times), (theirs, theirs_times)]
        for run, times in order if i % 2 == 0 else reversed(order):
            times.append(seconds(run))
    available = (time.perf_counter() - start) * (os.cpu_count() or 1)
    return Timing(ours_times, theirs_times, (cpu_seconds_of_others() - others) / available)


def cpu_seconds_of_others() -> float:
    """CPU seconds that all processes but this one have used so far; NaN if not Linux."""
    if sys.platform != "linux":
        return math.nan
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    used = (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
    return used - time.process_time()


def time_small_model(rounds: int) -> Timing:
    """A step of the model that ships with the package, as it was trained, and (as "theirs") with the plain loss."""

    def small_step(loss: Callable[[GPT, Tensor, Tensor], Tensor]) -> Callable[[], object]:
        torch.manual_seed(SEED)
        model = GPT(SMALL).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
        x, y = (torch.randint(SMALL.vocab_size, (SMALL_BATCH, SMALL.n_positions)) for _ in range(2))

        def step() -> None:
            loss(model, x, y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    fused = small_step(lambda model, x, y: training_loss(model, x, y, "fp32"))
    return compare_time(fused, small_step(lambda model, x, y: token_loss(model(x), y)), rounds)


def print_small_model(timing: Timing, limits: Limits) -> None:
    tokens = SMALL_BATCH * SMALL.n_positions
    least = 3 * tokens * sum(forward_flops(SMALL).values()) / limits.flops
    print(f"\nthe model that ships with the package, training, B={SMALL_BATCH} T={SMALL.n_positions}")
    for name, times in ("as trained", timing.ours), ("with token_loss(model(x), y)", timing.theirs):
        seconds = median(times)
        print(f"{name:<48}{tokens / seconds:>9,.0f} tokens/s, {least / seconds:.0%} of the limit")
    print(f"ratio {median(timing.ratios):.3f} ({min(timing.ratios):.3f} to {max(timing.ratios):.3f})")


# Memory


def peak_memory(side: str, case: str, checkpoint: Path) -> int | None:
    """Peak resident bytes of a case in a process of its own, above what it held before; None if not Linux."""
    if sys.platform != "linux":
        return None
    command = [sys.executable, "-m", "benchmarks.compare", "--peak-of", side, case, str(checkpoint)]
    # Without this glibc keeps freed blocks, and the peak says more about the allocator than about the model.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    root = Path(__file__).parents[1]
    result = subprocess.run(command, env=env, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return int(result.stdout.split()[-1])


def measure_peak(side: str, case: str, checkpoint: Path) -> int:
    """The other end of :func:`peak_memory`, in the fresh process."""
    model = SIDES[side](checkpoint)
    run = runner(model, case)
    model.forward(random_ids(8))  # libraries load their code and buffers, and pages of the file come in
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: loading has one of its own
    run()
    if "step" in case:
        run()  # only from the second step on is AdamW's state there during the backward pass
    return resident_bytes("VmHWM") - before


def resident_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


# The machine's limits


@dataclass(frozen=True)
class Limits:
    flops: float  # a second, in the fastest of the matrix products
    bytes: float  # read a second, in the fastest matrix-vector product


def measure_limits(repeats: int) -> Limits:
    """The fastest of ``repeats`` runs: other load can only slow them down."""
    products = [(FORWARD_TOKENS, CONFIG.n_embd, CONFIG.vocab_size), (2048, 2048, 2048)]
    flops = max(gemm_flops(*shape, repeats) for shape in products)
    matrix, vector = torch.ones(8192, 16384), torch.ones(16384)  # 537 MB: far beyond any cache
    fastest = min(seconds(lambda: matrix @ vector) for _ in range(repeats + 1))
    return Limits(flops, matrix.nbytes / fastest)


def gemm_flops(m: int, k: int, n: int, repeats: int) -> float:
    a, b, out = torch.ones(m, k), torch.ones(k, n), torch.empty(m, n)
    fastest = min(seconds(lambda: torch.mm(a, b, out=out)) for _ in range(repeats + 1))
    return 2 * m * k * n / fastest


def bytes_per_token(config: GPTConfig) -> int:
    """Weight bytes that a decoded token reads: all but the position table, of which it reads one row."""
    with torch.device("meta"):
        model = GPT(config)
    return sum(p.nbytes for p in model.parameters()) - model.wpe.weight.nbytes


def least_seconds(case: str, limits: Limits) -> float:
    """The time the case would take if the machine did nothing but the work counted here, at its limit."""
    if case == "forward":
        return FORWARD_TOKENS * sum(forward_flops(CONFIG, FORWARD_TOKENS).values()) / limits.flops
    if "step" in case:  # the backward pass has two products for each of the forward pass
        return 3 * STEP_TOKENS * sum(forward_flops(CONFIG, STEP_TOKENS).values()) / limits.flops
    return NEW_TOKENS * CONVERTED.get(case, 1.0) * bytes_per_token(CONFIG) / limits.bytes


# The report


def machine() -> str:
    import transformers

    model, memory = platform.processor() or platform.machine(), ""
    if sys.platform == "linux":
        cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
        model = names[0] if names else model
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f", {total / 1e9:.1f} GB of memory"
    return (
        f"{model}, {os.cpu_count()} cores{memory}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}; {date.today()}"
    )


def print_times(timings: dict[str, Timing], limits: Limits) -> None:
    print(f"\n{'median seconds':<48}{'gptlab':>9}{'transformers':>14}   ratio (lowest to highest)")
    for case in CASES:
        timing = timings[case.name]
        ratio, ratios = median(timing.ratios), timing.ratios
        verdict = f"target {case.target:.2f}: {'met' if ratio >= case.target else 'MISSED'}"
        print(
            f"{case.what:<48}{median(timing.ours):>9.3f}{median(timing.theirs):>14.3f}   "
            f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})  {verdict if case.target else 'reported'}"
        )
    others = ", ".join(f"{timings[case.name].others:.0%}" for case in CASES)
    print(f"CPU time that other processes took meanwhile: {others}; above a few percent, run it again")
    print("ratio: the median over the rounds of theirs / ours within a round; above 1, gptlab is faster")

    print(f"\nthe machine's limits: {limits.flops / 1e9:.0f} GFLOP/s, {limits.bytes / 1e9:.1f} GB/s read")
    print(f"{'share of the limit':<48}{'gptlab':>9}{'transformers':>14}   least seconds")
    for case in CASES:
        timing, least = timings[case.name], least_seconds(case.name, limits)
        theirs = f"{least / median(timing.theirs):.0%}" if case.name not in CONVERTED else ""
        print(f"{case.what:<48}{least / median(timing.ours):>9.0%}{theirs:>14}{least:>16.3f}")
    decode = timings["decode"]
    print(
        f"tokens a second in decoding: {NEW_TOKENS / median(decode.ours):.1f} and "
        f"{NEW_TOKENS / median(decode.theirs):.1f}; at the limit "
        f"{NEW_TOKENS / least_seconds('decode', limits):.1f}"
    )


def print_memory(peaks: dict[str, dict[str, int | None]]) -> None:
    print(f"\n{'peak MB above the loaded model':<48}{'gptlab':>9}{'transformers':>14}")
    for case in CASES:
        ours, theirs = (
            "-" if peak is None else f"{peak / 1e6:,.0f}"
            for peak in (peaks[case.name]["ours"], peaks[case.name]["theirs"])
        )
        print(f"{case.what:<48}{ours:>9}{theirs:>14}")


def save_random_model(path: Path) -> None:
    torch.manual_seed(SEED)
    save_checkpoint(GPT(CONFIG), path)


def faster(a: Limits, b: Limits) -> Limits:
    return Limits(max(a.flops, b.flops), max(a.bytes, b.bytes))


def measure_times(ours: Ours, theirs: Theirs, quick: bool) -> dict[str, Timing]:
    timings = {}
    for case in sorted(CASES, key=lambda case: "step" in case.name):  # last: they change the weights
        rounds = 1 if quick else case.rounds
        print(f"timing: {case.what}, rounds: {rounds}", flush=True)
        timings[case.name] = compare_time(runner(ours, case.name), runner(theirs, case.name), rounds)
    return timings


def report(checkpoint: Path, quick: bool, json_file: Path | None) -> int:
    load_before = os.getloadavg()[0]
    print(machine())
    print(f"GPT-2 small, fp32, {THREADS} threads, the same weights on both sides; load {load_before:.2f}")
    save_random_model(checkpoint)
    ours, theirs = Ours(checkpoint), Theirs(checkpoint)
    if found := disagreements(ours, theirs):
        print("The two sides do not compute the same, so nothing is timed:", *found, sep="\n  ")
        return 1
    repeats = 2 if quick else 10
    limits = measure_limits(repeats)
    timings = measure_times(ours, theirs, quick)
    small = time_small_model(1 if quick else SMALL_ROUNDS)
    limits = faster(limits, measure_limits(repeats))
    del ours, theirs
    print("memory: a process for each side and case", flush=True)
    peaks = {c.name: {side: peak_memory(side, c.name, checkpoint) for side in SIDES} for c in CASES}
    print_times(timings, limits)
    print_small_model(small, limits)
    print_memory(peaks)
    print(f"\nload average: {load_before:.2f} at the start, {os.getloadavg()[0]:.2f} at the end")
    if json_file is not None:
        content = {
            "machine": machine(),
            "load_before": load_before,
            "limits": asdict(limits),
            "seconds": {name: asdict(t) for name, t in {**timings, "small": small}.items()},
            "peak_bytes": peaks,
        }
        json_file.write_text(json.dumps(content, indent=2) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round of each: a smoke test, not a figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every measured value here")
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    if args.peak_of:
        side, case, checkpoint = args.peak_of
        print(measure_peak(side, case, Path(checkpoint)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return report(Path(folder), args.quick, args.json)


if __name__ == "__main__":
    sys.exit(main())
