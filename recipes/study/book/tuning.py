"""The chapter on tuning: chosen values next to the paper's, and the validation loss of every
method.
"""

from __future__ import annotations

from collections.abc import Mapping

from hebblm.evaluation.defaults import PAPER
from hebblm.report.result.methods import name_of, ordered
from hebblm.report.result.numbers import Cell
from hebblm.report.tables.table import Column, Table
from recipes.study.book.section import Section
from recipes.study.book.sources import Tuning


def tuning_sections(tunings: Mapping[str, Tuning]) -> list[Section]:
    """Return the chapter, none without tuned values."""
    if not tunings:
        return []
    lines = tuple(_line(name, tuning) for name, tuning in tunings.items())
    tables = (_losses(tunings), *(_values(name, tuning) for name, tuning in tunings.items()))
    return [Section("Tuning", lines, tables)]


def _line(name: str, tuning: Tuning) -> str:
    """Return on what was tuned, and by which command."""
    scenario = ", ".join(f"{key} {value}" for key, value in tuning.scenario.items())
    by = tuning.provenance
    return f"{name}: {scenario}. {by.get('command')}: commit {str(by.get('commit'))[:12]}."


def _losses(tunings: Mapping[str, Tuning]) -> Table:
    """Return the loss of every method at its best values, a column a file."""
    methods = ordered(method for tuning in tunings.values() for method in tuning.nll)
    columns = (Column("Method"), *(Column("Nats", "nll", "min", name) for name in tunings))
    rows = tuple(
        (name_of(method), *(tuning.nll.get(method) for tuning in tunings.values()))
        for method in methods
    )
    return Table.of_cells("tuned-loss", "Loss on validation text at the best values", columns, rows)


def _values(name: str, tuning: Tuning) -> Table:
    """Return the chosen values next to the paper's."""
    source, target = tuning.scenario.get("source"), tuning.scenario.get("target")
    starts = PAPER.get(str(target) if source == target else "cross", {})
    # none of the paper's
    printed = {key: value for key, value in starts.items() if not key.startswith("knn.")}
    rows: list[tuple[Cell, ...]] = [
        (key, _text(tuning.values.get(key)), _text(printed.get(key)))
        for key in dict.fromkeys([*tuning.values, *printed])
    ]
    points = ", ".join(f"{name_of(method)} {count:,}" for method, count in tuning.points.items())
    columns = (Column("Hyper-parameter"), Column("Tuned"), Column("Paper"))
    return Table.of_cells(
        "tuned-values",
        f"Chosen values, {name}",
        columns,
        tuple(rows),
        (f"Points tried: {points}.",),
    )


def _text(value: object) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
