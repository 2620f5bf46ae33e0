"""What a model still knows while a memory of other texts is switched on: 200 common facts, and the
loss on other prose.

    python -m recipes.harm.measure smollm2-135m docs.txt code.txt --prose wt2 --output
    recipes/harm/smollm2.json

The memory reads the texts first. It learns nothing from the questions. The prose is read twice:
with nothing learned, then from its beginning as a reader reads by default, which learns how far to
trust its memory. Differences are paired: model alone less model with memory, so that a gain is
above 0; intervals are of 95 %.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hebblm
from hebblm.api.language_model import LanguageModel
from hebblm.io.files import sha256, write_json
from hebblm.io.provenance import provenance
from hebblm.reader.reader import Reader
from hebblm.text import resolve

PROG = "python -m recipes.harm.measure"
QUESTIONS = Path(__file__).with_name("questions.tsv")
BLOCK = 50  # tokens of prose whose losses count as one, as neighbours are alike


def interval(differences: Sequence[float]) -> dict[str, float]:
    """Return a mean of independent differences and its interval."""
    values = np.asarray(differences)
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return {
        "mean": float(values.mean()),
        "low": float(values.mean() - half),
        "high": float(values.mean() + half),
    }


def asked(reader: Reader, prompt: str, answer: str) -> tuple[float, bool]:
    """Return the loss of an answer, nats, and whether each of its pieces is the most probable
    one.
    """
    encode = reader.vocabulary.encode
    before = [*map(int, encode(prompt, include=False).ids)]
    whole = [*map(int, encode(f"{prompt} {answer}", include=False).ids)]
    assert whole[: len(before)] == before, f"{prompt!r} is split otherwise before its answer"
    rows = reader.log_probs(whole[:-1], last=len(whole) - len(before))
    targets = torch.tensor(whole[len(before) :])
    return -float(rows.gather(1, targets[:, None]).sum()), bool((rows.argmax(1) == targets).all())


def measured(
    lm: LanguageModel, method: str, texts: list[Path], pieces: int, prose: str
) -> dict[str, Any]:
    """Measure what is known with a memory of some texts and without."""
    reader, alone = lm.reader(method), lm.reader("base")
    for text in texts:
        ids = lm.vocabulary.encode(text.read_text(encoding="utf-8"), include=False).ids[:pieces]
        reader.read(ids)
        reader.begin()
    questions = [line.split("\t") for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    without = [asked(alone, *question) for question in questions]
    known = [asked(reader, *question) for question in questions]
    ids = lm.vocabulary.encode(prose, include=False).ids[:5000]
    prose_read = {}
    for name, learn in (("prose", False), ("prose, learned from", True)):
        reader.begin()
        scores = reader.read(ids, learn=learn)
        assert scores.unadapted is not None
        gains = (scores.unadapted.nll - scores.nll).double()
        prose_read[name] = {
            "pieces": len(gains),
            "alone": float(scores.unadapted.nll.mean()),
            "with memory": float(scores.nll.mean()),
            "gain": interval([float(part.mean()) for part in gains.split(BLOCK)]),
            "gain from the 2,000th on": interval(
                [float(part.mean()) for part in gains[2000:].split(BLOCK)]
            ),
        }
    return {
        "questions": len(questions),
        "accuracy": {
            "alone": float(np.mean([right for _, right in without])),
            "with memory": float(np.mean([right for _, right in known])),
        },
        "loss of an answer": {
            "alone": float(np.mean([loss for loss, _ in without])),
            "with memory": float(np.mean([loss for loss, _ in known])),
            "gain": interval(
                [before - after for (before, _), (after, _) in zip(without, known, strict=True)]
            ),
        },
        **prose_read,
    }


def main() -> int:
    """Measure every method asked for."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--methods", default="best,mixture+mbpa,knn,ngram")
    parser.add_argument("--pieces", type=int, default=10_000, help="of each text")
    parser.add_argument(
        "--prose", default="wt2", help="corpus whose test text begins with unrelated prose"
    )
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    lm = hebblm.load(options.model, context=options.context)
    prose = "".join(f"{line}\n" for line in resolve(options.prose).lines("test"))[:100_000]
    methods = {}
    for method in options.methods.split(","):
        methods[method] = found = measured(lm, method, options.texts, options.pieces, prose)
        print(
            method,
            found["accuracy"],
            found["loss of an answer"]["gain"],
            found["prose"]["gain"],
            found["prose, learned from"],
            flush=True,
        )
    write_json(
        options.output,
        {
            **provenance(f"{PROG} {shlex.join(sys.argv[1:])}", device="cpu", seed=0),
            "texts": {path.name: sha256(path) for path in options.texts},
            "methods": methods,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
