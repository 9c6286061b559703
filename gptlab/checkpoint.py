"""Weights on disk in Hugging Face's layout: ``config.json`` and ``model.safetensors``. No pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gptlab.config import PRESETS, GPTConfig
from gptlab.config_file import config_json, json_object, read_config
from gptlab.files import replacing
from gptlab.ledger import Ledger
from gptlab.model import GPT
from gptlab.tying import is_tied, same_values

# Repositories on the Hugging Face hub, each at a commit, so that a name always means the same weights.
HUB = {
    "gpt2": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    "gpt2-medium": ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    "gpt2-large": ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519"),
    "gpt2-xl": ("openai-community/gpt2-xl", "15ea56dee5df4983c59b2538573817e1667135e2"),
}

# Models that ship with the package, stored as bfloat16.
SHIPPED = {"shakespeare": Path(__file__).parent / "assets" / "shakespeare"}

# OpenAI's code, and so the checkpoint, stores these weights as (inputs, outputs); nn.Linear transposed.
# One of the four, attn.c_proj, is square: forgetting to transpose it raises no error.
TRANSPOSED = re.compile(r"h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")

# A tied model's file may hold its one table under either name: safetensors' save_model keeps lm_head.weight.
TABLE_NAMES = {"wte.weight", "lm_head.weight"}

# Older files also hold each block's causal mask, which is not a parameter.
MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def from_pretrained(name_or_path: str | PathLike[str]) -> GPT:
    """GPT-2's published weights by name, the small model that ships with the package, or a checkpoint from disk.

    Args:
        name_or_path: ``"shakespeare"``, in float32; or ``"gpt2"``, ``"gpt2-medium"``, ``"gpt2-large"`` or
            ``"gpt2-xl"``, downloaded once by ``huggingface_hub`` at a fixed commit and kept in its cache; or a path
            for :func:`load_checkpoint`. A folder of your own that is called gpt2 is ``"./gpt2"``.

    Raises:
        ConnectionError: the weights are not in the cache and cannot be downloaded.
        ValueError: not one of the names, and not a path that exists.
    """
    if name_or_path in SHIPPED:
        return load_checkpoint(SHIPPED[str(name_or_path)], dtype=torch.float32)
    if name_or_path in HUB:
        return load_checkpoint(download(str(name_or_path)))
    if not Path(name_or_path).exists():
        raise ValueError(
            f"{str(name_or_path)!r} is none of {', '.join([*SHIPPED, *HUB])}, and no path that exists"
        )
    return load_checkpoint(name_or_path)


def load_checkpoint(path: str | PathLike[str], *, dtype: torch.dtype | None = None) -> GPT:
    """Load a GPT-2 in evaluation mode, on the CPU.

    Names may carry ``transformer.`` or the prefixes that ``torch.compile`` and ``DataParallel`` add; the
    causal-mask buffers of older files are skipped. A tied model's table may stand under its own name, the head's, or
    both. Any other name that is not a parameter is an error.

    Args:
        path: a directory with ``config.json`` and ``model.safetensors``, or a ``.safetensors`` file. A file
            without a ``config.json`` beside it must have the sizes of one of the presets.
        dtype: the type to convert the weights to; unless given, each keeps the type it has in the file.

    Raises:
        FileNotFoundError: a file is missing.
        TypeError: ``dtype`` is no floating-point type.
        ValueError: the files are damaged, or do not describe the same GPT-2.
    """
    _check_dtype(dtype)
    weights = _weights_file(Path(path))
    tensors, saved_config = _read(weights)
    config_file = weights.with_name("config.json")
    config = read_config(config_file) if config_file.exists() else _matching_preset(tensors, weights)
    _check_saved_config(config, saved_config, weights)
    state = {name: _to_linear(name, tensor, dtype) for name, tensor in tensors.items()}
    with torch.device("meta"):  # shapes only: the weights come from the file
        model = GPT(config)
    _check_names_and_shapes(model, state, weights)
    try:
        model.load_state_dict(state, assign=True)
    except ValueError as err:  # a head that differs from the token table
        raise ValueError(f"{weights}: {err} in its config.json") from err
    return model.eval()


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint's file holds, in bytes; the parts add up to the file."""

    config: GPTConfig
    ledger: Ledger
    file_bytes: int
    header_bytes: int
    """Names, types and places of the tensors, and the eight bytes that say how long this is."""
    parameter_bytes: int
    other_bytes: int
    """Causal masks, and a second copy of a tied head."""
    others: tuple[str, ...]
    """What the other bytes are."""
    dtypes: tuple[str, ...]
    """Types of the parameters, as the file calls them: ``F32``, ``BF16``."""


