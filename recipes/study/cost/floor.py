"""The least time that a measured thing could have taken on the machine it was measured on, and where its time went.

Floors were counted and measured by version 0.2.0; here they are read from the measurements that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from recipes.bench.record import BenchResult, Row


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a token."""

    streamed: float = 0.0  # bytes read or written in order
    gathered: float = 0.0  # bytes read row by row, from places known only when they are asked for
    operations: float = 0.0  # additions and multiplications
    exponentials: float = 0.0  # of single numbers

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(Work)))

    @property
    def bytes(self) -> float:
        return self.streamed + self.gathered


@dataclass(frozen=True, slots=True)
class Rates:
    """Amounts of work that a second is enough for, as measured beside the work itself."""

    streamed: float
    gathered: float
    operations: float
    exponentials: float

    def seconds(self, work: Work) -> float:
        """The least time that ``work`` can take: moving bytes or computing, whichever takes longer."""
        moved = work.streamed / self.streamed + work.gathered / self.gathered
        computed = work.operations / self.operations + work.exponentials / self.exponentials
        return max(moved, computed)


@dataclass(frozen=True, slots=True)
class Phase:
    """Work that could be done all at once, and the rates of the machine then."""

    work: Work
    rates: Rates

    @property
    def milliseconds(self) -> float:
        return 1000 * self.rates.seconds(self.work)

    def to_json(self) -> dict[str, Any]:
        return {
            "ms_per_token": self.milliseconds,
            "work": asdict(self.work),
            "rates_per_second": asdict(self.rates),
        }


@dataclass(frozen=True, slots=True)
class Floor:
    """A floor under a timing."""

    phases: Mapping[str, Phase]  # one after the other, as each needs what the one before gives
    parts: Mapping[str, float] = field(default_factory=dict)  # what was spent on what, milliseconds a token

    @property
    def milliseconds(self) -> float:
        return sum(phase.milliseconds for phase in self.phases.values())

    @property
    def work(self) -> Work:
        return sum((phase.work for phase in self.phases.values()), Work())

    def to_json(self) -> dict[str, Any]:
        return {
            "ms_per_token": self.milliseconds,
            "phases": {name: phase.to_json() for name, phase in self.phases.items()},
            "parts_ms_per_token": dict(self.parts),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Floor:
        phases = {
            name: Phase(Work(**item["work"]), Rates(**item["rates_per_second"]))
            for name, item in value["phases"].items()
        }
        return cls(phases, value["parts_ms_per_token"])


@dataclass(frozen=True, slots=True)
class FlooredRow(Row):
    """Measurement of one case, above the least that it could have cost."""

    floors: dict[str, Floor] = field(default_factory=dict)  # by timing; rows without a floor have none

    @classmethod
    def of(cls, row: Row, floors: dict[str, Floor]) -> FlooredRow:
        return cls(**{part.name: getattr(row, part.name) for part in fields(Row)}, floors=floors)

    def to_json(self) -> dict[str, Any]:
        return {**Row.to_json(self), "floors": {name: floor.to_json() for name, floor in self.floors.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FlooredRow:
        floors = {name: Floor.from_json(item) for name, item in value.get("floors", {}).items()}
        return cls.of(Row.from_json(value), floors)


def floors_of(row: Row) -> Mapping[str, Floor]:
    """The floors under a row's timings, none where none were measured."""
    return row.floors if isinstance(row, FlooredRow) else {}


def load(path: Path) -> BenchResult:
    """A file of measurements with its floors; UserError where there is no such file, or it is something else."""
    return BenchResult.load(path, FlooredRow)
