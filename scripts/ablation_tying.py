"""Does tying help? Train a small GPT-2 tied, untied, untied from equal tables, and untied but narrow: three seeds each.

    OMP_NUM_THREADS=1 python scripts/ablation_tying.py --out /tmp/tying                 all twelve runs
    OMP_NUM_THREADS=1 python scripts/ablation_tying.py --out /tmp/tying --only tied-0   one of them

Each run writes a folder under --out with its log and its state, and goes on from there if it was interrupted. The
curve of a finished run takes its place in gptlab/assets/tying-ablation.json, beside the settings that all were made
with; chapter 7 repeats the first steps. Of two runs it keeps, too, what became of the rows that no training text reads.
The kinds of a seed see the same batches. Tied, untied and copied start from the same weights, but for the head;
narrow has as many parameters as tied. A run takes three minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gptlab import tying
from gptlab.config import GPTConfig
from gptlab.data import Tokens, encode_documents, shakespeare
from gptlab.files import replacing
from gptlab.model import GPT
from gptlab.tokenizer import get_tokenizer
from gptlab.training import STATE, LogRow, Run, TrainingSettings, read_log, resume, train

FILE = Path(__file__).resolve().parents[1] / "gptlab/assets/tying-ablation.json"
KINDS = ("tied", "untied", "copied", "narrow")
NARROW = 34  # untied, this width gives the number of parameters that 64 gives tied
SEEDS = (0, 1, 2)
EVERY = [f"{kind}-{seed}" for seed in SEEDS for kind in KINDS]
ROWS_OF = (
    "tied-0",
    "untied-0",
)  # runs of which the file keeps what became of the rows that no training text reads
PASSAGE = 3000  # held-out tokens from the middle of each of the three plays

SETTINGS = TrainingSettings(
    steps=400, batch_size=16, context=64, learning_rate=4e-3, warmup=40, evaluate_every=50, save_every=100
)


def texts() -> tuple[Tokens, Tokens, int]:
    """Tokens to train on, passages held out, and the number of distinct tokens in the corpus.

    Renumbered so that the ids which never occur drop out: that leaves less than half of GPT-2's 50,257, and makes a
    step that much cheaper.
    """
    corpus = [encode_documents(shakespeare("train")), encode_documents(shakespeare("validation"))]
    known, numbers = np.unique(np.concatenate(corpus), return_inverse=True)
    training, held_out = np.split(numbers.astype(np.uint16), [len(corpus[0])])
    end = np.searchsorted(known, get_tokenizer().encode("<|endoftext|>", special=True)[0])
    plays = np.split(held_out, np.flatnonzero(held_out == end))
    passages = [play[len(play) // 2 :][:PASSAGE] for play in plays if len(play) > 2 * PASSAGE]
    return training, np.concatenate(passages), len(known)


def config_for(vocab_size: int) -> GPTConfig:
    shape = GPTConfig(vocab_size=vocab_size, n_positions=SETTINGS.context, n_embd=64, n_layer=2, n_head=2)
    return replace(shape, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)


def make_model(kind: str, config: GPTConfig, seed: int) -> GPT:
    """A model of one kind. With one seed those of equal width share every weight that they have in common."""
    torch.manual_seed(seed)
    width = NARROW if kind == "narrow" else config.n_embd
    model = GPT(replace(config, n_embd=width, tie_word_embeddings=kind in ("tied", "copied")))
    if kind == "copied":
        tying.untie(model)
    return model


def unread_rows(rows: Float[Tensor, "V C"], training: Tokens) -> dict[str, float]:
    """Of the rows whose tokens do not occur in ``training``: mean length, and mean cosine with their mean."""
    times = torch.from_numpy(training.astype(np.int64)).bincount(minlength=len(rows))
    unread = rows[times == 0]
    cosine = torch.cosine_similarity(unread, unread.mean(dim=0), dim=1).mean()
    return {"length": round(unread.norm(dim=1).mean().item(), 3), "cosine": round(cosine.item(), 3)}


def store(folder: Path, config: GPTConfig, training: Tokens, held_out: Tokens, file: Path) -> None:
    """Put what the chapter needs of a finished run into the file; the other runs keep their places."""
    before = json.loads(file.read_text("utf-8")) if file.exists() else {"runs": {}, "unread": {}}
    runs, unread, log = before["runs"], before["unread"], read_log(folder)
    state = torch.load(folder / STATE, weights_only=True)["model"]
    table, head = state["wte.weight"], state["lm_head.weight"]
    runs[folder.name] = {
        "loss": [round(row.loss, 4) for row in log],
        "held_out": [[row.step, round(row.validation_loss, 4)] for row in log if row.validation_loss],
        "cosine": round(torch.cosine_similarity(table, head).mean().item(), 4),
    }
    if folder.name in ROWS_OF:
        unread[folder.name] = {"table": unread_rows(table, training), "head": unread_rows(head, training)}
    everything = {
        "made by": "scripts/ablation_tying.py",
        "config": asdict(config),
        "settings": {**asdict(SETTINGS), "betas": list(SETTINGS.betas)},
        "training tokens": len(training),
        "held-out tokens": len(held_out),
        "runs": {name: runs[name] for name in EVERY if name in runs},
        "unread": unread,
    }
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(everything) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--only", nargs="+", help="runs such as tied-0; all unless given")
    parser.add_argument("--file", type=Path, default=FILE, help="where the results go")
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script out: nothing is stored")
    options = parser.parse_args()
    settings = replace(SETTINGS, steps=options.steps, warmup=1) if options.steps else SETTINGS

    training, held_out, vocab_size = texts()
    config = config_for(vocab_size)
    for name in options.only or EVERY:
        folder = options.out / name
        kind, seed = name.split("-")
        if (folder / STATE).exists():
            run = resume(folder, training, held_out)
        else:
            run = Run(
                make_model(kind, config, int(seed)), replace(settings, seed=int(seed)), training, held_out
            )

        def show(row: LogRow, name: str = name) -> None:
            if row.validation_loss or row.step % 20 == 0:
                print(name, row, flush=True)

        train(run, folder, after_step=show)
        if not options.steps:
            store(folder, config, training, held_out, options.file)


if __name__ == "__main__":
    main()
