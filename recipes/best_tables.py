"""The tables of ``best``: beside other methods, and what each component is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hebblm.adapt.former import GONE
from hebblm.adapt.methods import DYNAMIC
from hebblm.adapt.methods.best import BEST_OF_BOTH
from hebblm.files import read_json
from hebblm.report import Result
from hebblm.report.methods import BASE, name_of
from hebblm.report.table import Column, Table
from hebblm.report.tables import interval_text
from recipes.markdown import ROOT, body, origin_of

FOLDER = ROOT / "recipes" / "best"
TEXTS = {
    "ptb": "Penn Treebank, test",
    "wt2": "WikiText-2, test",
    "wt2-to-ptb": "WikiText-2's model on Penn Treebank, test",
    "ptb-moving": "Penn Treebank, test, over dynamic evaluation",
    "wt2-moving": "WikiText-2, test, over dynamic evaluation",
    "wt2-to-ptb-moving": "WikiText-2's model on Penn Treebank, test, over dynamic evaluation",
}
BOTH = {
    "ptb": "Penn Treebank",
    "wt2": "WikiText-2",
    "wt2-to-ptb": "WikiText-2's model on Penn Treebank",
    "wt2-to-ptb-tuned": "the same at its tuned values, learning every 10 tokens",
    "ptb-medium": "Penn Treebank, base of the published shape",
}
SPLITS = {
    "valid": "Penn Treebank, validation",
    "test": "Penn Treebank, test",
    "across": "WikiText-2's model on Penn Treebank, test",
}


def best() -> str:
    """Return the Markdown of all committed measurements."""
    parts = []
    for name, title in TEXTS.items():
        path = measured(name)
        if path.is_file():
            document = read_json(path)
            first = (
                f", first {document['tokens']:,} tokens" if "--max-tokens" in document["provenance"]["command"] else ""
            )
            parts += [f"### {title}{first}", "", body(_table(document)), f"{origin(path, '../')}.", ""]
    return "\n".join(parts)


def choice() -> str:
    """Return the Markdown of what each choice of components loses on validation text."""
    path = FOLDER / "choice.json"
    document = read_json(path)
    columns = (Column("Components"), *(Column(text, "nll", "min", decimals=3) for text in document["texts"]))
    rows = tuple((name, *losses) for name, losses in document["nll"].items())
    return f"{body(Table('choice', '', columns, rows))}\n{origin(path, '../')}.\n"


def both() -> str:
    """Return the Markdown of ``best-of-both`` beside what it mixes, with the new words of each text that has some."""
    mixed, parts = BEST_OF_BOTH.name, BEST_OF_BOTH.parts
    names = (BASE, DYNAMIC, *parts, mixed)
    columns = (
        Column("Text"),
        *(Column(name_of(name).removesuffix(" (ours)")) for name in names),
        *(Column(f"over {name_of(name).removesuffix(' (ours)')}") for name in parts),
    )
    rows, made = [], []
    for name, title in BOTH.items():
        path = FOLDER / "both" / f"{name}.json"
        if not path.is_file():
            continue
        result = Result.load(path)
        for part, heading in (("All", f"{title}: perplexity"), ("OOV", "its new words: nats")):
            gains = [result.gain(mixed, other, part) for other in parts]
            if None not in gains:
                methods = [result.methods[each] for each in names]
                losses = [f"{x.perplexity:.2f}" if part == "All" else f"{x.oov_nll:.3f}" for x in methods]
                rows.append((heading, *losses, *(interval_text(gain, mark="*") for gain in gains if gain)))
        made.append(f"- {origin_of(title, path, result, '../')}")
    return "\n".join([body(Table("both", "", columns, tuple(rows))), *made, ""])


def rates() -> str:
    """Return the Markdown of what ``best`` reaches over a base that moves at other rates."""
    columns = (
        Column("dynamic.lr"),
        Column("Read", wide=True),
        Column("Update every", "count"),
        *(Column(f"{name}: perplexity", "perplexity") for name in ("Dynamic eval.", "Dynamic+Best")),
        *(Column(f"Dynamic+Best: {what}", "nll", decimals=3) for what in ("nats", "on new words")),
    )
    rows, made = [], []
    for name, run in read_json(FOLDER / "rates.json").items():
        split, lr = name.split("-")[:2]
        alone, whole = (run["methods"].get(method, {}) for method in ("dynamic", "dynamic+best"))
        losses = (alone.get("perplexity"), *(whole[key] for key in ("perplexity", "nll", "oov_nll")))
        rows.append((lr, SPLITS[split], run["update_every"], *losses))
        made.append(f"- `{run['provenance']['command']}`, commit `{run['provenance']['commit'][:12]}`")
    return "\n".join([body(Table("rates", "", columns, tuple(rows))), *made, ""])


def forms() -> str:
    """Return the Markdown of what each form of the Hebbian term gains over MbPA, at its best values."""
    parts = []
    for name in ("wt2-to-ptb", "ptb"):
        path = FOLDER / f"forms-{name}.json"
        if path.is_file():
            parts += [body(_gains(read_json(path))), f"{origin(path, '../')}.", ""]
    return "\n".join(parts)


def _gains(document: dict[str, Any]) -> Table:
    """Return a row for each form, with its gains on each part of the text."""
    found = document["gain_over_mbpa"]
    parts = list(next(iter(found.values())))
    columns = [Column("Form"), *(Column(part.capitalize()) for part in parts)]
    rows = [(name, *(_interval(gains, part) for part in parts)) for name, gains in found.items()]
    return Table("forms", "", tuple(columns), tuple(rows))


def _table(document: dict[str, Any]) -> Table:
    """Return a row for each rule: perplexity, and what the whole mixture gains over it."""
    methods = {name: found for name, found in document["methods"].items() if name not in GONE}
    gains = document["gain_of_best"]
    new = any("oov_nll" in found for found in methods.values())
    rows = []
    for name, found in methods.items():
        gained = gains.get(name)
        cells = [_written(name), found["perplexity"], _interval(gained, "all")]
        rows.append((*cells, *((found["oov_nll"], _interval(gained, "new")) if new else ())))
    columns = [
        Column("Method"),
        Column("Perplexity", "perplexity", "min"),
        Column("The whole is better by (nats, 95 %)"),
    ]
    if new:
        columns += [Column("Loss on new words", "nll", "min"), Column("The whole is better there by")]
    return Table("best", "", tuple(columns), tuple(rows))


def _written(name: str) -> str:
    """Return how a rule is named in the table."""
    for joint in (" without ", ", "):
        method, found, rest = name.partition(joint)
        if found:
            return f"{name_of(method)}{joint}{rest}"
    return name_of(name)


def _interval(gains: dict[str, Any] | None, part: str) -> str:
    """Return a gain with its interval, empty for the whole mixture itself."""
    if gains is None:
        return ""
    gain = gains[part]
    if gain["low"] is None:
        return f"{gain['gain']:+.4f}"
    return f"{gain['gain']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})"


def measured(name: str) -> Path:
    """Return the file of a text's measurement."""
    return FOLDER / f"result-{name}.json"


def origin(path: Path, up: str) -> str:
    """Return what made a measurement, with a link to it from a page ``up`` folders below the root."""
    by, where = read_json(path)["provenance"], f"{up}{path.relative_to(ROOT).as_posix()}"
    return f"[{path.stem}]({where}): `{by['command']}`, commit `{str(by['commit'])[:12]}`, seed {by['seed']}"
