"""Does adaptation help generation? Answers of a reader that learned a text, next to those of the
model alone.

    python -m recipes.generation.measure smollm2-135m docs.txt --output recipes/generation/docs.json

Both read the text in order, with the same window. At evenly spaced places each writes 20 pieces,
greedy and drawn at temperature 1, and goes on reading. "Matches" is the share of the pieces that
are the text's own at their place. "Perplexity" is what the model alone finds in an answer, a piece,
after the text in its window. Intervals are of 95 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hebblm
from hebblm.api.language_model import LanguageModel
from hebblm.io.files import check_writable, sha256, write_json
from hebblm.io.provenance import command_line, provenance
from hebblm.reader.reader import Reader
from hebblm.runtime.progress import log

PROG = "python -m recipes.generation.measure"
LENGTH = 20  # pieces of an answer
DRAWN = {"greedy": 0.0, "sampled": 1.0}  # temperature


def described(
    lm: LanguageModel, alone: Reader, answer: str, own: Sequence[int]
) -> dict[str, float]:
    """Measure what an answer has in common with the text's own pieces, how varied it is, and how
    the model finds it.
    """
    assert lm.pieces is not None
    ids = lm.pieces.ids(answer)[:LENGTH]
    same = [one == other for one, other in zip(ids, own, strict=False)]
    grams = {
        f"distinct {n}-grams": [*zip(*(ids[k:] for k in range(n)), strict=False)] for n in (1, 2, 4)
    }
    [found] = alone.rank([answer])
    return {
        "matches": sum(same) / LENGTH,
        "first pieces right": float(same.index(False) if False in same else len(same)),
        "nats a piece": -found.unadapted / found.tokens,
        **{name: len(set(rows)) / len(rows) for name, rows in grams.items() if rows},
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return a mean and its interval."""
    row = np.asarray(values)
    half = 1.96 * row.std(ddof=1) / len(row) ** 0.5
    return {
        "mean": float(row.mean()),
        "low": float(row.mean() - half),
        "high": float(row.mean() + half),
    }


def compared(rows: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return means of both kinds of answers and the paired difference, adapted less alone, for
    every measure.
    """
    found = {}
    for name in rows[0]["adapted"]:
        pairs = [
            (row["adapted"][name], row["alone"][name])
            for row in rows
            if name in row["adapted"].keys() & row["alone"]
        ]
        adapted, alone = ([pair[side] for pair in pairs] for side in (0, 1))
        found[name] = {
            "adapted": float(np.mean(adapted)),
            "alone": float(np.mean(alone)),
            "difference": interval([one - other for one, other in pairs]),
        }
    return found


def measured(
    lm: LanguageModel, method: str, text: str, prompts: int, most: int, first: int
) -> dict[str, Any]:
    """Return how both answer at places from ``first`` on, within the first ``most`` pieces."""
    assert lm.pieces is not None
    ids = lm.pieces.ids(text)[:most]
    readers = {"adapted": lm.reader(method), "alone": lm.reader("base")}
    places = np.linspace(first, len(ids) - LENGTH, prompts).astype(int).tolist()
    rows: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in DRAWN}
    at = 0
    for number, place in enumerate(places):
        for reader in readers.values():
            reader.read(ids[at:place])
        at = place
        for name, temperature in DRAWN.items():
            answers = {
                who: reader.generate(max_new_tokens=LENGTH, temperature=temperature, seed=number)
                for who, reader in readers.items()
            }
            if all(answers.values()):
                own = ids[place : place + LENGTH]
                found = {
                    who: described(lm, readers["alone"], answer, own)
                    for who, answer in answers.items()
                }
                rows[name].append(found)
        log(f"{number + 1} of {prompts} prompts")
    return {
        "pieces": len(ids),
        **{name: {"prompts": len(each), "measures": compared(each)} for name, each in rows.items()},
    }


def main() -> int:
    """Measure one text."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--method", default="best")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument(
        "--pieces", type=int, default=25_000, help="of the text, the last prompt at their end"
    )
    parser.add_argument("--first", type=int, default=5_000, help="pieces before the first prompt")
    parser.add_argument("--context", type=int, default=4_096)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    check_writable(options.output.parent)
    lm = hebblm.load(options.model, context=options.context)
    text = options.text.read_text(encoding="utf-8")
    found = measured(lm, options.method, text, options.prompts, options.pieces, options.first)
    for name in DRAWN:
        for measure, row in found[name]["measures"].items():
            print(name, measure, row, flush=True)
    about = provenance(
        "python -m " + command_line("recipes.generation.measure", sys.argv[1:]),
        device="cpu",
        seed=0,
    )
    write_json(
        options.output,
        {
            **about,
            "text": {options.text.name: sha256(options.text)},
            "method": options.method,
            "context": options.context,
            **found,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
