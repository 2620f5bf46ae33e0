"""Next words on texts of one's own: right first and among three, by a lookup of followers and by
readers.

    python -m recipes.lookup smollm2-135m --texts reporting --output recipes/lookup/after.json

A reader reads the first three quarters of a text. Then beginnings of lines of the rest are to go
on, each a text of its own; punctuation at a word's end does not count. Differences are paired, in
shares of the prompts. Prompts of one line are no independent ones: intervals of 95 % count a line
once.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hebblm
from hebblm.api.language_model import LanguageModel
from hebblm.io.files import read_json, write_json
from hebblm.io.provenance import provenance
from hebblm.runtime.progress import track
from recipes.lookup.followers import Followers
from recipes.lookup.prompts import CUTS, SEED, Prompt, bare
from recipes.lookup.texts import CHOOSING, REPORTING, TEXTS, Text

PROG = "python -m recipes.lookup"
GROUPS = {"choosing": list(CHOOSING), "reporting": list(REPORTING), "all": list(TEXTS)}
LOOKUP = "lookup"
METHODS = f"{LOOKUP},base,ngram,knn,best"
SHOWN = 3
MEASURES = ("first", "among three")
Suggest = Callable[[str, str], Sequence[str]]  # words for a context and the letters typed after it


def suggesting(name: str, lm: LanguageModel, text: Text, budget: int | None) -> Suggest:
    """Return a function that suggests words, by the lookup or by a method that read the learned
    part.
    """
    if name == LOOKUP:
        followers = Followers(text.learned)
        return lambda context, typed: [
            word for word in followers.suggest(context) if word.startswith(typed)
        ]
    reader = lm.reader(name)
    reader.read(text.learned, name="learned")
    reader.begin()
    return lambda context, typed: [
        bare(word) for word, *_ in reader.suggest(context, n=SHOWN, typed=typed, budget=budget)
    ]


def right(
    prompts: Sequence[Prompt], suggest: Suggest, title: str, letters: int
) -> NDArray[np.bool_]:
    """Return for each prompt (P, 2) whether the right word comes first, and whether among three."""
    found = []
    for prompt in track(prompts, title, len(prompts), "prompts"):
        word = bare(prompt.word)
        words = list(suggest(prompt.context, word[:letters]))[:SHOWN]
        found.append((words[:1] == [word], word in words))
    return np.array(found)


def line_of(prompt: Prompt) -> str:
    """Return the words that all prompts of one line begin with."""
    return " ".join(prompt.context.split()[: CUTS.start])


def difference(
    one: NDArray[np.bool_], other: NDArray[np.bool_], lines: Sequence[str]
) -> dict[str, float]:
    """Return how much more often one is right than the other, and its interval; each line counts
    once.
    """
    more = one.astype(float) - other
    mean = more.mean()
    number = np.unique(np.array(lines), return_inverse=True)[1]
    sums = np.bincount(number, more - mean)
    half = 1.96 * np.sqrt(np.square(sums).sum()) / len(more)
    return {"more": float(mean), "low": float(mean - half), "high": float(mean + half)}


def measured(
    lm: LanguageModel,
    name: str,
    methods: Sequence[str],
    count: int,
    budget: int | None = None,
    letters: int = 0,
) -> dict[str, Any]:
    """Measure methods on the prompts of one text."""
    text = TEXTS[name]()
    prompts = [prompt for prompt in text.prompts(count) if len(bare(prompt.word)) > letters]
    lines = [line_of(prompt) for prompt in prompts]
    found = {
        each: right(prompts, suggesting(each, lm, text, budget), f"{name}, {each}", letters)
        for each in methods
    }
    rows: dict[str, Any] = {}
    for method, own in found.items():
        rows[method] = {measure: int(own[:, at].sum()) for at, measure in enumerate(MEASURES)}
        for other in (LOOKUP, "base"):
            if other in found and other != method and method != LOOKUP:
                rows[method][f"over {other}"] = {
                    measure: difference(own[:, at], found[other][:, at], lines)
                    for at, measure in enumerate(MEASURES)
                }
    return {"prompts": len(prompts), "lines": len(set(lines)), "methods": rows}


def main() -> int:
    """Measure the texts asked for; those that are in the output already are left out."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("model")
    parser.add_argument(
        "--texts", default="reporting", help=f"{', '.join(GROUPS)}, or names with commas"
    )
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--prompts", type=int, default=80, help="of each text, at most")
    parser.add_argument(
        "--budget", type=int, help="most beginnings of words that one answer follows"
    )
    parser.add_argument(
        "--letters",
        type=int,
        default=0,
        help="of each word that are typed; shorter words are left out",
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = GROUPS.get(options.texts) or options.texts.split(",")
    lm = hebblm.load(options.model)
    texts = read_json(options.output)["texts"] if options.output.is_file() else {}
    for name in names:
        if name in texts:
            continue
        methods = options.methods.split(",")
        texts[name] = measured(lm, name, methods, options.prompts, options.budget, options.letters)
        about = provenance(f"{PROG} {shlex.join(sys.argv[1:])}", device="cpu", seed=SEED)
        write_json(options.output, {**about, "texts": texts})
        for method, row in texts[name]["methods"].items():
            print(f"{name:24} {method:8} first {row['first']:3}, among three "
                f"{row['among three']:3} of "
                  f"{texts[name]['prompts']}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
