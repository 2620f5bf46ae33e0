"""Points of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from hebblm.adapt.grid import near

Point = dict[str, float | str]
"""Hyper-parameters by dotted name."""


def points(section: str, **axes: Iterable[float | str]) -> list[Point]:
    """Return every combination of some values of a section, the last axis fastest."""
    names = [f"{section}.{name}" for name in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*axes.values())]


def next_to(tried: Sequence[Point], point: Point) -> list[Point]:
    """Return those of some points, all combinations of some values, that are next to a point along every axis."""
    axes = {name: near([each[name] for each in tried], [value]) for name, value in point.items()}
    return [each for each in tried if all(each[name] in kept for name, kept in axes.items())]
