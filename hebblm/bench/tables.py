"""Measurements as tables: the goals, the floors under them, and the speed of training."""

from __future__ import annotations

from collections.abc import Sequence

from hebblm.bench.floors import floor_table
from hebblm.bench.goals import goals
from hebblm.bench.record import BenchResult, Row
from hebblm.report.numbers import MISSING
from hebblm.report.table import Column, Table


def cost_tables(results: Sequence[BenchResult]) -> list[Table]:
    """Return every table that there is something for, the goals first.

    Args:
        results: of any kinds.
    """
    found = (goal_table(results), floor_table(results), training_table(results))
    return [table for table in found if table is not None]


def goal_table(results: Sequence[BenchResult]) -> Table:
    """Return every goal with what was measured for it; a goal that no file is about reads ``-``.

    Args:
        results: of any kinds; where several are about one goal, the last counts.
    """
    rows = [row for result in results for row in result.rows]
    lines = []
    for goal in goals():
        finding = goal.measure(rows)
        if finding is None:
            lines.append((goal.text, "not measured", MISSING))
        else:
            lines.append((goal.text, finding.text, "yes" if finding.met else "no"))
    columns = (Column("Goal"), Column("Measured: median (extremes)"), Column("Met"))
    return Table("goals", "Cost of adaptation", columns, tuple(lines), tuple(map(origin, results)))


def training_table(results: Sequence[BenchResult]) -> Table | None:
    """Return tokens a second of each preset beside the plain model, None where no training was measured."""
    rows = [row for result in results for row in result.rows if row.name == "train"]
    if not rows:
        return None
    columns = (
        Column("Preset"),
        Column("V", "count"),
        Column("Tokens a second", "rate"),
        Column("Times the plain model", "rate"),
        Column("Whole recipe, hours", "rate"),
        Column("Growth, bytes a segment", "rate"),
    )
    notes = (
        "Whole recipe: all epochs over the corpus of that vocabulary, at the speed of the first steps; an estimate.",
        "Growth: from the middle to the end of a few dozen segments, in which lengths are still met that are new.",
    )
    return Table("training", "Speed of training", columns, tuple(map(_training_row, rows)), notes)


def _training_row(row: Row) -> tuple[str, float, float, float, float | None, float | None]:
    """Return one line of the training table."""
    return (
        row.case["preset"],
        row.case["vocabulary"],
        row.values["tokens_per_second"],
        row.faster("preset").median,
        row.values.get("recipe_hours"),
        row.values.get("growth_bytes_per_segment"),
    )


def origin(result: BenchResult) -> str:
    """Return where a result came from in one line."""
    by = result.provenance
    commit = (by["commit"] or "unknown")[:12]
    state = "" if result.complete else "; interrupted, what was finished is counted"
    return (
        f"{by['command']}: commit {commit}, torch {by['versions']['torch']}, {by['cpu']}, "
        f"device {by['device']}, {by['threads']} threads, seed {by['seed']}{state}"
    )
