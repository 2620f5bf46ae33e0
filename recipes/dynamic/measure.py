"""Measures dynamic evaluation without a training text: what it gains over the base, its time and
memory.

    python recipes/dynamic/measure.py FOLDER --learns default norm lm_head,norm --output-path
    results/dynamic.json

FOLDER is a model as ``hebblm.load`` takes it. The texts are the beginnings of validation text and
of a module of Python's library; none of them is a test text. Time is that of the processor, which
other programs do not change.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import torch

import hebblm
from hebblm.api.language_model import LanguageModel
from hebblm.io.files import read_json, write_json
from hebblm.io.provenance import provenance
from hebblm.text import resolve

EVERY = 50
SETTLED = 500  # pieces from which on the worst place counts
DEFAULT = "default"


def texts(characters: int) -> dict[str, str]:
    """Return the beginning of each text."""
    library = Path(textwrap.__file__).with_name("argparse.py")
    whole = {
        name: "".join(f"{line}\n" for line in resolve(name).lines("valid"))
        for name in ("wt2", "ptb")
    }
    return {
        name: text[:characters] for name, text in {**whole, "python": library.read_text()}.items()
    }


def peak() -> float:
    """Return the largest memory of the process since the last call, in MB."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) / 1024


def measured(
    lm: LanguageModel, method: str, text: str, settings: dict[str, Any]
) -> tuple[Any, dict[str, float]]:
    """Return a reader's scores of a text, and what they cost."""
    reader = lm.reader(method, update_every=EVERY, settings=settings)
    peak()
    begun = time.process_time()
    scores = reader.read(text)
    return scores, {"cpu_seconds": time.process_time() - begun, "peak_mb": peak()}


def compared(lm: LanguageModel, text: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Measure what dynamic evaluation gains on a text over the base."""
    scores, cost = measured(lm, "dynamic", text, settings)
    gain = (scores.unadapted.nll - scores.nll).double()
    means = gain.cumsum(0) / torch.arange(1, len(gain) + 1)
    return {
        "pieces": len(gain),
        "base_nats": float(scores.unadapted.nll.double().mean()),
        "gain_nats": float(gain.mean()),
        "gain_by_quarter": [float(part.mean()) for part in torch.tensor_split(gain, 4)],
        "worst_behind": float(-means[SETTLED:].min()) if len(gain) > SETTLED else None,
        **cost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--learns", nargs="+", default=[DEFAULT])
    parser.add_argument("--texts", nargs="+", default=["wt2", "ptb", "python"])
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--set", nargs="*", default=["dynamic.rule=stream"])
    parser.add_argument("--output-path", type=Path, required=True)
    args = parser.parse_args()
    settings = dict(pair.split("=") for pair in args.set)
    runs = read_json(args.output_path)["runs"] if args.output_path.exists() else []
    read = texts(args.characters)
    for name in args.texts:
        for learns in args.learns:
            lm = hebblm.load(
                args.model, device="cpu", **({} if learns == DEFAULT else {"learns": learns})
            )
            learning = sum(p.numel() for p in lm.model.base().parameters().values())
            _, base = measured(lm, "lstm", read[name], {})
            found = compared(lm, read[name], settings)
            run = {
                "model": Path(args.model).name,
                "text": name,
                "learns": learns,
                "weights": learning,
            }
            runs.append({**run, "settings": settings, "update_every": EVERY, **found, "base": base})
            print(runs[-1], flush=True)
            document = {
                "runs": runs,
                "provenance": provenance(" ".join(["python", *sys.argv]), device="cpu", seed=0),
            }
            write_json(args.output_path, document)


if __name__ == "__main__":
    main()
