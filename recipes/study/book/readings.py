"""The chapter on what the paper leaves open: the effect of every reading, one table for all texts."""

from __future__ import annotations

from collections.abc import Mapping

from hebblm.report.readings import Readings, readings_table
from recipes.study.book.section import Section


def readings_sections(found: Mapping[str, Readings]) -> list[Section]:
    """Return the chapter, none without readings."""
    if not found:
        return []
    lines = tuple(_line(name, readings) for name, readings in found.items())
    return [Section("What the paper leaves open", lines, (readings_table(found),))]


def _line(name: str, readings: Readings) -> str:
    """Return on what the readings were compared, and by which command."""
    scenario = ", ".join(f"{key} {value}" for key, value in readings.scenario.items())
    by = readings.provenance
    return f"{name}: {scenario}. {by.get('command')}: commit {str(by.get('commit'))[:12]}."
