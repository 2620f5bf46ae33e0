"""Is ``best`` ever worse than one of its parts? Its lead over the best of them on each text of a
folder.

    python -m recipes.parts smollm2-135m FOLDER --max-tokens 20000 --output
    recipes/parts/smollm2.json

Every .txt file of FOLDER is read once, with a memory that begins empty. The lead is the loss of the
part that is the best one on the first n tokens of that text, less that of ``best``: a part chosen
with the answer in hand.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hebblm
from hebblm.adapt.methods import METHODS
from hebblm.api.language_model import LanguageModel
from hebblm.api.request import Request
from hebblm.evaluation.passes import shared_pass
from hebblm.io.files import read_json, sha256, write_json
from hebblm.io.provenance import provenance

PROG = "python -m recipes.parts"
PARTS = ("lstm", "cache", "knn", "mbpa", "ngram")
BEST = "best"
LENGTHS = (2_000, 5_000, 20_000)


def leads(losses: Mapping[str, NDArray[np.float32]]) -> dict[str, dict[str, Any]]:
    """Return for each length the mean loss of every part and of ``best``; ``losses`` (T,) are those
    of the tokens.
    """
    found: dict[str, dict[str, Any]] = {}
    tokens = len(losses[BEST])
    for length in sorted({min(length, tokens) for length in LENGTHS}):
        means = {name: float(each[:length].mean(dtype=np.float64)) for name, each in losses.items()}
        part = min(PARTS, key=means.__getitem__)
        found[str(length)] = {**means, "part": part, "lead": means[part] - means[BEST]}
    return found


def read(lm: LanguageModel, text: str | Path, most: int) -> dict[str, NDArray[np.float32]]:
    """Return the losses (T,) of every part and of ``best`` on the first tokens or pieces of a text,
    nats.
    """
    request = Request.of(lm, text, max_tokens=most, device="cpu")
    scenario, _ = request.open("evaluate", PROG)
    predictors = {
        name: METHODS[name].predictor(request.settings.methods) for name in (*PARTS, BEST)
    }
    return shared_pass(scenario, predictors, request.settings).scores.nll


def main() -> int:
    """Read all texts of a folder, those that are in the output already left out."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-tokens", type=int, default=LENGTHS[-1])
    parser.add_argument("--context", type=int)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    lm = hebblm.load(
        options.model, **({} if options.context is None else {"context": options.context})
    )
    texts = read_json(options.output)["texts"] if options.output.is_file() else {}
    for path in sorted(options.folder.glob("*.txt")):
        if path.stem in texts:
            continue
        lengths = leads(read(lm, path, options.max_tokens))
        texts[path.stem] = {
            "sha256": sha256(path),
            "bytes": path.stat().st_size,
            "lengths": lengths,
        }
        about = provenance(f"{PROG} {shlex.join(sys.argv[1:])}", device="cpu", seed=0)
        write_json(options.output, {**about, "texts": texts})
        for length, row in lengths.items():
            print(
                f"{path.stem:14} {length:>6} tokens: {row['lead']:+.4f} over {row['part']}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
