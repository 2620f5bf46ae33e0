"""Names, order, colours and line styles of the methods: the same in every table and plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hebblm.adapt.methods import METHODS

BASE = "lstm"
DYNAMIC = "dynamic"
PLOTTED = 6  # methods that a plot shows unless more are asked for; the tables have all


@dataclass(frozen=True, slots=True)
class Look:
    """Name, colour and line of one method."""

    name: str
    color: str
    line: str = "-"

    @property
    def hatch(self) -> str:
        """What sets bars of one colour apart, as the line does for curves."""
        return _HATCHES[self.line]


# Paul Tol's "muted" scheme, which stays distinct under the common colour-vision deficiencies. A combination
# is dashed, so that no pair of neighbours in the legend depends on hue alone.
_HATCHES = {"-": "", "--": "////", ":": "....", "-.": "xxxx"}
_LOOKS = {
    "lstm": Look(METHODS["lstm"].label, "#555555"),
    "dynamic": Look(METHODS["dynamic"].label, "#999933"),
    "cache": Look(METHODS["cache"].label, "#88ccee"),
    "knn": Look(METHODS["knn"].label, "#332288"),
    "mixture": Look(METHODS["mixture"].label, "#117733"),
    "mbpa": Look(METHODS["mbpa"].label, "#ddaa33"),
    "hebb": Look(METHODS["hebb"].label, "#cc6677"),
    "mixture+mbpa": Look(METHODS["mixture+mbpa"].label, "#44aa99", "--"),
    "mixture+hebb": Look(METHODS["mixture+hebb"].label, "#882255", "--"),
    "mixture-gated": Look(METHODS["mixture-gated"].label, "#117733", ":"),
    "hebb-learned": Look(METHODS["hebb-learned"].label, "#cc6677", ":"),
    "mixture+hebb-learned": Look(METHODS["mixture+hebb-learned"].label, "#882255", ":"),
    "mixture+cache": Look(METHODS["mixture+cache"].label, "#88ccee", "--"),
    "dynamic+mixture": Look(METHODS["dynamic+mixture"].label, "#999933", "--"),
    "dynamic+mixture+hebb": Look(METHODS["dynamic+mixture+hebb"].label, "#999933", "-."),
    "best": Look(METHODS["best"].label, "#000000"),
    "dynamic+best": Look(METHODS["dynamic+best"].label, "#000000", "--"),
    "dynamic+mixture+cache": Look(METHODS["dynamic+mixture+cache"].label, "#999933", ":"),
}
_FURTHER_COLORS = ("#aa4499", "#0077bb", "#ee7733", "#009988", "#aa3377")
_FURTHER_LINES = (":", "-.")


def ordered(methods: Iterable[str]) -> list[str]:
    """Return the methods in the project's order; those it does not list follow by name."""
    rank = {method: index for index, method in enumerate(_LOOKS)}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))


def best_of(losses: Mapping[str, float | None], most: int) -> set[str]:
    """Return the unadapted model, where it is there, and the methods with the lowest losses.

    Args:
        losses: by method; None where there is none.
        most: how many are returned.
    """
    order = sorted(
        ordered(losses), key=lambda name: (name != BASE, math.inf if (loss := losses[name]) is None else loss)
    )
    return set(order[:most])


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """Return the look of every method, in order; variants such as ``hebb-v1`` get a spare colour and line."""
    result: dict[str, Look] = {}
    further = 0
    for method in ordered(methods):
        if method in _LOOKS:
            result[method] = _LOOKS[method]
            continue
        line = _FURTHER_LINES[further // len(_FURTHER_COLORS) % len(_FURTHER_LINES)]
        result[method] = Look(name_of(method), _FURTHER_COLORS[further % len(_FURTHER_COLORS)], line)
        further += 1
    return result


def name_of(method: str) -> str:
    """Return how a method is written, part by part: ``cache+hebb-250`` is ``Cache+Hebb-250``."""
    if method in METHODS:
        return METHODS[method].label
    return "+".join(_part_name(part) for part in method.split("+"))


def _part_name(part: str) -> str:
    """Return how one part of a combination is written; what is unknown stays as it is."""
    stem, dash, suffix = part.partition("-")
    return f"{METHODS[stem].label}{dash}{suffix}" if stem in METHODS else part
