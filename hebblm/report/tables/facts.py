"""The facts of a result as tables: policies, settings, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hebblm.report.result.methods import name_of, ordered
from hebblm.report.result.schema import (
    METHOD,
    RUN,
    Part,
    ScenarioRecord,
    Seconds,
    StoredResult,
)
from hebblm.report.tables.table import Column, Row, Table, present
from hebblm.runtime.wording import worded

_LEAST = 0.001  # of a run's time: parts that took less are counted among the rest
_NAMED = 4  # parts in the short form
_ELSEWHERE = (  # of a result's further keys: other tables have them, or a table counts by them
    "documents",
    "paired",
    "lead",
    "bootstrap",
    "suggested",
    "pieces_of_parts",
)


def scenario_line(result: StoredResult, label: str = "") -> str:
    """The scenario in one line: policies, the model's window if it has one, tokens, share of new
    words.
    """
    scenario = result.scenario
    policy = f"vocabulary {scenario.vocabulary}"
    if result.model.get("context") is not None:
        policy = f"window of {result.model['context']:,}"
    of = ""
    if scenario.extra.get("part"):
        of = f" of {scenario.extra['part']}"
    return (
        f"{label or scenario.label} ({scenario.kind}): normalization {scenario.normalization}, "
        f"{policy}, {_share(scenario)}{of}, {_oov(scenario)}"
    )


def fact_tables(result: StoredResult) -> list[Table]:
    """Where the time went, scenario, model, memory, hyper-parameters and provenance, each as a
    table.
    """
    scenario = result.scenario
    facts = [
        ("Kind", scenario.kind),
        ("Source", scenario.source),
        ("Evaluated on", f"{scenario.target}, {scenario.split} split"),
        ("Normalization", scenario.normalization),
        ("Vocabulary", scenario.vocabulary),
        ("Tokens", f"{scenario.tokens:,}"),
        ("New words", _oov(scenario)),
    ]
    facts += flatten(scenario.extra)
    facts += flatten(
        {name: value for name, value in result.extra.items() if name not in _ELSEWHERE}
    )
    tables = present(
        None if result.seconds is None else time_table(result.seconds),
        _facts("scenario", "Scenario", facts),
        _facts("model", "Model", flatten(result.model)),
        _facts("memory", "Memory", flatten(result.memory)),
        hyperparameter_table(result),
        _facts("provenance", "Provenance", flatten(result.provenance)),
    )
    return [table for table in tables if table.rows]


def hyperparameter_table(result: StoredResult) -> Table:
    rows = []
    for method in ordered(result.methods):
        settings = flatten(result.methods[method].hyperparameters)
        words = ", ".join(f"{key} = {value}" for key, value in settings)
        rows.append({"Method": name_of(method), "Settings": words or "none"})
    columns = [Column("Method"), Column("Settings", wide=True)]
    return Table("hyperparameters", "Hyper-parameters", columns, rows)


def time_table(seconds: Seconds) -> Table:
    """Where the time went, as seconds and as shares of the run."""
    parts = _largest(seconds)
    spent = [(_part_label(part), part.seconds) for part in parts]
    spent.append(("rest", seconds.total - sum(part.seconds for part in parts)))
    spent.append(("all", seconds.total))
    rows: list[Row] = []
    for what, time in spent:
        rows.append({"What": what, "Seconds": time, "%": 100 * time / seconds.total})
    columns = [Column("What"), Column("Seconds", "amount"), Column("%", "percent")]
    note = (
        "A method's time alone is base, retrieval if it asks for it, its own, and shared work it "
        "rests on."
    )
    return Table("seconds", "Where the time goes", columns, rows, [note])


def time_line(seconds: Seconds) -> str:
    """The longest parts of a run's time in one line, without those that round to nothing."""
    shares = []
    for part in _largest(seconds)[:_NAMED]:
        percent = round(100 * part.seconds / seconds.total)
        if percent:
            shares.append(f"{_part_label(part)} {percent} %")
    spent = f"{seconds.total:,.1f} seconds"
    return f"{spent}: {'; '.join(shares)}" if shares else spent


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as pairs of a dotted name and a text; lists are joined by commas."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs += flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", _text(value)))
    return pairs


def _facts(name: str, title: str, facts: list[tuple[str, str]]) -> Table:
    rows = [{"What": key.replace("_", " "), "Value": value} for key, value in facts]
    return Table(name, title, [Column("What"), Column("Value")], rows)


def _share(scenario: ScenarioRecord) -> str:
    """Return how many tokens were scored and, for a part, the number of all tokens if known."""
    pieces = scenario.extra.get("pieces")
    count = f"{scenario.tokens:,} tokens"
    if pieces is not None:
        count = f"{pieces:,} pieces in {scenario.tokens:,} words"
    if scenario.extra.get("whole_split", True):
        return count
    total = scenario.extra.get("split_tokens")
    if pieces or not total:
        return f"only the first {count}"
    return f"only the first {scenario.tokens:,} of {total:,} tokens"


def _oov(scenario: ScenarioRecord) -> str:
    """Return new words in the text as count, share and number of different ones, and the unknown
    ones.
    """
    unk = scenario.extra.get("unk_tokens")
    if scenario.extra.get("words_counted_in", "") is None:
        return worded(
            "training counts and new words not known (source=CORPUS names a text to count words in)"
        )
    text = ""
    if unk is not None:
        rate = 100 * unk / max(1, scenario.tokens)
        text = f", {unk:,} <unk> in the text ({rate:.2f} %)"
    share = f"{100 * scenario.oov_rate:.2f} %, {scenario.oov_types:,} different"
    return f"{scenario.oov_tokens:,} new words ({share}){text}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _largest(seconds: Seconds) -> list[Part]:
    shown = (part for part in seconds.parts if part.seconds >= _LEAST * seconds.total)
    return sorted(shown, key=lambda part: -part.seconds)


def _part_label(part: Part) -> str:
    if part.kind == RUN:
        return part.name
    if part.kind == METHOD:
        return f"{name_of(part.name)}, own"
    return f"{part.name}, shared"
