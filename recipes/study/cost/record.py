"""A measurement on disk with the floors under its costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from recipes.bench.record import BenchResult, Row
from recipes.study.cost.floor import Floor


@dataclass(frozen=True, slots=True)
class FlooredRow(Row):
    """Measurement of one case, above the least that it could have cost.

    Args:
        floors: by timing; rows without a floor have none.
    """

    floors: dict[str, Floor] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Row, floors: dict[str, Floor]) -> FlooredRow:
        """Return a row with floors under its timings."""
        return cls(**{part.name: getattr(row, part.name) for part in fields(Row)}, floors=floors)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**Row.to_json(self), "floors": {name: floor.to_json() for name, floor in self.floors.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FlooredRow:
        """Read what :meth:`to_json` made; what ``recipes.bench`` writes has no floors."""
        floors = {name: Floor.from_json(item) for name, item in value.get("floors", {}).items()}
        return cls.of(Row.from_json(value), floors)


def floors_of(row: Row) -> Mapping[str, Floor]:
    """Return the floors under a row's timings, none where none were measured."""
    return row.floors if isinstance(row, FlooredRow) else {}


def load(path: Path) -> BenchResult:
    """Read a file of measurements with its floors.

    Raises:
        UserError: no such file, or it is something else.
    """
    return BenchResult.load(path, FlooredRow)
