"""The tables of ``best`` over a base that moves, and of the forms of the Hebbian term."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hebblm.adapt.methods import DYNAMIC
from hebblm.adapt.methods.best import BEST_OF_BOTH
from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.tables.table import Column, Table
from recipes.markdown import ROOT, body, gain_text, origin_of

FOLDER = ROOT / "recipes" / "best"
RESULTS = ROOT / "recipes" / "results"
PARTS = ROOT / "recipes" / "parts"
MODELS = {
    "AWD-LSTM": "small-wt2-raw",
    "Small Llama": "llama-wt2-small",
    "SmolLM2-135M": "smollm2",
}
BOTH = {
    "Penn Treebank": RESULTS / "intra-ptb" / "result.json",
    "Penn Treebank, base of published shape": FOLDER / "both" / "ptb-medium.json",
    "WikiText-2": RESULTS / "intra-wt2" / "result.json",
    "WikiText-2's model on Penn Treebank": RESULTS / "wt2-to-ptb" / "result.json",
}


def both() -> str:
    """Return the Markdown of ``best-of-both`` next to its parts, with the new words of each text
    that has some.
    """
    mixed, parts = BEST_OF_BOTH.name, BEST_OF_BOTH.parts
    names = (BASE, DYNAMIC, *parts, mixed)
    columns = (
        Column("Text"),
        *(Column(name_of(name).removesuffix(" (ours)")) for name in names),
        *(Column(f"over {name_of(name).removesuffix(' (ours)')}") for name in parts),
    )
    rows, made = [], []
    for title, path in BOTH.items():
        result = Result.load(path)
        for part, heading in (("All", f"{title}: perplexity"), ("OOV", "its new words: nats")):
            gains = [result.gain(mixed, other, part) for other in parts]
            if None not in gains:
                methods = [result.methods[each] for each in names]
                losses = [
                    f"{x.perplexity:.2f}" if part == "All" else f"{x.oov_nll:.3f}" for x in methods
                ]
                rows.append((heading, *losses, *(gain_text(gain) for gain in gains if gain)))
        made.append(f"- {origin_of(title, path, result, '../')}")
    return "\n".join([body(Table.of_cells("both", "", columns, tuple(rows))), *made, ""])


def parts() -> str:
    """Return the lead of ``best`` over the best of its parts on twelve texts, by model and tokens
    read.
    """
    found: dict[str, dict[str, list[float]]] = {title: {} for title in MODELS}
    made = []
    for title, stem in MODELS.items():
        for path in sorted(PARTS.glob(f"{stem}*.json")):
            for text, each in read_json(path)["texts"].items():
                found[title][text] = [row["lead"] for row in each["lengths"].values()]
            made.append(f"- {origin(path, '../')}")
    texts = sorted({text for each in found.values() for text in each})
    rows = [
        (
            text,
            *(
                " / ".join(f"{lead:+.3f}" for lead in found[title].get(text, ()))
                for title in MODELS
            ),
        )
        for text in texts
    ]
    columns = (Column("Text"), *(Column(title) for title in MODELS))
    return "\n".join([body(Table.of_cells("parts", "", columns, tuple(rows))), *made, ""])


def forms() -> str:
    """Return the Markdown of what each form of the Hebbian term gains over MbPA, at its best
    values.
    """
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
    return Table.of_cells("forms", "", tuple(columns), tuple(rows))


def _interval(gains: dict[str, Any] | None, part: str) -> str:
    """Return a gain with its interval, empty for the whole mixture itself."""
    if gains is None:
        return ""
    gain = gains[part]
    if gain["low"] is None:
        return f"{gain['gain']:+.4f}"
    return f"{gain['gain']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})"


def origin(path: Path, up: str) -> str:
    """Return the origin of a measurement, with a link to it from a page ``up`` folders below the
    root.
    """
    document, where = read_json(path), f"{up}{path.relative_to(ROOT).as_posix()}"
    by = document.get("provenance", document)
    return (
        f"[{path.stem}]({where}): `{by['command']}`, commit `{str(by['commit'])[:12]}`, seed "
        f"{by['seed']}"
    )
