"""A section of the hyper-parameters: values whose types say in which range they lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from hebblm.adapt import checks

ONLINE: Literal["online"] = "online"
Positive = Annotated[float, checks.above_zero]
NonNegative = Annotated[float, partial(checks.at_least, low=0)]
Steps = Annotated[int, partial(checks.within, low=0, high=10_000)]
"""Steps a query, so few that one of them ends."""
Count = Annotated[int, partial(checks.at_least, low=1)]
Fraction = Annotated[float, checks.share]
Decay = Annotated[float, checks.decay]
Share = Annotated[float | Literal["online"], checks.share]
"""Share of one of two distributions: a number, or learned from the tokens already scored."""
Sharpness = Annotated[float | Literal["online"], partial(checks.at_least, low=0)]
"""Sharpness of weights: a number, or three of them with shares learned from the tokens already scored."""
Temperature = Annotated[float | Literal["online"], checks.above_zero]
"""Its inverse."""
Weight = Annotated[float | Literal["online"], partial(checks.at_least, low=0)]
"""Weight of a change: a number, or learned from the tokens already scored."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the hyper-parameters, whose values are set as ``section.name``; their types say their ranges.

    Raises:
        UserError: a value out of range, or a word that the value's type does not know.
    """

    section: ClassVar[str]

    def __post_init__(self) -> None:
        own: type = type(self)
        for name, hint in _hints(own).items():
            value, dotted = getattr(self, name), f"{self.section}.{name}"
            if isinstance(value, str):
                if words := words_of(hint):
                    checks.one_of(dotted, value, words)
                continue
            for check in getattr(hint, "__metadata__", ()):
                check(dotted, value)


@cache
def _hints(section: type) -> dict[str, Any]:
    """Return the types of a section's values; to work them out takes longer than all checks."""
    return get_type_hints(section, include_extras=True)


def words_of(hint: Any) -> list[str]:
    """Return the words that a value of a type may be."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    return [word for part in (hint, *get_args(hint)) if get_origin(part) is Literal for word in get_args(part)]
