"""Whether the compiled forms give the losses of plain torch: mean loss and largest difference of a
token, by form and text.

Each form is a process of its own, for it is chosen when hebblm is imported. A text is a file or a
corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hebblm.io.files import write_json
from hebblm.io.provenance import provenance
from recipes.bench.machine import cpu_name

PROG = "python -m recipes.bench.forms"
PLAIN = "torch"
FORMS = (PLAIN, "float32", "bfloat16")
CHILD = """
import json, sys
import torch
given = json.loads(sys.argv[1])
torch.set_num_threads(given["threads"])
import hebblm
from recipes.parts import read
options = {"context": given["context"]} if given["context"] else {}
lm = hebblm.load(given["model"], device="cpu", **options)
found = {}
for text in given["texts"]:
    losses = read(lm, text, given["tokens"])
    found[text] = {name: each.tolist() for name, each in losses.items()}
print(json.dumps(found))
"""


def losses_by(form: str, given: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return the losses (T,) in nats of each text by each method, in one form."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given)],
        env={**os.environ, "HEBBLM_KERNELS": form},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(plain: list[float], other: list[float]) -> dict[str, float]:
    """Return the change of the mean loss by a form, and of the token that it changes most, nats."""
    change = np.array(other) - np.array(plain)  # (T,)
    return {"mean": float(change.mean()), "token": float(np.abs(change).max())}


def main() -> None:
    """Read every text in every form, and write JSON."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("texts", nargs="+", help="files, or corpora such as ptb")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--context", type=int, default=1024, help="0 for a model without windows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    asked = parser.parse_args()
    given = {
        "model": asked.model,
        "texts": asked.texts,
        "tokens": asked.tokens,
        "context": asked.context,
        "threads": asked.threads,
    }
    found = {form: losses_by(form, given) for form in FORMS}
    texts: dict[str, Any] = {}
    for text in asked.texts:
        plain = found[PLAIN][text]
        texts[text] = {
            method: {
                "nats": float(np.mean(losses)),
                "tokens": len(losses),
                **{form: compared(losses, found[form][text][method]) for form in FORMS[1:]},
            }
            for method, losses in plain.items()
        }
        print(text, texts[text], flush=True)
    command = f"{PROG} {shlex.join(sys.argv[1:])}"
    record = {**provenance(command, device="cpu", seed=0), "cpu": cpu_name()}
    write_json(asked.json, {"provenance": record, "settings": given, "texts": texts})


if __name__ == "__main__":
    main()
