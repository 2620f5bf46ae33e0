"""The tables of recipes/conclusions.md: what the conclusions hang on, from the token losses of
conclusions.sh.

Usage: python -m recipes.conclusions RESULTS FILE, which writes losses, paired intervals and what
made each run to a file, recipes/conclusions.json for the pages; earlier numbers of a run stay there
until it is made again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hebblm.adapt.methods import PUBLISHED
from hebblm.io.files import read_json, write_json
from hebblm.report import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.result.parts import Bootstrap, Gain, Losses, bootstrap_gains
from hebblm.report.result.tokens import TokenLosses
from hebblm.report.tables.table import Column, Table
from recipes.markdown import body, gain_text

SCHEMA = "hebblm-conclusions/1"
FOUND = Path(__file__).with_name("conclusions.json")
RESULTS = FOUND.with_name("results")
CONSTANTS = ("0.001", "0.1", "1")
INTERVALS = ("100", "50", "10", "1")
REGIMES = {"base-stays": "stays", "base-sgd": "SGD at 10", "base-rmsprop": "RMSprop at 1e-4"}
ROWS = {"base-stays": "rows of zeros", "base-joint": "rows from training"}
SEEDS = ("1111", "2", "3")
CLASSES = {"classes-all": "default", "classes-all-tuned": "best on validation text"}
DYNAMIC = {
    "dynamic-published": "published",
    "dynamic-tuned-50": "tuned, segments of 50",
    "dynamic-tuned-20": "tuned, segments of 20",
    "dynamic-tuned-5": "tuned, segments of 5",
}
ONE_INTERVAL = {
    "interval-wt2-to-ptb": "wt2 to ptb",
    "interval-wt2": "wt2",
    "interval-ptb": "ptb",
    "dynamic-tuned-50": "every 50",
    "dynamic-tuned-20": "every 20",
    "dynamic-tuned-5": "every 5",
}
SPELLING = "n't"  # Penn Treebank's; WikiText-2 writes 't


def paired(
    ours: Losses, theirs: Losses, where: np.typing.NDArray[np.bool_] | None = None, block: int = 200
) -> Gain:
    """Return the gain of ``theirs`` (T,) over ``ours`` (T,), nats, with a paired block-bootstrap
    interval.
    """
    part = {"All": np.ones(len(ours), bool) if where is None else where}
    return bootstrap_gains({BASE: ours, "other": theirs}, part, Bootstrap(block=block))["other"][0]


def by_type(words: np.typing.NDArray[np.object_], losses: Losses) -> Losses:
    """Return the mean loss of each different word (U,), in the order of the words."""
    _, types = np.unique(words, return_inverse=True)
    return np.bincount(types, weights=losses) / np.bincount(types)


def collect(results: Path, file: Path) -> None:
    """Write what the runs found; what earlier ones found stays where a run is not there."""
    runs = {path.parent.name: path for path in sorted(results.glob("*/result.json"))}
    found = {name: Result.load(path) for name, path in runs.items()}
    tokens = {
        name: TokenLosses.load(path.with_name("tokens.parquet"), found[name])
        for name, path in runs.items()
    }
    nll = {name: item.nll for name, item in tokens.items()}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "runs": {},
        "constant": {},
        "dynamic": {},
        "freshness": {},
    }
    document |= read_json(file) if file.exists() else {}
    document["runs"] |= {
        name: {
            "provenance": dict(result.provenance),
            "tokens": result.scenario.tokens,
            "nll": {method: item.nll for method, item in result.methods.items()},
            "oov_nll": {method: item.oov_nll for method, item in result.methods.items()},
        }
        for name, result in found.items()
    }
    for c in CONSTANTS:
        if f"eps-{c}" in found:
            document["constant"][c] = asdict(
                paired(nll[f"eps-{c}"]["mbpa"], nll[f"eps-{c}"]["hebb"])
            )
    if "dynamic-every-50" in nll:
        default = nll["dynamic-every-50"]["dynamic"]
        document["dynamic"] |= {
            run: asdict(paired(default, nll[run]["dynamic"])) for run in DYNAMIC if run in nll
        }
    document["freshness"] |= _freshness(nll)
    if "new-words" in found:
        document["new_words"] = _new_words(tokens["new-words"])
    for part, names in (("regimes", REGIMES), ("seeds", [f"seed-{seed}" for seed in SEEDS])):
        gains = {run: _over(nll[run]) for run in names if run in nll}
        document.setdefault(part, {}).update(gains)
    document.setdefault("interval", {}).update(
        {run: _over(nll[run], beside="dynamic") for run in ONE_INTERVAL if run in nll}
    )
    document.setdefault("rows", {}).update(
        {run: _over(nll[run], tokens[run].oov) for run in ROWS if run in tokens}
    )
    document.setdefault("classes", {}).update(
        {run: _by_newness(tokens[run]) for run in CLASSES if run in tokens}
    )
    write_json(file, document)


def _over(
    nll: Mapping[str, Losses], where: np.typing.NDArray[np.bool_] | None = None, beside: str = BASE
) -> dict[str, Any]:
    """Return the gains of every method of a run over one of them, by default over the base."""
    return {
        name: asdict(paired(nll[beside], losses, where))
        for name, losses in nll.items()
        if name != beside
    }


def _by_newness(tokens: TokenLosses) -> dict[str, Any]:
    """Return the gain of Hebb over MbPA on all tokens, on known words and on new ones."""
    parts = {"all": np.ones(len(tokens.oov), bool), "known": ~tokens.oov, "new": tokens.oov}
    return {
        part: asdict(paired(tokens.nll["mbpa"], tokens.nll["hebb"], where))
        for part, where in parts.items()
    }


def _freshness(nll: Mapping[str, Mapping[str, Losses]]) -> dict[str, dict[str, Any]]:
    """Return by method what learning sooner than every 100 tokens gains, where all of its runs are
    there.
    """
    found = {}
    for name in PUBLISHED:
        seldom, *sooner = _runs_of(name)
        if name != BASE and {seldom, *sooner} <= set(nll):
            found[name] = {
                run.rpartition("-")[2]: asdict(paired(nll[seldom][name], nll[run][name]))
                for run in sooner
            }
    return found


def _runs_of(method: str) -> list[str]:
    """Return the runs that say how soon a method learns, the seldomest first."""
    run = f"{method}-every" if method in ("dynamic", "cache") else "every"
    return [f"{run}-{every}" for every in (INTERVALS[:-1] if method == "dynamic" else INTERVALS)]


def _new_words(tokens: TokenLosses) -> dict[str, Any]:
    """Return losses on new words, all, without one of another spelling, and by type; and gains over
    the cache.
    """
    new, other = tokens.oov, tokens.oov & (tokens.words != SPELLING)
    words = tokens.words[new]

    def parts(losses: Losses) -> tuple[Losses, ...]:
        return losses[new], losses[other], by_type(words, losses[new])

    cache = tokens.nll["cache"]
    found = {}
    for name, losses in tokens.nll.items():
        gains = (
            paired(cache, losses, new),
            paired(cache, losses, other),
            paired(by_type(words, cache[new]), by_type(words, losses[new]), block=1),
        )
        found[name] = {
            "nll": [float(part.mean()) for part in parts(losses)],
            "over_cache": [asdict(gain) for gain in gains],
        }
    counts = [int(new.sum()), int(other.sum()), len(np.unique(words))]
    return {"counts": counts, "methods": found}


def _said(gain: Mapping[str, Any]) -> str:
    return gain_text(Gain(**gain))


def _origins(document: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the origin of some runs."""
    lines = []
    for name in names:
        made = document["runs"][name]["provenance"]
        lines.append(
            f"- `{made['command']}`, commit `{str(made['commit'])[:12]}`, seed {made['seed']}"
        )
    return "\n".join(lines)


