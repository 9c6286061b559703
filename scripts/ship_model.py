"""Make a finished run the model that ships with the package: python scripts/ship_model.py RUN

It writes gptlab/assets/shakespeare: the weights as bfloat16, config and log of the run, and a README with the
losses, measured anew on what was written.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch

from gptlab import data
from gptlab.checkpoint import SHIPPED, load_checkpoint, save_checkpoint
from gptlab.training import LOG, evaluate, read_log

README = """# A small GPT that has read Shakespeare

{parameters:,} parameters, stored as bfloat16: {layers} blocks of {heads} heads, {width} wide, {context} positions,
GPT-2's vocabulary. Trained on the 39 works that ship with the package, on two CPU cores:

    gptlab train --out {run}

That is {steps:,} steps of {batch} windows of {context} tokens, {tokens:,} tokens in all, or {epochs:.1f} times the text.
`log.csv` has every step, `settings.json` every setting. Loss on the held-out works, in nats per token, is
**{validation:.4f}** ({before:.4f} in float32, before the weights were rounded). The same command gives the same losses,
bit for bit, on the same kind of machine with the same number of threads and version of PyTorch; on another one they
differ in their last digits at first, and then more.
"""


def main(run: Path) -> None:
    target = SHIPPED["shakespeare"]
    model = load_checkpoint(run)
    rows = read_log(run)
    settings = json.loads((run / "settings.json").read_text("utf-8"))
    save_checkpoint(model, target, dtype=torch.bfloat16)
    shutil.copy(run / LOG, target / LOG)
    shutil.copy(run / "settings.json", target)
    shipped = load_checkpoint(target, dtype=torch.float32)
    held_out = data.encode_documents(data.shakespeare("validation"))
    context, batch = settings["settings"]["context"], settings["settings"]["batch_size"]
    tokens = rows[-1].step * batch * context
    text = README.format(
        parameters=sum(p.numel() for p in shipped.parameters()),
        layers=model.config.n_layer,
        heads=model.config.n_head,
        width=model.config.n_embd,
        context=context,
        run=run.name,
        steps=rows[-1].step,
        batch=batch,
        tokens=tokens,
        epochs=tokens / len(data.encode_documents(data.shakespeare("train"))),
        validation=evaluate(shipped, held_out, batch, context),
        before=rows[-1].validation_loss,
    )
    (target / "README.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
