"""The least time that a measured thing could have taken on the machine it was measured on, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recipes.study.cost.rates import Rates
from recipes.study.cost.work import Work


@dataclass(frozen=True, slots=True)
class Phase:
    """Work that could be done all at once.

    Args:
        work: of a token.
        rates: measured just before or after the work itself was timed.
    """

    work: Work
    rates: Rates

    @property
    def milliseconds(self) -> float:
        """The least time a token."""
        return 1000 * self.rates.seconds(self.work)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"ms_per_token": self.milliseconds, "work": asdict(self.work), "rates_per_second": asdict(self.rates)}


@dataclass(frozen=True, slots=True)
class Floor:
    """A floor under a timing.

    Args:
        phases: one after the other, as each needs what the one before gives.
        parts: what the timing itself was spent on, milliseconds a token by part.
    """

    phases: Mapping[str, Phase]
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        """The least time a token."""
        return sum(phase.milliseconds for phase in self.phases.values())

    @property
    def work(self) -> Work:
        """The work of all phases."""
        return sum((phase.work for phase in self.phases.values()), Work())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "ms_per_token": self.milliseconds,
            "phases": {name: phase.to_json() for name, phase in self.phases.items()},
            "parts_ms_per_token": dict(self.parts),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Floor:
        """Read what :meth:`to_json` made."""
        return cls(
            {
                name: Phase(Work(**item["work"]), Rates(**item["rates_per_second"]))
                for name, item in value["phases"].items()
            },
            value["parts_ms_per_token"],
        )
