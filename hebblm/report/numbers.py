"""Printed numbers: perplexity from a loss, readable digits."""

from __future__ import annotations

import math
from typing import Literal

INFINITY = "inf"
MISSING = "-"

Kind = Literal["text", "nll", "perplexity", "count", "amount", "percent", "signed"]


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


def display(value: str | float | None, kind: Kind, decimals: int = 4) -> str:
    """Format a cell for people.

    Losses and differences have ``decimals`` decimals, percent one, or two below 1; perplexities
    lose decimals as they grow and turn to scientific notation from one million on; an absent value
    is ``-`` and an infinite one ``inf``.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return INFINITY if value > 0 else f"-{INFINITY}"
    return _display_number(value, kind, decimals)


def _display_number(value: float, kind: Kind, decimals: int) -> str:
    match kind:
        case "nll":
            return f"{value:.{decimals}f}"
        case "signed":
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
