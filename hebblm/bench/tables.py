"""Measurements as tables: every cost beside that of its plain form, and the speed of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hebblm.bench.record import BenchResult, Row
from hebblm.bench.timing import Spread
from hebblm.report.table import Cell, Column, Table, present

_COLUMNS = (Column("Form"), Column("ms a token", wide=True), Column("Times as fast", wide=True), Column("as"))


def cost_tables(results: Sequence[BenchResult]) -> list[Table]:
    """Return the cost of everything that was measured, and the speed of training where it was."""
    return present(cost_table(results), training_table(results))


def cost_table(results: Sequence[BenchResult]) -> Table:
    """Return every timing with its cost a token and how many times that its reference costs."""
    rows = tuple((described(row), *cells) for result in results for row in result.rows for cells in _costs(row))
    notes = ("Medians with extremes.", *map(origin, results))
    return Table("cost", "Cost beside the plain forms", (Column("What"), *_COLUMNS), rows, notes)


def row_table(row: Row) -> Table:
    """Return the timings of one case, as they stand in :func:`cost_table`; what else was found is a note."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in row.values.items())
    return Table("row", described(row), _COLUMNS, tuple(_costs(row)), (values,) if values else ())


def _costs(row: Row) -> Iterator[tuple[Cell, ...]]:
    """Yield of each timing its name, its cost, and how many times as fast it is as its reference."""
    for name, timing in row.timings.items():
        plain = row.references.get(name)
        yield name, spread(timing.milliseconds()), None if plain is None else spread(row.faster(name)), plain


def described(row: Row) -> str:
    """Return what a row is about: its name, sizes and settings."""
    sizes = (f"{key} {value}" for key, value in row.case.items() if isinstance(value, (int, float, str)))
    return f"{row.name}: {', '.join(sizes)}"


def spread(value: Spread) -> str:
    """Return a median with its extremes."""
    return f"{value.median:.4g} ({value.low:.4g} to {value.high:.4g})"


def training_table(results: Sequence[BenchResult]) -> Table | None:
    """Return tokens a second of each preset beside the plain model, None where no training was measured."""
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
        "Whole recipe: all epochs over the corpus of that vocabulary, at the speed of the first steps; an estimate.",
        "Growth: from the middle to the end of a few dozen segments, in which lengths are still met that are new.",
    )
    return Table("training", "Speed of training", columns, rows, notes)


def origin(result: BenchResult) -> str:
    """Return where a result came from in one line."""
    by = result.provenance
    commit = (by["commit"] or "unknown")[:12]
    state = "" if result.complete else "; interrupted, what was finished is counted"
    return (
        f"{by['command']}: commit {commit}, torch {by['versions']['torch']}, {by['cpu']}, "
        f"device {by['device']}, {by['threads']} threads, seed {by['seed']}{state}"
    )
