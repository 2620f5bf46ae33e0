"""Names, order, colours and line styles of the methods: the same in every table and plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hebblm.adapt.methods import EVALUATED
from hebblm.errors import UserError

BASE = "lstm"
DYNAMIC = "dynamic"
PLOTTED = 6  # methods in a plot by default; the tables have all


@dataclass(frozen=True, slots=True)
class Look:
    name: str
    color: str
    line: str = "-"

    @property
    def hatch(self) -> str:
        """Hatching that sets bars of one colour apart, as the line does for curves."""
        return _HATCHES[self.line]


# Of the methods' colours, all from Paul Tol's "muted" scheme, which stays distinct under the common
# colour-vision deficiencies. A combination is dashed, so that no pair of neighbours in the legend
# depends on hue alone.
_HATCHES = {"-": "", "--": "////", ":": "....", "-.": "xxxx"}
_FURTHER_COLORS = ("#aa4499", "#0077bb", "#ee7733", "#009988", "#aa3377")
_FURTHER_LINES = (":", "-.")


def check_plotted(most: int) -> None:
    """Raise UserError unless so many methods can be plotted; 0 stands for all."""
    if most < 0:
        raise UserError(f"plotted={most} must be at least 0, which draws all methods")


def ordered(methods: Iterable[str]) -> list[str]:
    """Return methods in the order of their records; those without their own look follow by name."""
    rank = {}
    for index, (name, record) in enumerate(EVALUATED.items()):
        if record.plot_style:
            rank[name] = index
    return sorted(set(methods), key=lambda method: (rank.get(method, len(EVALUATED)), method))


def without_base(methods: Iterable[str]) -> list[str]:
    """Return the methods that can be compared with the base, in their order."""
    return [method for method in methods if method != BASE]


def best_of(losses: Mapping[str, float | None], most: int) -> set[str]:
    """The unadapted model, where it is there, and the methods with the lowest losses."""

    def rank(name: str) -> tuple[bool, float]:
        loss = losses[name]
        return name != BASE, math.inf if loss is None else loss

    return set(sorted(ordered(losses), key=rank)[:most])


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """Look of every method, in order; variants such as ``hebb-v1`` get a spare colour and line."""
    result: dict[str, Look] = {}
    further = 0
    for method in ordered(methods):
        if method in EVALUATED and (look := EVALUATED[method].plot_style):
            result[method] = Look(name_of(method), *look)
            continue
        line = _FURTHER_LINES[further // len(_FURTHER_COLORS) % len(_FURTHER_LINES)]
        result[method] = Look(
            name_of(method), _FURTHER_COLORS[further % len(_FURTHER_COLORS)], line
        )
        further += 1
    return result


def name_of(method: str) -> str:
    """Return a method's printed name, part by part: ``cache+hebb-250`` is ``Cache+Hebb-250``."""
    if method in EVALUATED:
        return EVALUATED[method].label
    return "+".join(_part_name(part) for part in method.split("+"))


def _part_name(part: str) -> str:
    """Return the printed name of one part of a combination; an unknown part stays as it is."""
    stem, dash, suffix = part.partition("-")
    return f"{EVALUATED[stem].label}{dash}{suffix}" if stem in EVALUATED else part
