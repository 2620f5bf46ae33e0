"""The tables of a real pretrained model: every method on four texts, and what a memory is worth in length of window."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hebblm.report import Result
from hebblm.report.methods import BASE, name_of
from hebblm.report.table import Column, Table
from recipes.markdown import body, origin_of

FOLDER = Path(__file__).with_name("real")
TITLES = {
    "docs": "this project's documentation",
    "code": "its code (hebblm/adapt)",
    "paper": "LaTeX of the paper",
    "ptb": "Penn Treebank, test",
}
BEST = "best"


def texts(*, short: bool = False) -> str:
    """Return bits a byte of every method on each text, in a short and in a long window; ``short`` without commands."""
    found = {path: Result.load(path) for text in TITLES for path in sorted(FOLDER.glob(f"{text}-*.json"))}
    names = next(iter(found.values())).methods
    columns = (Column("Text"), Column("Window", "count"), *(Column(name_of(name), "nll", decimals=3) for name in names))
    rows = []
    for path, result in sorted(found.items(), key=lambda item: list(TITLES).index(item[0].stem.split("-")[0])):
        values = (result.methods[name].bits_per_byte for name in names)
        rows.append((TITLES[path.stem.split("-")[0]], result.model["context"], *values))
    return "\n".join([body(Table("texts", "", columns, tuple(rows))), *([] if short else _origins(found)), ""])


def windows(*, short: bool = False) -> str:
    """Return bits a byte of the base and of ``best`` by window, and the window of the base that is as good."""
    found = {path: Result.load(path) for path in sorted((FOLDER / "windows").glob("*.json"))}
    by_text: dict[str, list[Result]] = defaultdict(list)
    for path, result in found.items():
        by_text[path.stem.split("-")[0]].append(result)
    columns = (
        Column("Text"),
        Column("Window", "count"),
        Column("Base", "nll", decimals=3),
        Column("Best", "nll", decimals=3),
        Column("The base needs a window of"),
    )
    rows = []
    for text, results in by_text.items():
        results.sort(key=lambda result: int(result.model["context"]))
        base = [(int(result.model["context"]), _bits(result, BASE)) for result in results]
        for (window, bits), result in zip(base, results, strict=True):
            rows.append((TITLES[text], window, bits, _bits(result, BEST), worth(base, _bits(result, BEST))))
    return "\n".join([body(Table("windows", "", columns, tuple(rows))), *([] if short else _origins(found)), ""])


def worth(base: Sequence[tuple[int, float]], bits: float) -> str:
    """Return the window at which the base has so many bits, interpolated in the logarithm of the window."""
    for (window, high), (longer, low) in itertools.pairwise(base):
        if low <= bits <= high:
            part = (high - bits) / (high - low)
            return f"{round(math.exp(math.log(window) + part * math.log(longer / window)), -2):,.0f}"
    return f"more than {base[-1][0]:,}" if bits < base[-1][1] else f"less than {base[0][0]:,}"


def _bits(result: Result, name: str) -> float:
    bits = result.methods[name].bits_per_byte
    assert bits is not None, "a model of pieces counts bytes"
    return bits


def _origins(found: dict[Path, Result]) -> list[str]:
    """Return a line on how each result was made."""
    return [f"- {origin_of(path.stem, path, result, '../')}" for path, result in found.items()]
