"""The settings of all methods together, and the temperature of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from hebblm.adapt import checks
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.rule import dotted
from hebblm.adapt.section import Section

S = TypeVar("S", bound=Section)
Warmth = Annotated[float, partial(checks.within, low=0.01, high=100)]
"""A temperature of a distribution: a loss is divided by it, and has to stay a number that a table can show."""


@dataclass(frozen=True, slots=True)
class TemperedConfig(Section):
    """Temperature T of each method's whole distribution, softmax(log P / T); 1 leaves it as it is.

    One field a method, as :func:`dotted` writes it. The temperature of kNN-LM's weights is ``knn.temperature``.
    """

    section: ClassVar[str] = "tempered"

    if TYPE_CHECKING:  # the fields are made from the records, below

        def __init__(self, **temperatures: float) -> None: ...

    def of(self, method: str) -> float:
        """Return the temperature of a method; 1 for one that has none."""
        return float(getattr(self, dotted(method), 1.0))


if not TYPE_CHECKING:
    TemperedConfig = make_dataclass(
        "TemperedConfig",
        [(dotted(method.name), Warmth, 1.0) for method in METHODS.values() if method.tempered],
        bases=(TemperedConfig,),
        namespace={"__module__": __name__, "__doc__": TemperedConfig.__doc__},
        frozen=True,
        slots=True,
    )


SECTIONS: tuple[type[Section], ...] = (
    *dict.fromkeys(kind for method in METHODS.values() for kind in method.settings),
    TemperedConfig,
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

    def temperature(self, method: str) -> float:
        """Return the temperature of a method's whole distribution."""
        return self[TemperedConfig].of(method)

    def document(self) -> dict[str, Any]:
        """Return the values by section, as JSON."""
        return {section.section: asdict(section) for section in self.sections}
