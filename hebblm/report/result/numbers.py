"""Numbers of a result, and how people read them: perplexity from a loss, few digits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

INFINITY = "inf"
MISSING = "-"

Kind = Literal[
    "text", "nll", "perplexity", "count", "amount", "percent", "signed", "interval", "tested"
]
"""How a column is read; ``tested`` is an interval with a star where it leaves out 0."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with both ends of its interval; an end that is not known is None."""

    value: float | None
    low: float | None
    high: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0; one that is not known does not."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


Cell = str | float | Interval | None
"""Value of a table."""


def perplexity(nll: float) -> float:
    """Exp(nll) for a loss in nats per token; inf above what a float can hold."""
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def difference(loss: float | None, other: float | None) -> float | None:
    """``loss - other``; None where one is missing or both are infinite."""
    if loss is None or other is None or (math.isinf(loss) and math.isinf(other)):
        return None
    return loss - other


def display(value: Cell, kind: Kind, decimals: int = 4) -> str:
    """Format a value for people.

    Losses and differences have ``decimals`` decimals, percent one, or two below 1; perplexities
    lose decimals as they grow and turn to scientific notation from one million on; an absent value
    is ``-`` and an infinite one ``inf``. An interval is its value with half of its width.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, Interval):
        return _display_interval(value, decimals, starred=kind == "tested")
    if math.isinf(value):
        return INFINITY if value > 0 else f"-{INFINITY}"
    return _display_number(value, kind, decimals)


def _display_interval(interval: Interval, decimals: int, *, starred: bool) -> str:
    if interval.value is None:
        return MISSING
    text = f"{interval.value:+.{decimals}f}"
    if interval.low is None or interval.high is None:
        return text
    half = f"{(interval.high - interval.low) / 2:.{decimals}f}"
    if half.startswith("0."):
        half = half.removeprefix("0")
    star = "*" if starred and interval.certain else ""
    return f"{text} ±{half}{star}"


def _display_number(value: float, kind: Kind, decimals: int) -> str:
    match kind:
        case "nll":
            return f"{value:.{decimals}f}"
        case "signed" | "interval" | "tested":
            return f"{value:+.{decimals}f}"
        case "perplexity":
            return _display_perplexity(value)
        case "amount":
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        case "percent":
            return _display_percent(value)
        case "count":
            return f"{value:,.0f}"
        case "text":
            return f"{value:g}"


def _display_percent(value: float) -> str:
    if 0 < value < 0.005:
        return "<0.01"
    if value < 1:
        return f"{value:.2f}"
    return f"{value:.1f}"


def _display_perplexity(value: float) -> str:
    if value >= 1e6:
        return f"{value:.2e}"
    if value >= 1e4:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1e3 else f"{value:.2f}"
