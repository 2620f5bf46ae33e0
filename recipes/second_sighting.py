"""Whether memories help at the second and third sighting of a word that the model never saw, or
found least likely.

python -m recipes.second_sighting words      # a model of words on a text with words that it never
saw python -m recipes.second_sighting learned    # the same, second sightings whose first one was
learned already, apart python -m recipes.second_sighting pieces     # a pretrained model of pieces
on documentation python -m recipes.second_sighting table      # what was found, as Markdown

The first three write ``recipes/second/*.json``. A model of pieces has every word: rare are those
whose first occurrence in the text costs the base most, a quarter of the types. Their later
occurrences chose nothing. It is asked for whole words at the second and third ones.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hebblm
from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.parts import Bootstrap, Gain, bootstrap_gains
from hebblm.report.result.tokens import FILE_NAME
from hebblm.report.tables.table import Column, Table
from hebblm.text.dictionary import EOS, UNK
from recipes.markdown import ROOT, body, gain_text

FOLDER = ROOT / "recipes" / "second"
METHODS = "lstm,dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb,ngram,best"
LEARNED, NOT_YET = "2nd, learned", "2nd, not yet"
RUNS: dict[str, dict[str, Any]] = {
    "words": {
        "title": "words that the model never saw (WikiText-2's model on Penn Treebank, not "
            "lower-cased)",
        "options": {"cross_domain": "wt2-to-ptb", "normalization": "raw", "preset": "small",
        "max_tokens": 10_000},
    },
    "learned": {
        "title": "the same words, where the first sighting was learned before the second one came, "
            "and where not",
        "options": {"cross_domain": "wt2-to-ptb", "normalization": "raw", "preset": "small",
        "max_tokens": 10_000},
        "methods": "lstm,cache,knn,ngram",
        "shown": (LEARNED, NOT_YET),
    },
    "pieces": {
        "title": "words that the model found least likely at first (SmolLM2-135M on NumPy's "
            "documentation)",
        "options": {"model": "smollm2-135m", "target": "numpy", "context": 1024,
        "max_tokens": 8_000,
                    "settings": {"dynamic.rule": "stream"}},
    },
}  # fmt: skip
SIGHTINGS = {"1st": (0, 1), "2nd": (1, 2), "3rd": (2, 3), "4th and later": (3, 10**9)}
RARE = 0.25  # of the types of a model of pieces
Mask = NDArray[np.bool_]


def rare_words(tokens: Any, seen: NDArray[np.int64], oov: Mask, base: NDArray[np.float64]) -> Mask:
    """Return which tokens (T,) are of words that the model never saw, or of the types that cost it
    most at first.
    """
    if oov.any():
        return oov
    words = np.asarray(tokens, dtype=object)
    first = (seen == 0) & ~np.isin(words, [EOS, UNK])
    bound = np.quantile(base[first], 1 - RARE)
    chosen = set(words[first & (base >= bound)].tolist())
    return np.array([word in chosen for word in words.tolist()])


def first_learned(tokens: Sequence[str], every: int) -> Mask:
    """Return which tokens (T,) are of words whose first sighting lies in an earlier interval."""
    first: dict[str, int] = {}
    return np.array(
        [first.setdefault(token, at) // every < at // every for at, token in enumerate(tokens)]
    )


def measured(folder: Path, bootstrap: Bootstrap, every: int | None = None) -> dict[str, Any]:
    """Return loss and top-5 accuracy of every method at each sighting, with gains over the base and
    their intervals.

    Where tokens are words and ``every`` of them are learned at a time, second sightings are split
    by whether the first one was learned.
    """
    table = pq.read_table(folder / FILE_NAME)
    columns = {
        name: table.column(name).to_numpy() for name in table.column_names if name != "token"
    }
    nll = {
        name.removeprefix("nll_"): columns[name].astype(np.float64)
        for name in columns
        if name.startswith("nll_")
    }
    five = {
        name: ((columns[f"rank_{name}"] > 0) & (columns[f"rank_{name}"] <= 5)).astype(np.float64)
        for name in nll
    }
    # a word that was not asked for has no rank
    asked = ~np.isnan(columns[f"rank_{BASE}"].astype(np.float64))
    tokens = table.column("token").to_pylist()
    rare = rare_words(tokens, columns["seen"], columns["is_oov"], nll[BASE])
    parts = {
        name: rare & (columns["seen"] >= low) & (columns["seen"] < high)
        for name, (low, high) in SIGHTINGS.items()
    }
    if every is not None:
        learned = first_learned(tokens, every)
        parts |= {LEARNED: parts["2nd"] & learned, NOT_YET: parts["2nd"] & ~learned}
    found: dict[str, Any] = {
        "words": {name: int(mask.sum()) for name, mask in parts.items()},
        "methods": {},
    }
    parts = {name: mask for name, mask in parts.items() if mask.any()}
    known = {name: mask & asked for name, mask in parts.items() if (mask & asked).any()}
    found["asked"] = {name: int(mask.sum()) for name, mask in known.items()}
    for measure, values, sign, masks in (("nll", nll, 1, parts), ("top5", five, -1, known)):
        gains = bootstrap_gains(
            {name: sign * value for name, value in values.items()}, masks, bootstrap
        )
        for name, value in values.items():
            of_method = found["methods"].setdefault(name, {})
            of_method[measure] = {
                part: {"value": float(value[mask].mean())} for part, mask in masks.items()
            }
            for gain in gains.get(name, ()):
                of_method[measure][gain.part] |= {
                    "gain": gain.gain,
                    "low": gain.low,
                    "high": gain.high,
                }
    return found


def sightings_of_rare_words(options: dict[str, Any]) -> list[int]:
    """Return the places of the second and third occurrences of the words that cost the base most at
    first.
    """
    with tempfile.TemporaryDirectory() as folder:
        hebblm.evaluate(methods=BASE, log_samples=True, output_path=folder, **options)
        table = pq.read_table(Path(folder) / FILE_NAME)
    tokens, oov, seen, nll = (
        table.column(name).to_numpy() for name in ("token", "is_oov", "seen", f"nll_{BASE}")
    )
    rare = rare_words(tokens, seen, oov, nll.astype(np.float64))
    return [int(place) for place in np.flatnonzero(rare & (seen >= 1) & (seen < 3))]


def run(name: str) -> None:
    """Evaluate one of them, and write what was found."""
    if (options := RUNS[name]["options"]).get("model"):
        options = {**options, "accuracy_words": sightings_of_rare_words(options)}
    with tempfile.TemporaryDirectory() as folder:
        result = hebblm.evaluate(
            methods=RUNS[name].get("methods", METHODS), accuracy=True, log_samples=True,
            output_path=folder,
            command=f"python -m recipes.second_sighting {name}", **options,
        )  # fmt: skip
        every = None if result.of_pieces else result.scenario.extra["update_every"]
        found = measured(Path(folder), result.bootstrap, every)
    scenario = {
        key: result.to_json()["scenario"][key]
        for key in ("source", "target", "split", "tokens", "oov_tokens")
    }
    seconds = {method: item.seconds for method, item in result.methods.items()}
    FOLDER.mkdir(exist_ok=True)
    document = {
        "scenario": scenario,
        "provenance": dict(result.provenance),
        "seconds": seconds,
        **found,
    }
    write_json(FOLDER / f"{name}.json", document)


def table(name: str) -> str:
    """Return the Markdown of one of them."""
    document = read_json(FOLDER / f"{name}.json")
    columns, shown = [Column("Method")], RUNS[name].get("shown", ("2nd", "3rd"))
    for part in shown:
        count = document["words"][part]
        asked = document.get("asked", document["words"])[part]
        five = "top 5, %" if asked == count else f"top 5 of {asked}, %"
        columns += [Column(f"{part} ({count}): nats"), Column("gain"), Column(five), Column("gain")]
    rows = [
        (
            name_of(method),
            *(cell for part in shown for cell in _cells(item, part, document["words"][part])),
        )
        for method, item in document["methods"].items()
    ]
    by = document["provenance"]
    made = f"`{by['command']}`, commit `{str(by['commit'])[:12]}`, seed {by['seed']}"
    shown = body(Table.of_cells(name, "", columns, rows))
    return f"{RUNS[name]['title']}\n\n{shown}\n{made}\n"


def _cells(item: dict[str, Any], part: str, count: int) -> tuple[str, ...]:
    cells: list[str] = []
    for measure, factor, decimals in (("nll", 1, 2), ("top5", 100, 1)):
        found = item[measure][part]
        ends = (
            None if (end := found.get(key)) is None else factor * end
            for key in ("gain", "low", "high")
        )
        gain = Gain(part, count, *ends)
        cells += [f"{factor * found['value']:.{decimals}f}", gain_text(gain, decimals)]
    return tuple(cells)


def main(words: list[str]) -> None:
    """Run what was asked for."""
    match words:
        case ["table"]:
            for name in RUNS:
                if (FOLDER / f"{name}.json").is_file():
                    print(table(name))
        case [name] if name in RUNS:
            run(name)
        case _:
            raise UserError(f"{words} is nothing to do; say {', '.join(RUNS)} or table")


if __name__ == "__main__":
    main(sys.argv[1:])
