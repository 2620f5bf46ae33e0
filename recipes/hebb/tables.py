"""The tables of recipes/hebb/README.md: when Hebb gains over MbPA on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.gains import Gain
from hebblm.report.methods import BASE, name_of
from hebblm.report.render import to_markdown
from hebblm.report.table import Cell, Column, Table
from hebblm.report.tables import interval_text, occurrence_table
from recipes.markdown import ROOT, body, origin_of

FOLDER = ROOT / "recipes" / "hebb"
RESULTS = ROOT / "recipes" / "results"
LEARNS = RESULTS / "wt2-to-ptb-base-learns" / "result.json"
PUBLISHED = "gradient steps at the paper's values"
SOLVERS = {  # of MbPA, by text
    "Penn Treebank": {
        PUBLISHED: RESULTS / "intra-ptb-paper" / "result.json",
        "Newton": RESULTS / "intra-ptb" / "result.json",
    },
    "WikiText-2": {
        PUBLISHED: RESULTS / "intra-wt2-paper" / "result.json",
        "Newton": RESULTS / "intra-wt2" / "result.json",
    },
    "WikiText-2 to Penn Treebank": {
        PUBLISHED: RESULTS / "wt2-to-ptb-paper" / "result.json",
        "Newton": RESULTS / "wt2-to-ptb" / "result.json",
    },
}
FORMS = {"1 gradient step": "ptb-1-step", "5 gradient steps": "ptb-5-steps"}
LABELS = {"best+mbpa": "Best, MbPA twice", "best+hebb": "Best+Hebb"}  # of recipes/hebb/beside.py
PAIRS = FOLDER / "pairs-wt2-to-ptb.json"
VALUES = ("base.lr", "mbpa.lr", "mbpa.steps", "hebb.closeness", "hebb.beta", "hebb.eta")


def difference(result: Result, method: str, other: str, part: str = "All") -> str | None:
    """Return the gain of a method over another on a part, with its interval, None without one."""
    gain = result.gain(method, other, part)
    return None if gain is None else interval_text(gain, mark="*")


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
    rows: list[tuple[Cell, ...]] = []
    for name, item in result.methods.items():
        rows.append(
            (
                LABELS.get(name, name_of(name)),
                item.nll,
                difference(result, name, BASE),
                item.oov_nll,
                difference(result, name, BASE, "OOV"),
            )
        )
    return _page(Table("learns", "", columns, tuple(rows)), {"run": LEARNS})


def occurrences() -> str:
    """Return losses on new words by how often they have come, and what Hebb adds there."""
    losses, document = occurrence_table(Result.load(LEARNS)), read_json(PAIRS)
    assert losses is not None, "the text across domains has new words"
    found = {title: [Gain(**gain) for gain in gains] for title, gains in document["gains"].items()}
    parts = next(iter(found.values()))
    columns = (
        Column("Nats", subheader="tokens"),
        *(Column(gain.part, "signed", subheader=gain.tokens) for gain in parts),
    )
    rows = tuple(
        (_pair(title), *(interval_text(gain, mark="*") for gain in gains))
        for title, gains in found.items()
    )
    return f"{_plain(losses)}\n{body(Table('added', '', columns, rows))}"


def _pair(title: str) -> str:
    """Return the printed name of a comparison, ``A over B``."""
    return " over ".join(LABELS.get(name, name_of(name)) for name in title.split(" over "))


def solvers() -> str:
    """Return MbPA and Hebb by the solver of MbPA and by training count, on every text."""
    columns = (
        Column("Text"),
        Column("MbPA by"),
        Column("Training count"),
        Column("Tokens", "count"),
        Column("MbPA, nats", "nll"),
        Column("Hebb, nats", "nll"),
        Column("Hebb over MbPA", "signed"),
    )
    rows: list[tuple[Cell, ...]] = []
    paths = {}
    for text, found in SOLVERS.items():
        for title, path in found.items():
            result = Result.load(path)
            mbpa, hebb = result.methods["mbpa"], result.methods["hebb"]
            whole = [("all", "All", result.scenario.tokens, mbpa.nll, hebb.nll)]
            if result.scenario.oov_tokens:
                new = result.scenario.oov_tokens
                whole.append(("new words", "OOV", new, mbpa.oov_nll, hebb.oov_nll))
            for ours, theirs in zip(mbpa.frequency, hebb.frequency, strict=True):
                whole.append((ours.bucket, ours.bucket, ours.tokens, ours.nll, theirs.nll))
            for name, part, tokens, one, other in whole:
                pair = difference(result, "hebb", "mbpa", part)
                rows.append((text, title, name, tokens, one, other, pair))
            paths[f"{text}, {title}"] = path
    return _page(Table("solvers", "", columns, tuple(rows)), paths)


def values() -> str:
    """Return the values that validation text gave, with the losses there."""
    paths = [*sorted(FOLDER.glob("tuned-*.json"))]
    columns = (
        Column("Tuning"),
        Column("Tokens", "count"),
        *(Column(f"`{name}`") for name in VALUES),
        Column("Base, nats", "nll"),
        Column("MbPA, nats", "nll"),
        Column("Hebb, nats", "nll"),
    )
    rows: list[tuple[Cell, ...]] = []
    made = []
    for path in paths:
        document = read_json(path)
        found, losses = document["values"], document["nll"]
        rows.append(
            (
                path.stem.removeprefix("tuned-"),
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
    table = body(Table("values", "", columns, tuple(rows))).replace("\\`", "`")
    return "\n".join([table, *made, ""])


def forms() -> str:
    """Return the losses of the fast form of gradient steps and of the exact one on the same
    tokens.
    """
    columns = (
        Column("MbPA by"),
        Column("Method"),
        Column("Tokens", "count"),
        Column("fast, nats", "nll", decimals=5),
        Column("exact, nats", "nll", decimals=5),
        Column("exact less fast", "signed", decimals=5),
    )
    rows: list[tuple[Cell, ...]] = []
    paths = {}
    for title, stem in FORMS.items():
        both = {form: FOLDER / f"{stem}-{form}.json" for form in ("fast", "exact")}
        fast, exact = (Result.load(path) for path in both.values())
        for name in ("mbpa", "hebb"):
            ours, theirs = fast.methods[name].nll, exact.methods[name].nll
            rows.append((title, name_of(name), fast.scenario.tokens, ours, theirs, theirs - ours))
        paths |= {f"{title}, {form}": path for form, path in both.items()}
    return _page(Table("forms", "", columns, tuple(rows)), paths)


def _shown(value: object) -> str | None:
    return f"{value:g}" if isinstance(value, int | float) else None if value is None else str(value)


def _plain(table: Table) -> str:
    """Return a table with its notes, its methods by their labels here, without its title."""
    rows = tuple((LABELS.get(_method(str(row[0])), row[0]), *row[1:]) for row in table.rows)
    shown = Table(table.name, table.title, table.columns, rows, table.notes, table.headings)
    return to_markdown(shown).partition("\n\n")[2]


def _method(label: str) -> str:
    """Return the method of the plugin that a label names, or the label itself."""
    return next((name for name in LABELS if name_of(name) == label), label)


def _page(table: Table, paths: dict[str, Path]) -> str:
    """Return a table and what made it."""
    made: Sequence[str] = [
        f"- {origin_of(name, path, Result.load(path), '../')}" for name, path in paths.items()
    ]
    return "\n".join([body(table), *made, ""])
