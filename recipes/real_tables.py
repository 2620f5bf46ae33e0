"""The tables of a real pretrained model: every method on four texts, and what a memory is worth in
length of window.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.plots.drawing import save
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.tables.suggestions import accuracy_table
from hebblm.report.tables.table import Cell, Column, Table
from recipes.best_tables import origin
from recipes.markdown import ROOT, body, origin_of

FOLDER = Path(__file__).with_name("real")
TITLES = {
    "docs": "this project's documentation",
    "code": "its code (hebblm/adapt)",
    "paper": "LaTeX of the paper",
    "ptb": "Penn Treebank, test",
}
BEST = "best"
ALL = (BASE, "cache", "knn", "mixture", "mbpa", "mixture+mbpa", "ngram", BEST)
KEPT = FOLDER.parent
PICTURE = ROOT / "docs" / "windows.png"
MEASURES = {
    "matches": "share of the text's own pieces",
    "nats a piece": "nats a piece, under the model alone",
    "distinct 4-grams": "share of distinct 4-grams",
}
WRITTEN = {"docs": "documentation", "code": "code"}


def texts() -> str:
    """Return bits a byte of every method on each text, in a short and in a long window."""
    found = {
        path: Result.load(path) for text in TITLES for path in sorted(FOLDER.glob(f"{text}-*.json"))
    }
    names = [name for name in ALL if all(name in result.methods for result in found.values())]
    columns = (
        Column("Text"),
        Column("Window", "count"),
        *(Column(name_of(name), "nll", decimals=3) for name in names),
    )
    rows = []
    for text, title in TITLES.items():
        for path, result in found.items():
            if path.stem.split("-")[0] != text:
                continue
            row: dict[str, Cell] = {"Text": title, "Window": result.model["context"]}
            for name in names:
                row[name_of(name)] = result.methods[name].bits_per_byte
            rows.append(row)
    return "\n".join([body(Table("texts", "", columns, rows)), *_origins(found), ""])


def windows() -> str:
    """Return bits a byte of the base and of ``best`` by window, and the window of the base that is
    as good.
    """
    columns = (
        Column("Text"),
        Column("Window", "count"),
        Column("Base", "nll", decimals=3),
        Column("Best", "nll", decimals=3),
        Column("The base needs a window of"),
    )
    rows = []
    for text, results in _by_text().items():
        base = [(_window(result), _bits(result, BASE)) for result in results]
        for (window, bits), result in zip(base, results, strict=True):
            best = _bits(result, BEST)
            rows.append(
                {
                    "Text": TITLES[text],
                    "Window": window,
                    "Base": bits,
                    "Best": best,
                    "The base needs a window of": worth(base, best),
                }
            )
    found = {path: Result.load(path) for path in sorted((FOLDER / "windows").glob("*.json"))}
    return "\n".join([body(Table("windows", "", columns, rows)), *_origins(found), ""])


def windows_in_short() -> str:
    """Return the same bits a byte in one row for each text: the base / ``best``."""
    found = _by_text()
    windows = sorted({_window(result) for results in found.values() for result in results})
    rows = []
    for text, results in found.items():
        bits = {
            _window(result): f"{_bits(result, BASE):.3f} / {_bits(result, BEST):.3f}"
            for result in results
        }
        rows.append((TITLES[text], *(bits.get(window, "") for window in windows)))
    columns = (Column("Text: base / best"), *(Column(f"{window:,}") for window in windows))
    return body(Table.of_cells("windows", "", columns, tuple(rows)))


def wide() -> str:
    """Return bits a byte of the cache with its default window and with one that holds all, next to
    kNN-LM.
    """
    columns = (
        Column("Text"),
        Column("Cache of 2,000 pieces", "nll", decimals=3),
        Column("Cache of 20,000 pieces", "nll", decimals=3),
        Column("kNN-LM", "nll", decimals=3),
    )
    rows = []
    for text, title in TITLES.items():
        short = Result.load(FOLDER / f"{text}-1024.json")
        long = Result.load(FOLDER / "wide" / f"{text}.json")
        rows.append(
            {
                "Text": title,
                "Cache of 2,000 pieces": _bits(short, "cache"),
                "Cache of 20,000 pieces": _bits(long, "cache"),
                "kNN-LM": _bits(long, "knn"),
            }
        )
    made = ", ".join(f"[{text}](../recipes/real/wide/{text}.json)" for text in TITLES)
    return f"{body(Table('wide', '', columns, rows))}\n- {made}\n"


def harm() -> str:
    """Return how a memory of docs and code changes facts and prose that have nothing to do with
    them.
    """
    path = KEPT / "harm" / "smollm2.json"
    document = read_json(path)
    found = document["methods"][BEST]
    columns = (
        Column("", name="measure"),
        Column("Model alone"),
        Column("With memory"),
        Column("Gain"),
    )
    right = found["accuracy"]
    rows = [
        {
            "measure": "questions answered rightly",
            "Model alone": f"{right['alone']:.1%}",
            "With memory": f"{right['with memory']:.1%}",
            "Gain": "",
        }
    ]
    losses = {
        "nats an answer": found["loss of an answer"],
        "prose, nothing learned: nats a piece": found["prose"],
        "prose, learned from: nats a piece": found["prose, learned from"],
    }
    for measure, part in losses.items():
        rows.append(
            {
                "measure": measure,
                "Model alone": f"{part['alone']:.3f}",
                "With memory": f"{part['with memory']:.3f}",
                "Gain": _interval(part["gain"]),
            }
        )
        later = part.get("gain from the 2,000th on")
        if later is not None:
            rows.append(
                {
                    "measure": "- from its 2,000th piece on",
                    "Model alone": "",
                    "With memory": "",
                    "Gain": _interval(later),
                }
            )
    return f"{body(Table('harm', '', columns, rows))}\n- {origin(path, '../')}\n"


def generation() -> str:
    """Return how answers of a reader that learned the text differ from those of the model alone."""
    paths = {title: KEPT / "generation" / f"{text}.json" for text, title in WRITTEN.items()}
    columns = (
        Column("Text, answers"),
        Column("Measure"),
        Column("Model alone"),
        Column("Reader"),
        Column("Difference"),
    )
    rows = []
    made = []
    for title, path in paths.items():
        document = read_json(path)
        for way in ("greedy", "sampled"):
            for name, measure in MEASURES.items():
                measured = document[way]["measures"][name]
                rows.append(
                    {
                        "Text, answers": f"{title}, {way}",
                        "Measure": measure,
                        "Model alone": f"{measured['alone']:.3f}",
                        "Reader": f"{measured['adapted']:.3f}",
                        "Difference": _interval(measured["difference"]),
                    }
                )
        made.append(f"- {origin(path, '../')}")
    return "\n".join([body(Table("generation", "", columns, rows)), *made, ""])


def suggestions(text: str) -> str:
    """Return how often whole words that the model suggests for a text are right, and the keys that
    they save.
    """
    path = KEPT / "accuracy" / f"smollm2-{text}.json"
    table = accuracy_table(result := Result.load(path))
    assert table is not None
    return f"{body(replace(table, notes=()))}\n- {origin_of(path.stem, path, result, '../')}\n"


def watch() -> str:
    """Return how soon a watching reader answers, and how many kills it survived."""
    path = KEPT / "watch.json"
    columns = (
        Column("Model"),
        Column("Seconds to the first answer"),
        Column("Seconds an answer then"),
        Column("Kills survived"),
    )
    rows = []
    for name, measured in read_json(path)["models"].items():
        row = {
            "Model": name,
            "Seconds to the first answer": f"{measured['start']:.1f}",
            "Seconds an answer then": f"{measured['answer']:.2f}",
            "Kills survived": "",
        }
        if "kills" in measured:
            row["Kills survived"] = f"{measured['survived']} of {measured['kills']}"
        rows.append(row)
    return f"{body(Table('watch', '', columns, rows))}\n- {origin(path, '../')}\n"


def draw() -> None:
    """Draw bits a byte of the base and of ``best`` by window, one panel for each text."""
    from matplotlib.figure import Figure

    found = _by_text()
    lines = math.ceil(len(found) / 2)
    figure = Figure((7.2, 3.2 * lines), layout="constrained")
    panels = figure.subplots(lines, 2, squeeze=False).flatten()
    for axes, (text, results) in zip(panels, found.items(), strict=True):
        windows = [_window(result) for result in results]
        for name, style in ((BASE, "--"), (BEST, "-")):
            bits = [_bits(result, name) for result in results]
            axes.plot(windows, bits, style, color="black", marker="o", label=name_of(name))
        needs = worth(
            [(_window(result), _bits(result, BASE)) for result in results], _bits(results[0], BEST)
        )
        axes.set_title(
            f"{TITLES[text]}:\nat {windows[0]:,}, best equals a window of\n{needs}",
            fontsize="medium",
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(windows, [f"{window:,}" for window in windows], fontsize="small")
        axes.set_xlabel("window, pieces")
        axes.set_ylabel("bits a byte")
    axes.legend()
    save(figure, PICTURE)


def _by_text() -> dict[str, list[Result]]:
    """Return the results of each text, the shortest window first."""
    found: dict[str, list[Result]] = defaultdict(list)
    for text in TITLES:
        for path in (FOLDER / "windows").glob(f"{text}-*.json"):
            found[text].append(Result.load(path))
    return {text: sorted(results, key=_window) for text, results in found.items()}


def _window(result: Result) -> int:
    return int(result.model["context"])


def _interval(gain: dict[str, float]) -> str:
    """Return a mean with its interval."""
    return f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"


def worth(base: Sequence[tuple[int, float]], bits: float) -> str:
    """Return the window at which the base has so many bits, interpolated in the logarithm of the
    window.
    """
    for (window, high), (longer, low) in itertools.pairwise(base):
        if low <= bits <= high:
            part = (high - bits) / (high - low)
            return (
                f"{round(math.exp(math.log(window) + part * math.log(longer / window)), -2):,.0f}"
            )
    return f"more than {base[-1][0]:,}" if bits < base[-1][1] else f"less than {base[0][0]:,}"


def _bits(result: Result, name: str) -> float:
    bits = result.methods[name].bits_per_byte
    assert bits is not None, "a model of pieces counts bytes"
    return bits


def _origins(found: dict[Path, Result]) -> list[str]:
    """Return a line on how each result was made."""
    return [f"- {origin_of(path.stem, path, result, '../')}" for path, result in found.items()]
