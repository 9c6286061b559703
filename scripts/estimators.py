"""Ask other tools how much memory it takes to train GPT-2 small, and store their answers beside the right ones.

    python3.11 -m venv /tmp/estimators
    DS_BUILD_OPS=0 /tmp/estimators/bin/pip install torch==2.13.0 accelerate==1.15.0 deepspeed==0.19.8 \\
        lightning==2.6.6 torchinfo==1.8.0 transformers==5.24.0 fire==0.5.0 .
    /tmp/estimators/bin/pip install --no-deps llm-analysis==0.2.2
    OMP_NUM_THREADS=1 /tmp/estimators/bin/python scripts/estimators.py

llm-analysis goes without its dependencies: it asks for an older transformers than the one that is asked here, and runs
with this one. A tool that is not installed is skipped, and its stored answer stays. The sentences about each tool were
checked against the source of that version. It takes a minute of one core and 2 GB, and no network.
"""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gptlab.config import PRESETS
from gptlab.config_file import config_json
from gptlab.files import replacing
from gptlab.ledger import Ledger
from gptlab.model import GPT
from gptlab.unembedding import token_loss

FILE = Path(__file__).resolve().parents[1] / "gptlab/assets/estimators.json"

CONFIG = replace(PRESETS["gpt2"], embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
B, T = 4, 1024
QUESTION = "GPT-2 small, tied, fp32, AdamW, batch 4, context 1024, fused attention, no dropout"

MiB, GiB = 2**20, 2**30
AGREES = "Nothing: it agrees to the byte."


@dataclass(frozen=True)
class Answer:
    """What a tool says. Numbers are bytes, but for ``parameters``; what it does not give is not there."""

    version: str
    called: str
    gives: dict[str, int]
    """Of ``parameters``, ``weights``, ``gradients``, ``optimizer``, ``state`` (these three together), ``activations``
    and ``total`` (what the tool says the training needs, or adds up itself)."""
    leaves_out: str
    differs: str
    printed: dict[str, str] = field(default_factory=dict)
    """The same as the tool prints them, where it does."""
    units: dict[str, int] = field(default_factory=dict)
    """The bytes in each unit that it prints."""
    restated: bool = False
    """Whether the tool's formula was written out here, instead of calling the tool."""


def right_values() -> dict[str, int]:
    """Weights, their gradients and AdamW's two moments by the ledger; chapter 9 derives the last two.

    ``activations`` is what is kept for the backward pass, ``total`` the peak of a step from the second on.
    """
    parameters = Ledger.from_config(CONFIG).total
    return {
        "parameters": parameters,
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "state": 16 * parameters,
        "activations": 3_267_747_844,
        "total": 6_407_847_512,
    }


def ask_mem_tracker() -> Answer:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()

    def bytes_by_kind(moment: str) -> dict[str, int]:
        (on_cpu,) = tracker.get_tracker_snapshot(moment).values()
        return {getattr(kind, "value", kind): count for kind, count in on_cpu.items()}

    with FakeTensorMode():
        model = GPT(CONFIG).train()
        x, y = (torch.zeros(B, T, dtype=torch.long) for _ in range(2))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        token_loss(model(x), y).backward()
        optimizer.step()  # the first step makes the moments
        optimizer.zero_grad()
        tracker.track_external(model, optimizer, x, y)
        with tracker:
            token_loss(model(x), y).backward()
            after_backward = bytes_by_kind("current")
            optimizer.step()
    peak = bytes_by_kind("peak")
    text = printed_by(lambda: tracker.display_snapshot("peak"))
    return Answer(
        version=release("torch"),
        called="torch.distributed._tools.mem_tracker.MemTracker, around the second step on fake tensors",
        gives={
            "weights": peak["Parameter"],
            "gradients": after_backward["Gradient"],
            "optimizer": peak["Optstate"],
            "activations": peak["Activation"],
            "total": peak["Total"],
        },
        printed={
            "weights": grab(r"Parameter: (.*)", text),
            "optimizer": grab(r"Optstate: (.*)", text),
            "activations": grab(r"Activation: (.*)", text),
            "total": grab(r"Total: (.*)", text),
        },
        units={"B": 1},
        leaves_out="What an operation takes and frees inside itself; the memory of CUDA and its libraries.",
        differs="The peak agrees to the byte. AdamW's 148 step counters are part of the optimizer; token ids and "
        "targets are not part of the activations, and the loss is.",
    )


def ask_transformers() -> Answer:
    with torch.device("meta"):
        model = transformers_model()
    return Answer(
        version=release("transformers"),
        called="model.get_memory_footprint()",
        gives={"weights": model.get_memory_footprint()},
        leaves_out="All but parameters and buffers; this version's GPT-2 has no buffers.",
        differs=AGREES,
    )


def transformers_model() -> Any:
    from transformers import AutoModelForCausalLM, GPT2Config

    return AutoModelForCausalLM.from_config(GPT2Config.from_dict(config_json(CONFIG)))


def ask_lightning() -> Answer:
    from lightning.pytorch import LightningModule
    from lightning.pytorch.utilities.model_summary import ModelSummary

    module = LightningModule()
    with torch.device("meta"):
        module.gpt = GPT(CONFIG)
    summary = ModelSummary(module)
    return Answer(
        version=release("lightning"),
        called="ModelSummary(module)",
        gives={"parameters": summary.total_parameters, "weights": round(summary.model_size * 10**6)},
        printed={"weights": grab(r"([\d.]+) +Total estimated model params size", str(summary)) + " MB"},
        units={"MB": 10**6},
        leaves_out="All but the weights.",
        differs=AGREES,
    )


def ask_accelerate() -> Answer:
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes, convert_bytes
    from transformers import AutoModel, GPT2Config

    with init_empty_weights():
        model = AutoModel.from_config(GPT2Config.from_dict(config_json(CONFIG)), dtype=torch.float32)
    size, _ = calculate_maximum_sizes(model)
    usage = estimate_training_usage(size, "float32")
    gives = {
        "weights": size,
        "gradients": usage["gradients"],
        "optimizer": usage["optimizer"],
        "total": max(usage.values()),
    }
    return Answer(
        version=release("accelerate"),
        called="calculate_maximum_sizes(model), estimate_training_usage(size, 'float32'): the command's own steps, "
        "with a config from disk in place of the hub's",
        gives=gives,
        printed={name: convert_bytes(gives[name]) for name in ("weights", "total")},
        units={"MB": MiB, "GB": GiB},
        leaves_out="Activations; and the head of an untied model, since it builds the model without one.",
        differs="The total is weights, gradients and moments. For float16 it prints the largest part, the moments, "
        "not the sum.",
    )


def ask_deepspeed_2() -> Answer:
    from deepspeed.runtime.zero import stage_1_and_2 as zero

    model = GPT(CONFIG)
    total = zero.model_to_params(model)
    _, on_gpu = zero.estimate_zero2_model_states_mem_needs(total, cpu_offload=False)
    text = printed_by(lambda: zero.estimate_zero2_model_states_mem_needs_all_live(model))
    return Answer(
        version=release("deepspeed"),
        called="estimate_zero2_model_states_mem_needs_all_live(model): one GPU, no offload; the model must be in memory, "
        "since it tells tensors apart by address",
        gives={"parameters": total, "state": on_gpu},
        printed={"state": grab(r"\| +([\d.]+GB) \| offload_optimizer=none", text)},
        units={"GB": GiB},
        leaves_out="Activations, as it says: the estimate is for parameters, optimizer states and gradients.",
        differs="20 bytes per parameter in place of 16: for training in half precision, with weights and gradients in "
        "16 bits and in 32.",
    )


def ask_deepspeed_3() -> Answer:
    from deepspeed.runtime.zero import stage3 as zero

    model = GPT(CONFIG)
    total, largest = zero.model_to_params(model)
    _, on_gpu, _ = zero.estimate_zero3_model_states_mem_needs(
        total, largest, cpu_offload=False, cpu_offload_params=False
    )
    text = printed_by(lambda: zero.estimate_zero3_model_states_mem_needs_all_live(model))
    return Answer(
        version=release("deepspeed"),
        called="estimate_zero3_model_states_mem_needs_all_live(model): one GPU, no offload; the model in memory",
        gives={"parameters": total, "state": on_gpu},
        printed={"state": grab(r"\| +([\d.]+GB) \| offload_param=none, offload_optimizer=none", text)},
        units={"GB": GiB},
        leaves_out="Activations, as it says: the estimate is for parameters, optimizer states and gradients.",
        differs="18 bytes per parameter in place of 16, and 4 more for each of the largest layer's, the token table: "
        "for training in half precision.",
    )


def ask_torchinfo(model: torch.nn.Module, table: str, **options: Any) -> Answer:
    """``table`` says what becomes of the two tables in this model."""
    from torchinfo import summary

    input_ids = torch.zeros(B, T, dtype=torch.long, device=next(model.parameters()).device)
    found = summary(model, input_data=input_ids, device=input_ids.device, mode="train", verbose=0, **options)
    text = str(found)
    return Answer(
        version=release("torchinfo"),
        called="summary(model, input_data=input_ids, mode='train')",
        gives={
            "parameters": found.total_params,
            "weights": found.total_param_bytes,
            "activations": found.total_output_bytes,
            "total": found.total_input + found.total_output_bytes + found.total_param_bytes,
        },
        printed={
            "weights": grab(r"Params size \(MB\): (.*)", text) + " MB",
            "activations": grab(r"Forward/backward pass size \(MB\): (.*)", text) + " MB",
            "total": grab(r"Estimated Total Size \(MB\): (.*)", text) + " MB",
        },
        units={"MB": 10**6},
        leaves_out="The weights' gradients and the optimizer; outputs of what has no parameters of its own, such as "
        "GELU, attention and the loss.",
        differs=f"{table} The activations are the outputs of all layers with parameters, times two; backward keeps "
        "others, once.",
    )


def ask_torchinfo_transformers() -> Answer:
    # On the CPU: this model looks at values, which tensors on the meta device have not.
    return ask_torchinfo(
        transformers_model(), "The tied table counts at both modules that hold it.", use_cache=False
    )


def ask_torchinfo_gptlab() -> Answer:
    with torch.device("meta"):
        model = GPT(CONFIG)
    return ask_torchinfo(
        model, "The position table's bytes are missing: the model reads it without calling its module."
    )


def ask_cookbook() -> Answer:
    """Its formula for one GPU, in our letters, with ``--disable-mixed-precision --low-prec-bytes-per-val 4``."""
    V, C, L, H, bytes_per_value = CONFIG.vocab_size, CONFIG.n_embd, CONFIG.n_layer, CONFIG.n_head, 4
    parameters = 2 * V * C + T * C + L * (12 * C * C + 8 * C) + 2 * C
    per_feature = (16 * bytes_per_value + 2) + (2 * bytes_per_value + 1) * H * T // C
    gives = {
        "parameters": parameters,
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 12 * parameters,
        "activations": L * B * T * C * per_feature,
    }
    gives["total"] = sum(gives[part] for part in ("weights", "gradients", "optimizer", "activations"))
    return Answer(
        version="commit 069ae2e",
        called="its formula, written out: the script is in no package index",
        gives=gives,
        printed={name: f"{gives[name] / GiB:.2f} GiB" for name in gives if name != "parameters"},
        units={"GiB": GiB},
        leaves_out="Logits, loss and final LayerNorm; the tie; 5C of a block's 13C biases and gains.",
        differs="Two token tables; 12 bytes of optimizer per parameter, a copy of the weights among them; attention that "
        "stores its weights, with dropout.",
        restated=True,
    )


def ask_llm_analysis() -> Answer:
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import DtypeConfig, get_gpu_config_by_name, get_model_config_by_name

    bits = DtypeConfig("fp32", weight_bits=32, activation_bits=32, embedding_bits=32)
    analysis = LLMAnalysis(get_model_config_by_name("gpt2"), get_gpu_config_by_name("a100-sxm-80gb"), bits)
    analysis.get_TFLOPS_per_gpu = lambda: 1.0  # it knows no speed for 32 bits; memory does not depend on it
    found = analysis.training(batch_size_per_gpu=B, seq_len=T)
    names = {
        "weights": "weight_memory_per_gpu",
        "gradients": "gradient_memory_per_gpu",
        "optimizer": "optimizer_state_memory_per_gpu",
        "activations": "activation_memory_per_gpu",
        "total": "(weight+op_state+grad+act)_memory_per_gpu",
    }
    text = "\n" + analysis.get_readable_summary_dict(found)
    return Answer(
        version=release("llm-analysis"),
        called="LLMAnalysis('gpt2', 32 bits).training(batch_size_per_gpu=4, seq_len=1024), with the GPU's speed "
        "replaced: it has none for 32 bits",
        gives={"parameters": int(found["num_params_total"])}
        | {name: int(found[key]) for name, key in names.items()},
        printed={name: grab(rf"\n{re.escape(key)}: (.*)", text) for name, key in names.items()},
        units={"MB": MiB, "GB": GiB},
        leaves_out="All biases, the position table, and what lives only during the backward pass.",
        differs="12 bytes of optimizer per parameter, a copy of the weights among them; 73C + 192 bytes per token and "
        "block in place of 64C + 64. With what it leaves out, the total is 5.2 % below the peak.",
    )


QUESTIONS: dict[str, Callable[[], Answer]] = {
    "PyTorch MemTracker": ask_mem_tracker,
    "transformers": ask_transformers,
    "Lightning": ask_lightning,
    "accelerate estimate-memory": ask_accelerate,
    "DeepSpeed, ZeRO-2": ask_deepspeed_2,
    "DeepSpeed, ZeRO-3": ask_deepspeed_3,
    "torchinfo, on transformers' model": ask_torchinfo_transformers,
    "torchinfo, on gptlab's model": ask_torchinfo_gptlab,
    "EleutherAI cookbook, calc_transformer_mem.py": ask_cookbook,
    "llm-analysis": ask_llm_analysis,
}


def release(package: str) -> str:
    """The version, without the part that says how it was built."""
    return version(package).partition("+")[0]


def printed_by(call: Callable[[], object]) -> str:
    with redirect_stdout(io.StringIO()) as text:
        call()
    return text.getvalue()


def grab(pattern: str, text: str) -> str:
    """What stands in the pattern's brackets.

    Raises:
        ValueError: the tool prints it in another way than the version that the script was written for.
    """
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(
            f"{pattern!r} is not in what was printed: use the versions of this file's first lines"
        )
    return found[1].strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, default=FILE, help="where the answers go")
    options = parser.parse_args()
    stored = {}
    if options.file.exists():
        stored = {row["tool"]: row for row in json.loads(options.file.read_text("utf-8"))["tools"]}
    for name, ask in QUESTIONS.items():
        try:
            stored[name] = {"tool": name, **asdict(ask())}
        except ImportError as err:
            print(f"{name}: skipped ({err})")
            continue
        print(name, stored[name]["gives"])
    found = {
        "made by": "scripts/estimators.py",
        "question": QUESTION,
        "right": right_values(),
        "tools": [stored[name] for name in QUESTIONS if name in stored],
    }
    with replacing(options.file) as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