def _page(table: Table, names: Sequence[str]) -> str:
    """Return a table and the commands that made it."""
    made = body(table).replace("\\`", "`")
    return f"{made}\n{_origins(read_json(FOUND), names)}\n"


def constant() -> str:
    """Return MbPA and Hebb with the paper's values and three constants of the closeness."""
    document = read_json(FOUND)
    columns = (
        Column("eps"),
        Column("MbPA, perplexity", "perplexity", "min"),
        Column("Hebb, perplexity", "perplexity", "min"),
        Column("Hebb over MbPA, nats", "signed"),
    )
    rows: list[tuple[Cell, ...]] = []
    for value in CONSTANTS:
        nll = document["runs"][f"eps-{value}"]["nll"]
        perplexities = (float(np.exp(nll[name])) for name in ("mbpa", "hebb"))
        rows.append((value, *perplexities, _said(document["constant"][value])))
    return _page(
        Table.of_cells("constant", "", columns, tuple(rows)),
        [f"eps-{value}" for value in CONSTANTS],
    )


def published() -> str:
    """Return dynamic evaluation at its default, its published and its tuned values."""
    document = read_json(FOUND)
    columns = (
        Column("Values"),
        Column("Perplexity", "perplexity", "min"),
        Column("Over the default", "signed"),
    )
    runs = ["dynamic-every-50", *DYNAMIC]
    perplexities = [float(np.exp(document["runs"][run]["nll"]["dynamic"])) for run in runs]
    rows: list[tuple[Cell, ...]] = [("default", perplexities[0], None)]
    for (run, title), perplexity in zip(DYNAMIC.items(), perplexities[1:], strict=True):
        rows.append((title, perplexity, _said(document["dynamic"][run])))
    return _page(Table.of_cells("published", "", columns, tuple(rows)), runs)


