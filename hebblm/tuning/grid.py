"""Points of a grid."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

Point = dict[str, float | str]
"""Hyper-parameters by dotted name."""


def points(section: str, **axes: Iterable[float | str]) -> list[Point]:
    """Return every combination of some values of a section, the last axis fastest."""
    names = [f"{section}.{name}" for name in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*axes.values())]
