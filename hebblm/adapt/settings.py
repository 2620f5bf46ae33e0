"""The settings of all methods together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from hebblm.adapt.methods import METHODS
from hebblm.adapt.section import Section

S = TypeVar("S", bound=Section)

SECTIONS: tuple[type[Section], ...] = tuple(
    dict.fromkeys(kind for method in METHODS.values() for kind in method.settings)
)
"""Sections of the settings, once each, as the records of the methods name them."""


@dataclass(frozen=True, slots=True, init=False)
class MethodSettings:
    """Hyper-parameters of all methods that work on hidden states, a section each: ``settings[MbpaConfig].lr``.

    Args:
        sections: those that are not at their default values; of two of a kind the last.

    Raises:
        TypeError: a section that belongs to no method.
    """

    sections: tuple[Section, ...]

    def __init__(self, *sections: Section) -> None:
        given = {type(section): section for section in sections}
        if unknown := given.keys() - set(SECTIONS):
            raise TypeError(f"no method has settings of {', '.join(sorted(kind.__name__ for kind in unknown))}")
        object.__setattr__(self, "sections", tuple(given.get(kind) or kind() for kind in SECTIONS))

    def __getitem__(self, kind: type[S]) -> S:
        return next(section for section in self.sections if type(section) is kind)

    def replaced(self, *sections: Section) -> MethodSettings:
        """Return a copy with other sections in place of those of their kinds."""
        return MethodSettings(*self.sections, *sections)

    def document(self) -> dict[str, Any]:
        """Return the values by section, as JSON."""
        return {section.section: asdict(section) for section in self.sections}
