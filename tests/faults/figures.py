"""What came of a case: how often it was tried, how often it was survived, and what else happened."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

MOST_TOLD = 20


class Clock:
    """Says when a group's time is over; what was not tried by then is missing from its figures.

    Args:
        minutes: that it may take; None for as long as all of it takes.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() > self._end


FOREVER = Clock()


@dataclass
class Case:
    """A case.

    Args:
        tried: how often.
        survived: how often it ended as promised.
        note: what there is to say beside the numbers, such as how many were refused.
        defects: what happened otherwise, in short.
    """

    tried: int = 0
    survived: int = 0
    note: str = ""
    defects: list[str] = field(default_factory=list)

    def count(self, defect: str = "") -> None:
        """Count one more; ``defect`` says what was wrong with it."""
        self.tried += 1
        if defect:
            self.defects.append(defect)
        else:
            self.survived += 1

    def to_json(self) -> dict[str, Any]:
        """Return the case as plain data."""
        return {"tried": self.tried, "survived": self.survived, "note": self.note, "defects": self.defects[:MOST_TOLD]}
