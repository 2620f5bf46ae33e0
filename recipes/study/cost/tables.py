"""Measurements held against the goals."""

from __future__ import annotations

from collections.abc import Sequence

from hebblm.report.result.numbers import MISSING
from hebblm.report.tables.table import Column, Table, present
from recipes.bench.record import BenchResult
from recipes.bench.tables import origin, training_table
from recipes.study.cost.goals import goals


def cost_tables(results: Sequence[BenchResult]) -> list[Table]:
    """Return every table that there is something for, the goals first."""
    return present(goal_table(results), training_table(results))


def goal_table(results: Sequence[BenchResult]) -> Table:
    """Return every goal with what was measured for it; a goal that no file is about reads ``-``."""
    rows = [row for result in results for row in result.rows]
    lines = []
    for goal in goals():
        finding = goal.measure(rows)
        if finding is None:
            lines.append((goal.text, "not measured", MISSING))
        else:
            lines.append((goal.text, finding.text, "yes" if finding.met else "no"))
    columns = (Column("Goal"), Column("Measured: median (extremes)"), Column("Met"))
    return Table.of_cells(
        "goals", "Cost of adaptation", columns, tuple(lines), tuple(map(origin, results))
    )