def interval() -> str:
    """Return the gains of methods over dynamic evaluation where all learn equally often: defaults,
    then it tuned.
    """
    document, runs = read_json(FOUND), list(ONE_INTERVAL)
    pages = []
    for some in (runs[:3], runs[3:]):
        columns = [Column("Method")]
        for run in some:
            columns += [
                Column(f"{ONE_INTERVAL[run]}: nats", "nll", "min", decimals=3),
                Column("over dynamic evaluation", "signed"),
            ]
        pages.append(
            _page(
                Table.of_cells("interval", "", tuple(columns), _beside(document, "interval", some)),
                some,
            )
        )
    return "\n".join(pages)


def freshness() -> str:
    """Return the gain of learning sooner."""
    document = read_json(FOUND)
    columns = (
        Column("Method"),
        Column("every 100, nats", "nll", "min", decimals=3),
        *(Column(f"every {every}", "signed") for every in INTERVALS[1:]),
    )
    rows: list[tuple[Cell, ...]] = []
    for name in PUBLISHED:
        if name in document["freshness"]:
            run = _runs_of(name)[0]
            gains = document["freshness"][name]
            said = (_said(gains[every]) if every in gains else None for every in INTERVALS[1:])
            rows.append((name_of(name), document["runs"][run]["nll"][name], *said))
    names = [run for method in ("mbpa", "cache", "dynamic") for run in _runs_of(method)]
    return _page(Table.of_cells("freshness", "", columns, tuple(rows)), names)


def regimes() -> str:
    """Return the gains of methods over a base that stays as trained, and over one that learns."""
    document = read_json(FOUND)
    columns = [Column("Method")]
    for title in REGIMES.values():
        columns += [
            Column(f"base {title}: nats", "nll", "min", decimals=3),
            Column("over it", "signed"),
        ]
    return _page(
        Table.of_cells("regimes", "", tuple(columns), _beside(document, "regimes", list(REGIMES))),
        list(REGIMES),
    )


def rows() -> str:
    """Return losses on new words whose rows begin with zeros, and on those whose rows were there in
    training.
    """
    document = read_json(FOUND)
    columns = [Column("Method")]
    for title in ROWS.values():
        columns += [
            Column(f"{title}: all words, nats", "nll", "min", decimals=3),
            Column("new words, nats", "nll", "min", decimals=3),
            Column("gained on new words", "signed"),
        ]
    found = _beside(document, "rows", list(ROWS), ("nll", "oov_nll"))
    return _page(Table.of_cells("rows", "", tuple(columns), found), list(ROWS))


def seeds() -> str:
    """Return the gains of methods over bases that were trained with several seeds."""
    document = read_json(FOUND)
    runs = [f"seed-{seed}" for seed in SEEDS]
    columns = [Column("Method")]
    for seed in SEEDS:
        columns += [
            Column(f"seed {seed}: nats", "nll", "min", decimals=3),
            Column("over the base", "signed"),
        ]
    return _page(
        Table.of_cells("seeds", "", tuple(columns), _beside(document, "seeds", runs)), runs
    )


def _beside(
    document: Mapping[str, Any], part: str, runs: Sequence[str], losses: Sequence[str] = ("nll",)
) -> tuple[tuple[Cell, ...], ...]:
    """Return by method its losses in several runs, and a gain in each."""
    found: list[tuple[Cell, ...]] = []
    for name in PUBLISHED:
        if name in document["runs"][runs[0]]["nll"]:
            row: list[Cell] = [name_of(name)]
            for run in runs:
                gain = document[part][run].get(name)
                row += [document["runs"][run][loss][name] for loss in losses]
                row.append(None if gain is None else _said(gain))
            found.append(tuple(row))
    return tuple(found)


def classes() -> str:
    """Return the gain of Hebb over MbPA if its term is for all classes."""
    found = read_json(FOUND)["classes"]
    parts = ("all", "known", "new")
    columns = (Column("eta and beta"), *(Column(f"{part} words", "signed") for part in parts))
    rows = tuple(
        (title, *(_said(found[run][part]) for part in parts)) for run, title in CLASSES.items()
    )
    return _page(Table.of_cells("classes", "", columns, rows), list(CLASSES))


def new_words() -> str:
    """Return the loss on new words in three ways, and what each method gains there over the
    cache.
    """
    found = read_json(FOUND)["new_words"]
    ways = ("all", f"without `{SPELLING}`", "by type")
    columns = (
        Column("Method", subheader="counted"),
        *(
            Column(way, "nll", "min", count, decimals=3)
            for way, count in zip(ways, found["counts"], strict=True)
        ),
        *(Column(f"over the cache, {way}", "signed") for way in ways),
    )
    rows = tuple(
        (
            name_of(name),
            *found["methods"][name]["nll"],
            *(
                None if name == "cache" else _said(gain)
                for gain in found["methods"][name]["over_cache"]
            ),
        )
        for name in PUBLISHED
    )
    return _page(Table.of_cells("new-words", "", columns, rows), ["new-words"])


if __name__ == "__main__":
    collect(Path(sys.argv[1]), Path(sys.argv[2]))
