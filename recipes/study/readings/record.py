"""The typed form of ``readings.json``: what each reading of the paper that it leaves open
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hebblm.errors import UserError
from hebblm.report.result.methods import name_of, ordered
from hebblm.report.result.numbers import Cell, Interval, display
from hebblm.report.result.record import decode, encode, plain, read
from hebblm.report.result.schema import scenario_label
from hebblm.report.tables.table import Column, Table

SCHEMA = "hebblm-readings/1"
FILE_NAME = "readings.json"
DEFAULT = "default"
_NOTE = (
    "The default's loss, and of every other reading its mean loss minus that, nats per token: "
    "above 0 it is worse. "
    "All other values stay those of the default. Tuned: each at the best of the same own values "
    "tried on this text "
    "(Mixture as printed its theta and gamma, MbPA its pull, Hebb its beta and eta), compared with "
    "the tuned default. "
    "* where the 95 % interval leaves out 0; - where nothing changes or nothing was tried."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of one reading on one method."""

    reading: str  # its name, ``default`` for the one that the others are compared with
    method: str  # its name
    nll: float  # mean loss, nats per token
    # of the mean loss from the default, nats per token; None where a loss is infinite
    change: float | None
    low: float | None  # lower end of its interval; None where the text is too short for one
    high: float | None  # upper end
    # the method's own, where they were chosen for this reading
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        """Return whether the interval leaves out 0."""
        return Interval(self.change, self.low, self.high).certain


@dataclass(frozen=True, slots=True)
class Readings:
    """All readings on one text."""

    scenario: Mapping[str, Any]  # source, target, split, tokens and policies
    # by reading, the hyper-parameters or policies that it is
    settings: Mapping[str, Mapping[str, Any]]
    effects: tuple[Effect, ...]  # one a reading and method that it changes
    provenance: Mapping[str, Any]  # command, commit, versions, device, seed

    @property
    def label(self) -> str:
        """A short name such as ``ptb valid``."""
        return scenario_label(
            *(str(self.scenario.get(key)) for key in ("source", "target", "split"))
        )

    @classmethod
    def from_json(cls, value: Any, where: str = FILE_NAME) -> Readings:
        found = read(cls, decode(value, where), where)
        if not found.effects:
            raise UserError(f"{where} has no effects; evaluate at least one method that retrieves")
        return found

    def to_json(self) -> dict[str, Any]:
        encoded: dict[str, Any] = encode({"schema": SCHEMA, **plain(self)}, "readings")
        return encoded


def tuned(reading: str) -> str:
    """Return the name of a reading at each method's own best values for it."""
    return f"{reading}, tuned"


def readings_table(found: Mapping[str, Readings]) -> Table:
    """Return the effect of every reading on every method, text by text."""
    columns = [Column("Reading"), Column("Setting")]
    names = list(
        dict.fromkeys(effect.reading for readings in found.values() for effect in readings.effects)
    )
    known: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, list[Cell]] = {name: [] for name in names}
    for readings in found.values():
        known = {**readings.settings, **known}
        by = {(effect.reading, effect.method): effect for effect in readings.effects}
        for method in ordered(effect.method for effect in readings.effects):
            columns.append(Column(name_of(method), "signed", subheader=readings.label))
            for name in names:
                rows[name].append(_cell(by.get((name, method))))
    written = [
        (name, ", ".join(f"{key} = {value}" for key, value in known.get(name, {}).items()) or None)
        for name in names
    ]
    return Table.of_cells(
        "readings",
        "What the paper leaves open, one reading at a time",
        tuple(columns),
        tuple((*head, *rows[head[0]]) for head in written),
        (_NOTE,),
    )


def _cell(effect: Effect | None) -> Cell:
    """Return the loss of a default, or the change of another reading, marked where it is
    certain.
    """
    if effect is None:
        return None
    if effect.reading in (DEFAULT, tuned(DEFAULT)) or effect.change is None:
        return display(effect.nll, "nll", 3)
    return display(effect.change, "signed", 3) + ("*" if effect.certain else "")
