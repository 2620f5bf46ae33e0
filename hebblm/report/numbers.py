"""Numbers on their way to a file or a page: perplexity, JSON-safe infinities, readable digits."""

from __future__ import annotations

import math
from typing import Any, Literal

from hebblm.errors import UserError

INFINITY = "inf"
MISSING = "-"

Kind = Literal["text", "nll", "perplexity", "count", "rate", "signed"]


def perplexity(nll: float) -> float:
    """Return exp(nll) for a loss in nats per token; inf where that exceeds the largest float."""
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def encode(value: Any, where: str) -> Any:
    """Return ``value`` as plain JSON data, an infinite number as the string ``"inf"``.

    A zero probability is an infinite loss, which JSON numbers cannot express.

    Args:
        value: nested dicts, lists, tuples, strings, numbers, booleans and None.
        where: the name of the value, for the error message.

    Raises:
        UserError: a nan or minus infinity, neither of which is a result.
    """
    if isinstance(value, dict):
        return {str(key): encode(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        _refuse_undefined(value, where)
        return INFINITY
    return value


def decode(value: Any, where: str) -> Any:
    """Undo :func:`encode`: the string ``"inf"`` becomes a float, a nan is refused.

    Raises:
        UserError: a nan or minus infinity.
    """
    if isinstance(value, dict):
        return {key: decode(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float):
        _refuse_undefined(value, where)
    return math.inf if value == INFINITY else value


def _refuse_undefined(value: float, where: str) -> None:
    """Let everything pass but nan and minus infinity."""
    if math.isnan(value) or value == -math.inf:
        raise UserError(
            f"{where} is {value}, which is no result; lower the learning rate or leave the guard on"
        )


def display(value: str | float | None, kind: Kind, decimals: int = 4) -> str:
    """Return a cell as a reader wants it.

    Losses and differences have ``decimals`` decimals; perplexities lose decimals as they grow and turn to
    scientific notation from one million on; an absent value is ``-`` and an infinite one ``inf``.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return INFINITY if value > 0 else f"-{INFINITY}"
    match kind:
        case "nll":
            return f"{value:.{decimals}f}"
        case "signed":
            return f"{value:+.{decimals}f}"
        case "perplexity":
            return _display_perplexity(value)
        case "rate":
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        case "count":
            return f"{value:,.0f}"
        case "text":
            return f"{value:g}"


def _display_perplexity(value: float) -> str:
    """Return about five significant digits."""
    if value >= 1e6:
        return f"{value:.2e}"
    if value >= 1e4:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1e3 else f"{value:.2f}"
