"""Measurements as tables: the costs of one case, and the speed of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hebblm.report.result.numbers import Cell
from hebblm.report.tables.table import Column, Table
from recipes.bench.record import BenchResult, Row
from recipes.bench.timing import Spread

_COLUMNS = (
    Column("Form"),
    Column("ms a token", wide=True),
    Column("Times as fast", wide=True),
    Column("as"),
)


def row_table(row: Row) -> Table:
    """Return the timings of one case; what else was found is a note."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in row.values.items())
    return Table.of_cells(
        "row", described(row), _COLUMNS, tuple(_costs(row)), (values,) if values else ()
    )


def _costs(row: Row) -> Iterator[tuple[Cell, ...]]:
    """Yield of each timing its name, its cost, and how many times as fast it is as its
    reference.
    """
    for name, timing in row.timings.items():
        plain = row.references.get(name)
        yield (
            name,
            spread(timing.milliseconds()),
            None if plain is None else spread(row.faster(name)),
            plain,
        )


def described(row: Row) -> str:
    """Return the subject of a row: its name, sizes and settings."""
    sizes = (
        f"{key} {value}" for key, value in row.case.items() if isinstance(value, (int, float, str))
    )
    return f"{row.name}: {', '.join(sizes)}"


def spread(value: Spread) -> str:
    """Return a median with its extremes."""
    return f"{value.median:.4g} ({value.low:.4g} to {value.high:.4g})"


def training_table(results: Sequence[BenchResult]) -> Table | None:
    """Return tokens a second of each preset next to the plain model, None where no training was
    measured.
    """
    rows = tuple(
        (
            row.case["preset"],
            row.case["vocabulary"],
            row.values["tokens_per_second"],
            row.faster("preset").median,
            row.values.get("recipe_hours"),
            row.values.get("growth_bytes_per_segment"),
        )
        for result in results
        for row in result.rows
        if row.name == "train"
    )
    if not rows:
        return None
    columns = (
        Column("Preset"),
        Column("V", "count"),
        Column("Tokens a second", "amount"),
        Column("Times the plain model", "amount"),
        Column("Whole recipe, hours", "amount"),
        Column("Growth, bytes a segment", "amount"),
    )
    notes = (
        "Whole recipe: all epochs over the corpus of that vocabulary, at the speed of the first "
        "steps; an estimate.",
        "Growth: from the middle to the end of a few dozen segments, in which lengths are still "
        "met that are new.",
    )
    return Table.of_cells("training", "Speed of training", columns, rows, notes)


def origin(result: BenchResult) -> str:
    """Return where a result came from in one line."""
    by = result.provenance
    commit = (by["commit"] or "unknown")[:12]
    state = "" if result.complete else "; interrupted, what was finished is counted"
    return (
        f"{by['command']}: commit {commit}, torch {by['versions']['torch']}, {by['cpu']}, "
        f"device {by['device']}, {by['threads']} threads, seed {by['seed']}{state}"
    )