def inspect_checkpoint(path: str | PathLike[str]) -> Inspection:
    """Count a checkpoint's parameters from its header. The weights are not read, but for a head beside its table.

    Names and shapes are checked as in :func:`load_checkpoint`, whose arguments and errors these are.
    """
    weights = _weights_file(Path(path))
    header, header_bytes = _header(weights)
    saved_config = (header.pop("__metadata__", None) or {}).get("gptlab_config")
    try:
        names = clean_names(header)
    except ValueError as err:
        raise ValueError(f"{weights}: {err}") from err
    size = {name: header[old]["data_offsets"] for old, name in names.items()}
    masks = [name for name in names.values() if MASK_BUFFER.fullmatch(name)]
    shapes = {
        name: torch.empty(header[old]["shape"], device="meta", dtype=_dtype(header[old]["dtype"]))
        for old, name in names.items()
        if name not in masks
    }
    config_file = weights.with_name("config.json")
    config = read_config(config_file) if config_file.exists() else _matching_preset(shapes, weights)
    _check_saved_config(config, saved_config, weights)
    with torch.device("meta"):
        model = GPT(config)
    state = {
        name: tensor.T if TRANSPOSED.fullmatch(name) and tensor.ndim == 2 else tensor
        for name, tensor in shapes.items()
    }
    _check_names_and_shapes(model, state, weights)
    others = [f"{len(masks)} causal-mask buffers"] if masks else []
    extra = list(masks)
    if is_tied(model) and state.keys() >= TABLE_NAMES:
        tensors, _ = _read(weights)
        if not same_values(tensors["lm_head.weight"], tensors["wte.weight"]):
            raise ValueError(
                f"{weights}: lm_head.weight differs from wte.weight, but the config ties them: "
                f"set tie_word_embeddings to false in its config.json"
            )
        others.append("the token table once more, as lm_head.weight")
        extra.append("lm_head.weight")
    bytes_of = {name: end - start for name, (start, end) in size.items()}
    file_bytes, other_bytes = weights.stat().st_size, sum(bytes_of[name] for name in extra)
    return Inspection(
        config=config,
        ledger=Ledger.from_model(model),
        file_bytes=file_bytes,
        header_bytes=header_bytes,
        parameter_bytes=sum(bytes_of.values()) - other_bytes,
        other_bytes=other_bytes,
        others=tuple(others),
        dtypes=tuple(sorted({header[old]["dtype"] for old, name in names.items() if name not in masks})),
    )


