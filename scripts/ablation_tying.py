"""Does tying help? Train a small GPT-2 tied, untied, and untied from equal tables, with three seeds each.

    OMP_NUM_THREADS=1 python scripts/ablation_tying.py --out /tmp/tying                 all nine runs
    OMP_NUM_THREADS=1 python scripts/ablation_tying.py --out /tmp/tying --only tied-0   one of them

Each run writes a folder under --out with its log and its state, and goes on from there if it was interrupted. When all
nine are there, their curves go into gptlab/assets/tying-ablation.json with the settings they were made with, from
which chapter 7 repeats the first steps. The three kinds of a seed see the same batches and start from the same
weights, but for the head. A run takes three minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gptlab import tying
from gptlab.config import GPTConfig
from gptlab.data import Tokens, encode_documents, shakespeare
from gptlab.files import replacing
from gptlab.model import GPT
from gptlab.tokenizer import get_tokenizer
from gptlab.training import LOG, STATE, LogRow, Run, TrainingSettings, read_log, resume, train

FILE = Path(__file__).resolve().parents[1] / "gptlab/assets/tying-ablation.json"
KINDS = ("tied", "untied", "copied")
SEEDS = (0, 1, 2)
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
    """The three kinds. With one seed they share every weight that they have in common."""
    torch.manual_seed(seed)
    model = GPT(replace(config, tie_word_embeddings=kind != "untied"))
    if kind == "copied":
        tying.untie(model)
    return model


def results(out: Path, config: GPTConfig, tokens: tuple[int, int]) -> dict[str, Any]:
    """Everything that the chapter needs, from the folders of the nine runs."""
    runs = {}
    for kind in KINDS:
        for seed in SEEDS:
            folder = out / f"{kind}-{seed}"
            rows = read_log(folder)
            state = torch.load(folder / STATE, weights_only=True)["model"]
            cosine = torch.cosine_similarity(state["wte.weight"], state["lm_head.weight"])
            runs[f"{kind}-{seed}"] = {
                "loss": [round(row.loss, 4) for row in rows],
                "held_out": [[r.step, round(r.validation_loss, 4)] for r in rows if r.validation_loss],
                "cosine": round(cosine.mean().item(), 4),
            }
    settings = {**asdict(SETTINGS), "betas": list(SETTINGS.betas)}
    training, held_out = tokens
    return {
        "made by": "scripts/ablation_tying.py",
        "config": asdict(config),
        "settings": settings,
        "training tokens": training,
        "held-out tokens": held_out,
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--only", nargs="+", help="runs such as tied-0; all unless given")
    parser.add_argument("--file", type=Path, default=FILE, help="where the results go")
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script out")
    options = parser.parse_args()
    settings = replace(SETTINGS, steps=options.steps, warmup=1) if options.steps else SETTINGS

    training, held_out, vocab_size = texts()
    config = config_for(vocab_size)
    every = [f"{kind}-{seed}" for seed in SEEDS for kind in KINDS]
    for name in options.only or every:
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
    complete = [name for name in every if (options.out / name / LOG).exists()]
    if complete == every and all(len(read_log(options.out / name)) == settings.steps for name in every):
        found = results(options.out, config, (len(training), len(held_out)))
        with replacing(options.file) as temporary:
            temporary.write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    main()
