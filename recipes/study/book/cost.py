"""The chapter on cost: goals next to what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from hebblm.report.plots.drawing import Picture
from recipes.bench.plots import cost_figure
from recipes.bench.record import BenchResult
from recipes.study.book.section import Section
from recipes.study.cost.tables import cost_tables

_DRAWN = ("adapt", "retrieve", "eval")


def cost_sections(costs: Mapping[str, BenchResult]) -> list[Section]:
    """Return the chapter, none without measurements."""
    if not costs:
        return []
    results = list(costs.values())
    drawn = any(result.kind in _DRAWN and result.rows for result in results)
    caption = "Cost by size of the memory, vocabulary and steps"
    pictures = (Picture("cost", caption, cost_figure(results)),) if drawn else ()
    return [Section("Cost", tables=tuple(cost_tables(results)), pictures=pictures)]
