"""A measurement on disk: JSON with every raw time, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from recipes.bench.timing import Spread, Tick, Timing, Turn, interleave

if TYPE_CHECKING:
    import torch

SCHEMA = "hebblm-bench/1"


@dataclass(frozen=True, slots=True)
class Row:
    """Measurement of one case: sizes and settings, timings by name, each one's reference, and what
    else was found.
    """

    name: str
    case: dict[str, Any]
    timings: dict[str, Timing] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    # Of version 0.2.0, by timing: the least time, milliseconds a token, that the bytes to move and
    # the operations to do could have taken at rates that were measured beside it. Not counted any
    # more.
    floors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not math.isfinite(value):
                raise UserError(
                    f"{self.name}: {name} is {value}, which is no measurement; choose a smaller lr"
                )

    def faster(self, name: str) -> Spread:
        """Return how many times the cost of ``name`` its reference costs."""
        return self.timings[self.references[name]].times(self.timings[name])

    def milliseconds(self, name: str) -> float:
        """Return the median cost of ``name``, milliseconds a token."""
        return self.timings[name].milliseconds().median

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "case": self.case,
            "ratios": {
                name: {"to": reference, **self.faster(name).to_json()}
                for name, reference in self.references.items()
            },
            "values": self.values,
            "timings": {name: timing.to_json() for name, timing in self.timings.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Row:
        return cls(
            name=value["name"],
            case=value["case"],
            timings={
                name: Timing(tuple(item["seconds"]), tuple(item["tokens"]))
                for name, item in value["timings"].items()
            },
            references={name: item["to"] for name, item in value["ratios"].items()},
            values=value["values"],
            floors={name: floor["ms_per_token"] for name, floor in value.get("floors", {}).items()},
        )


Case = Callable[[], Row]
"""Measures one row; what it holds for that is free once it is dropped."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Schedule of the timings of a command's rows; ``tick`` is called after every round."""

    device: torch.device
    repeats: int
    tick: Tick = lambda: None

    def times(self, turns: Mapping[str, Turn]) -> dict[str, Timing]:
        """Return the times of what is run in turn; see :func:`recipes.bench.timing.interleave`."""
        return interleave(turns, self.repeats, self.tick)


def of_one_vocabulary(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the vocabulary that most of them are about, so that they differ in nothing
    else.
    """
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case["vocabulary"], []).append(row)
    return max(groups.values(), key=len, default=[])


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All rows of one command; not complete while the command runs, or if it was interrupted."""

    kind: str
    provenance: dict[str, Any]
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    complete: bool

    def save(self, path: Path) -> None:
        """Write JSON, atomically."""
        rows = [row.to_json() for row in self.rows]
        write_json(path, {"schema": SCHEMA, **asdict(replace(self, rows=())), "rows": rows})

    @classmethod
    def load(cls, path: Path) -> BenchResult:
        """Read a file of measurements."""
        document = read_json(path)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise UserError(f"{path} is no measurement of costs; name a file of schema {SCHEMA}")
        try:
            return cls(
                kind=document["kind"],
                provenance=document["provenance"],
                settings=document["settings"],
                rows=tuple(Row.from_json(item) for item in document["rows"]),
                complete=document["complete"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} lacks parts of a measurement ({error!r}); run recipes.bench again"
            ) from error
