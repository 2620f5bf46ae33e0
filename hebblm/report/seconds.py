"""Time of a run by part: what all methods wait for, what some of them share, and what each adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hebblm.report.methods import name_of
from hebblm.report.table import Column, Table

RUN: Final = "run"
SHARED: Final = "shared"
METHOD: Final = "method"
_KINDS = {SHARED: "shared", METHOD: "own"}
_LEAST = 0.001  # of the run: what took less is counted among the rest
_NAMED = 4  # parts in the short form


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a run's time.

    Args:
        kind: ``run`` for all methods, ``shared`` by those that rest on it, or ``method``, one's own.
        name: the method's where it is one's own.
        seconds: each counted in one part only.
    """

    kind: Literal["run", "shared", "method"]
    name: str
    seconds: float

    @property
    def label(self) -> str:
        """The name as a reader sees it."""
        if self.kind == RUN:
            return self.name
        return f"{name_of(self.name) if self.kind == METHOD else self.name}, {_KINDS[self.kind]}"


@dataclass(frozen=True, slots=True)
class Seconds:
    """The time of a whole run, from the scenario that was opened to the numbers.

    Args:
        total: seconds on the clock.
        parts: what is known of them; the rest is the loop itself, tables and intervals.
    """

    total: float
    parts: tuple[Part, ...]

    def largest(self) -> Sequence[Part]:
        """Return the parts that took a thousandth of the run or more, the longest first."""
        shown = (part for part in self.parts if part.seconds >= _LEAST * self.total)
        return sorted(shown, key=lambda part: -part.seconds)

    def table(self) -> Table:
        """Return where the time went, as seconds and as shares of the run."""
        parts = self.largest()
        rest = self.total - sum(part.seconds for part in parts)
        rows = [*((part.label, part.seconds) for part in parts), ("rest", rest), ("all", self.total)]
        return Table(
            "seconds",
            "Where the time goes",
            (Column("What"), Column("Seconds", "amount"), Column("Percent", "amount")),
            tuple((what, seconds, 100 * seconds / self.total) for what, seconds in rows),
            ("A method's time alone is base, retrieval if it asks for it, its own, and shared work it rests on.",),
        )

    def line(self) -> str:
        """Return the longest parts in one line."""
        largest = self.largest()[:_NAMED]
        shares = (f"{part.label} {100 * part.seconds / self.total:.0f} %" for part in largest)
        return f"{self.total:,.1f} seconds: {'; '.join(shares)}"