def _header(file: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """The header of a complete safetensors file, metadata included, and its bytes with the eight of its length."""
    try:
        with safe_open(file, framework="pt"):  # checks that header and data fit together
            pass
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
    except SafetensorError as err:
        raise ValueError(
            f"{file} is not a complete safetensors file: {err}. Copy or download it again"
        ) from err
    return header, length + 8


def _dtype(name: str) -> torch.dtype:
    """A type of the header; whatever is no floating-point type stands as an integer one, which no weight is."""
    known = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    return known.get(name, torch.int64)


def save_checkpoint(model: nn.Module, path: str | PathLike[str], *, dtype: torch.dtype | None = None) -> None:
    """Save a model so that :func:`load_checkpoint` and transformers read the same one.

    Whether a head is stored is decided by the model's tensors: a tied one has none. Each file is written
    beside its final place and moved there when complete, so an interruption leaves the old one.

    Args:
        model: the model, compiled or not.
        path: a directory, made if missing; or a file name ending in ``.safetensors``, beside which
            ``config.json`` is written.
        dtype: the floating-point type to store; unless given, each parameter's own.

    Raises:
        OSError: a file could not be written; the one that was there is whole.
        TypeError: the model is no GPT, or ``dtype`` no floating-point type.
        ValueError: the tensors are not those that the model's config describes.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if not isinstance(model, GPT):
        raise TypeError(
            f"model must be a GPT, not {type(model).__name__}: of a wrapper pass its model.module"
        )
    _check_dtype(dtype)
    _check_config(model)
    path = Path(path)
    weights = path if path.suffix == ".safetensors" else path / "model.safetensors"
    tensors = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach().to(device="cpu", dtype=dtype or parameter.dtype)
        tensors[name] = (tensor.T if TRANSPOSED.fullmatch(name) else tensor).contiguous()
    config = json.dumps(config_json(model.config), indent=2)
    weights.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(weights) as file:
            save_file(tensors, file, metadata={"format": "pt", "gptlab_config": config})
    except SafetensorError as err:  # a full disk, for example
        raise OSError(f"{weights} could not be written: {err}") from err
    with replacing(weights.with_name("config.json")) as file:
        file.write_text(config + "\n", "utf-8")


def _check_dtype(dtype: torch.dtype | None) -> None:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype={dtype!r} must be a floating-point type, such as torch.bfloat16")


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name in a file to the parameter's own name, without what wrappers put before it.

    ``_orig_mod`` (torch.compile) goes wherever it stands. ``module`` (DataParallel) goes from the front,
    and only if every name has it: otherwise it is the name of a real submodule. ``transformer`` (Hugging
    Face) goes from the front, once or more.

    Raises:
        ValueError: two names become one.

    >>> clean_names(["_orig_mod.module.transformer.wte.weight"])
    {'_orig_mod.module.transformer.wte.weight': 'wte.weight'}
    """
    clean = {name: ".".join(part for part in name.split(".") if part != "_orig_mod") for name in names}
    while clean and all(name.startswith("module.") for name in clean.values()):
        clean = {old: name.removeprefix("module.") for old, name in clean.items()}
    clean = {old: re.sub(r"^(transformer\.)+", "", name) for old, name in clean.items()}
    first: dict[str, str] = {}
    for old, name in clean.items():
        if first.setdefault(name, old) != old:
            raise ValueError(f"{first[name]!r} and {old!r} both stand for {name!r}: keep one of them")
    return clean


def _weights_file(path: Path) -> Path:
    file = path / "model.safetensors" if path.is_dir() else path
    if file.exists():
        return file
    if other := [*sorted(path.glob("*.safetensors.index.json")), *sorted(path.glob("*.bin"))]:
        raise FileNotFoundError(
            f"{path} has {other[0].name} but no model.safetensors: save it again as one safetensors file, "
            f"with transformers' save_pretrained(..., max_shard_size='100GB')"
        )
    by_name = f": load the model of that name with from_pretrained({str(path)!r})"
    raise FileNotFoundError(f"{file} does not exist{by_name if str(path) in {*SHIPPED, *HUB} else ''}")


def _read(file: Path) -> tuple[dict[str, Tensor], str | None]:
    """The tensors under their clean names, and the config that :func:`save_checkpoint` put beside them."""
    try:
        # safetensors 0.5 reads onto the default device.
        with torch.device("cpu"), safe_open(file, framework="pt") as opened:
            names = clean_names(opened.keys())
            kept = {old: name for old, name in names.items() if not MASK_BUFFER.fullmatch(name)}
            tensors = {name: opened.get_tensor(old) for old, name in kept.items()}
            return tensors, (opened.metadata() or {}).get("gptlab_config")
    except SafetensorError as err:
        raise ValueError(
            f"{file} is not a complete safetensors file: {err}. Copy or download it again"
        ) from err
    except ValueError as err:
        raise ValueError(f"{file}: {err}") from err


def _check_saved_config(config: GPTConfig, saved: str | None, file: Path) -> None:
    """Weights and ``config.json`` are two files; raise if they were not saved together. Dropout may differ."""
    ours = asdict(config)
    for name, value in json_object(saved or "{}", f"{file}: the metadata gptlab_config").items():
        if not name.endswith("_pdrop") and ours.get(name, value) != value:
            raise ValueError(
                f"{file} was saved with {name}={value}, its config.json says {ours[name]}: "
                f"they belong to different models"
            )


def _to_linear(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A tensor as the model holds it, in memory of its own: the file may change or go.

    Generation consists of products with a single vector, and how fast they are depends on how the matrix lies in
    memory (benchmarks/README.md). In float32 it is best if the longer side is contiguous: of a weight with more
    outputs than inputs, the outputs, as in the file. In bfloat16 it is the inputs always.
    """
    dtype = dtype or tensor.dtype
    if not TRANSPOSED.fullmatch(name) or tensor.ndim != 2:
        return torch.empty(tensor.shape, dtype=dtype, device="cpu").copy_(tensor)
    inputs, outputs = tensor.shape
    if dtype == torch.float32 and outputs >= inputs:
        return torch.empty(tensor.shape, dtype=dtype, device="cpu").copy_(tensor).T
    return torch.empty(tensor.T.shape, dtype=dtype, device="cpu").copy_(tensor.T)


def _matching_preset(tensors: dict[str, Tensor], file: Path) -> GPTConfig:
    table = tensors.get("wte.weight", tensors.get("lm_head.weight"))
    for config in PRESETS.values():
        if table is not None and tuple(table.shape) == (config.vocab_size, config.n_embd):
            return config
    raise FileNotFoundError(
        f"there is no config.json beside {file}, and its sizes are those of none of {', '.join(PRESETS)}"
    )


def _check_names_and_shapes(model: GPT, state: dict[str, Tensor], file: Path) -> None:
    expected = dict(model.state_dict())
    optional = set()
    if is_tied(model):  # one name stands for both
        optional = TABLE_NAMES if "lm_head.weight" in state else {"lm_head.weight"}
    if unexpected := sorted(state.keys() - expected.keys()):
        raise ValueError(f"{file}: {unexpected[0]!r} is no parameter of GPT-2 ({len(unexpected)} such names)")
    if missing := sorted(expected.keys() - state.keys() - optional):
        raise ValueError(f"{file}: {missing[0]!r} is missing ({len(missing)} such names)")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"{file}: {name} has shape {tuple(tensor.shape)}, "
                f"the config asks for {tuple(expected[name].shape)}"
            )
        if not tensor.is_floating_point():
            raise ValueError(f"{file}: {name} is {tensor.dtype}, weights must be floating point")


def _check_config(model: GPT) -> None:
    """Raise unless the model's tensors, and its tie, are what its config says: nothing else could be loaded."""
    tied = is_tied(model)
    if model.config.tie_word_embeddings != tied:
        raise ValueError(
            f"the config says tie_word_embeddings={model.config.tie_word_embeddings}, but the head "
            f"{'is' if tied else 'is not'} the token table: call gptlab.tying.{'tie' if tied else 'untie'}(model)"
        )
    expected, names = Ledger.from_config(model.config), {name for name, _ in model.named_parameters()}
    if missing := [row for row in expected if row.name not in names]:
        raise ValueError(
            f"the model has no parameter {missing[0].name} of shape {missing[0].shape}, which its config asks for: "
            f"of a quantised model, save the GPT that it was made from"
        )
    if odd := [row for row in Ledger.from_model(model) if row not in expected.rows]:
        raise ValueError(
            f"{odd[0].name} of shape {odd[0].shape} does not fit the model's config: {model.config}"
        )


def download(name: str) -> Path:
    """The folder with the files of one of the published models, fetched if the cache does not have them.

    Raises:
        ConnectionError: they are not in the cache and cannot be downloaded.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    repository, revision = HUB[name]
    try:
        for file in ("config.json", "model.safetensors"):
            path = hf_hub_download(repository, file, revision=revision)
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError) as err:
        raise ConnectionError(
            f"{name} is not in the local cache and could not be downloaded from huggingface.co: {err}\n"
            f"Where there is a network, run: hf download {repository} config.json model.safetensors "
            f"--revision {revision} --local-dir {name}\n"
            f"Then copy the folder here: from_pretrained('./{name}')"
        ) from err
    return Path(path).parent
