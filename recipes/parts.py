"""Is ``best`` ever worse than one of its parts? Its lead over the best of them on each text of a folder.

    python -m recipes.parts smollm2-135m FOLDER --max-tokens 5000 --output recipes/parts/smollm2.json

Every .txt file of FOLDER is read by itself, with a memory that begins empty. The lead is the loss of the part that is
the best one on the first n tokens of that text, less that of ``best``: a part chosen with the answer in hand.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import hebblm
from hebblm.files import read_json, sha256, write_json
from hebblm.language_model import LanguageModel
from hebblm.provenance import provenance

PROG = "python -m recipes.parts"
PARTS = ("lstm", "cache", "knn", "mbpa", "ngram")
BEST = "best"
LENGTHS = (2_000, 5_000, 20_000)


def read(lm: LanguageModel, text: Path, most: int) -> dict[str, dict[str, Any]]:
    """Return for each length the mean loss of every part and of ``best``, nats a token or piece."""
    found: dict[str, dict[str, Any]] = {}
    for length in sorted({min(length, most) for length in LENGTHS}):
        result = hebblm.evaluate(lm, str(text), [*PARTS, BEST], max_tokens=length, device="cpu")
        means = {name: each.nll if each.piece_nll is None else each.piece_nll for name, each in result.methods.items()}
        part = min(PARTS, key=means.__getitem__)
        scored = int(result.scenario.extra.get("pieces", result.scenario.tokens))
        found[str(scored)] = {**means, "part": part, "lead": means[part] - means[BEST]}
        if scored < length:  # the text ends before
            break
    return found


def main() -> int:
    """Read all texts of a folder, those that are in the output already left out."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-tokens", type=int, default=LENGTHS[-1])
    parser.add_argument("--context", type=int)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    lm = hebblm.load(options.model, **({} if options.context is None else {"context": options.context}))
    texts = read_json(options.output)["texts"] if options.output.is_file() else {}
    for path in sorted(options.folder.glob("*.txt")):
        if path.stem in texts:
            continue
        lengths = read(lm, path, options.max_tokens)
        texts[path.stem] = {"sha256": sha256(path), "bytes": path.stat().st_size, "lengths": lengths}
        about = provenance(f"{PROG} {shlex.join(sys.argv[1:])}", device="cpu", seed=0)
        write_json(options.output, {**about, "texts": texts})
        for length, row in lengths.items():
            print(f"{path.stem:14} {length:>6} tokens: {row['lead']:+.4f} over {row['part']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
