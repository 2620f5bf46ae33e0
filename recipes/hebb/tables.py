"""The tables of recipes/hebb/README.md: when Hebb gains over MbPA on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hebblm.adapt.renamed import present_settings
from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.result.parts import Gain, part_label
from hebblm.report.tables.by_part import occurrence_table
from hebblm.report.tables.table import Column, Table
from recipes.markdown import ROOT, body, gain_text, origin_of

FOLDER = ROOT / "recipes" / "hebb"
RESULTS = ROOT / "recipes" / "results"
LEARNS = RESULTS / "wt2-to-ptb-base-learns" / "result.json"
PAIRS = FOLDER / "pairs-wt2-to-ptb.json"
NEWTON = RESULTS / "intra-ptb" / "result.json"
SOLVERS = {  # of MbPA, in the order of their loss
    "1 gradient step": FOLDER / "ptb-1-step.json",
    "5 gradient steps": FOLDER / "ptb-5-steps.json",
    "Newton": NEWTON,
    "5 gradient steps, the paper's values": RESULTS / "intra-ptb-paper" / "result.json",
}
TUNED = {
    "1 gradient step": FOLDER / "tuned-ptb-1-step.json",
    "5 gradient steps": FOLDER / "tuned-ptb-5-steps.json",
}
LABELS = {"best+mbpa": "Best, MbPA twice", "best+hebb": "Best+Hebb"}  # of recipes/hebb/beside.py
ADDED = {  # a method, and what it is compared with
    "Hebb over MbPA": ("hebb", "mbpa"),
    "Mixture+Hebb over Mixture+MbPA": ("mixture+hebb", "mixture+mbpa"),
}
VALUES = ("mbpa.lr", "hebb.kernel_weight", "hebb.beta", "hebb.eta")


def difference(result: Result, method: str, other: str, part: str = "All") -> str | None:
    """Return the gain of a method over another on a part, with its interval, None without one."""
    gain = result.gain(method, other, part)
    return None if gain is None else gain_text(gain)


def learns() -> str:
    """Return every method over a base that learns: losses, and gains over that base."""
    result = Result.load(LEARNS)
    columns = (
        Column("Method"),
        Column("Nats", "nll", "min"),
        Column("over the base", "signed"),
        Column("New words: nats", "nll", "min", decimals=3),
        Column("over the base there", "signed"),
    )
    rows: list[dict[str, Cell]] = []
    for name, item in result.methods.items():
        rows.append(
            {
                "Method": name_of(name),
                "Nats": item.nll,
                "over the base": difference(result, name, BASE),
                "New words: nats": item.oov_nll,
                "over the base there": difference(result, name, BASE, "OOV"),
            }
        )
    return _page(Table("learns", "", columns, rows), {"run": LEARNS})


def added() -> str:
    """Return the gains of Hebb over a base that learns, and losses on new words by occurrence."""
    result, parts = Result.load(LEARNS), ("All", "Known", "OOV")
    columns = (Column("Nats"), *(Column(part_label(part), "signed") for part in parts))
    rows = tuple(
        (title, *(difference(result, *pair, part) for part in parts))
        for title, pair in ADDED.items()
    )
    losses = occurrence_table(result)
    assert losses is not None, "the text across domains has new words"
    return f"{body(Table.of_cells('added', '', columns, rows))}\n{body(losses)}"


def inside() -> str:
    """Return the gains of Hebb as a part of ``best``, by how often a new word has come."""
    document = read_json(PAIRS)
    found = {title: [Gain(**gain) for gain in gains] for title, gains in document["gains"].items()}
    parts = next(iter(found.values()))
    columns = (
        Column("Nats", subheader="tokens"),
        *(Column(gain.part, "signed", subheader=gain.tokens) for gain in parts),
    )
    rows = tuple(
        (_pair(title), *(gain_text(gain, 4) for gain in gains)) for title, gains in found.items()
    )
    by, where = document["run"], PAIRS.relative_to(ROOT).as_posix()
    made = (
        f"- [{PAIRS.stem}](../{where}), `{by['command']}`, commit `{by['commit'][:12]}`, seed "
        f"{by['seed']}"
    )
    return "\n".join([body(Table.of_cells("inside", "", columns, rows)), made, ""])


def _pair(title: str) -> str:
    """Return the printed name of a comparison, ``A over B``."""
    return " over ".join(LABELS.get(name, name_of(name)) for name in title.split(" over "))


def solvers() -> str:
    """Return MbPA and Hebb by the solver of MbPA and by training count."""
    columns = (
        Column("MbPA by"),
        Column("Training count"),
        Column("Tokens", "count"),
        Column("MbPA, nats", "nll"),
        Column("Hebb, nats", "nll"),
        Column("Hebb over MbPA", "signed"),
    )
    rows: list[dict[str, Cell]] = []
    for title, path in SOLVERS.items():
        result = Result.load(path)
        mbpa = result.methods["mbpa"]
        hebb = result.methods["hebb"]
        rows.append(
            {
                "MbPA by": title,
                "Training count": "all",
                "Tokens": result.scenario.tokens,
                "MbPA, nats": mbpa.nll,
                "Hebb, nats": hebb.nll,
                "Hebb over MbPA": difference(result, "hebb", "mbpa"),
            }
        )
        for of_mbpa, of_hebb in zip(mbpa.frequency, hebb.frequency, strict=True):
            rows.append(
                {
                    "MbPA by": title,
                    "Training count": of_mbpa.bucket,
                    "Tokens": of_mbpa.tokens,
                    "MbPA, nats": of_mbpa.nll,
                    "Hebb, nats": of_hebb.nll,
                    "Hebb over MbPA": difference(result, "hebb", "mbpa", of_mbpa.bucket),
                }
            )
    return _page(Table("solvers", "", columns, rows), SOLVERS)


def values() -> str:
    """Return the values that validation text gave, with the losses there."""
    columns = (
        Column("MbPA by"),
        Column("Tokens", "count"),
        *(Column(f"`{name}`") for name in VALUES),
        Column("Base, nats", "nll"),
        Column("MbPA, nats", "nll"),
        Column("Hebb, nats", "nll"),
    )
    rows: list[tuple[Cell, ...]] = []
    made = []
    for title, path in TUNED.items():
        document = read_json(path)
        found, losses = present_settings(document["values"]), document["nll"]
        rows.append(
            (
                title,
                document["scenario"]["tokens"],
                *(_shown(found.get(name)) for name in VALUES),
                *(losses[name] for name in (BASE, "mbpa", "hebb")),
            )
        )
        by = document["provenance"]
        made.append(
            f"- [{path.stem}](../{path.relative_to(ROOT).as_posix()}), `{by['command']}`, commit "
            f"`{by['commit'][:12]}`, seed {by['seed']}"
        )
    table = (
        body(Table.of_cells("values", "", columns, tuple(rows)))
        .replace("\\`", "`")
        .replace("\\_", "_")
    )
    return "\n".join([table, *made, ""])


def _shown(value: object) -> str | None:
    return f"{value:g}" if isinstance(value, int | float) else None if value is None else str(value)


def _page(table: Table, paths: dict[str, Path]) -> str:
    """Return a table and what made it."""
    made: Sequence[str] = [
        f"- {origin_of(name, path, Result.load(path), '../')}" for name, path in paths.items()
    ]
    return "\n".join([body(table), *made, ""])
