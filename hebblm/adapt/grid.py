"""Grid of the values that tuning tries; each method's record says which of them it tries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hebblm.adapt.settings import ONLINE, Share, Sharpness, Temperature, Weight

Values = tuple[float, ...]
Axes = Mapping[str, Iterable[float | str]]
"""Values to try, by the name of a setting."""

COSTLY = {
    "mbpa_l2_to_base": ["mbpa.l2_to_base"],
    "mbpa_weight": ["mbpa.weight"],
    "mbpa_lr": ["mbpa.lr"],
    "mbpa_steps": ["mbpa.steps"],
    "absolute_lr": ["mbpa_absolute.lr"],
    "beta": ["hebb.beta"],
    "eta": ["hebb.eta"],
    "kernel_weight": ["hebb.kernel_weight"],
}
"""Axes where every value costs an adaptation, and the settings that are tried along them."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Values to try, both absolute ones and those relative to a model's units."""

    # of a moving base, across domains only
    base_lr: Values = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0)
    # of Mixture and cache
    theta: tuple[Sharpness, ...] = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, ONLINE)
    # of kNN-LM
    temperature: tuple[Temperature, ...] = (0.1, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5, 3.0, 10.0, ONLINE)
    # of these three
    gamma: tuple[Share, ...] = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, ONLINE)
    mbpa_l2_to_base: Values = (0.001, 0.0015, 0.0025, 0.0035, 0.005, 0.007, 0.01, 0.02)
    mbpa_weight: tuple[Weight, ...] = (0.5, 0.75, 1.0, 1.25, ONLINE)
    mbpa_lr: Values = (6.0, 8.0, 10.0)  # for descent by sgd, relative to curvature
    mbpa_steps: tuple[int, ...] = (5, 10, 15)
    absolute_lr: Values = (0.01, 0.1, 1.0, 5.0, 25.0)  # lambda of MbPA at an absolute rate
    beta: Values = (0.0, 0.15, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
    eta: Values = (
        0.01,
        0.03,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.7,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        6.0,
        8.0,
        10.0,
        15.0,
    )
    kernel_weight: tuple[Literal["raw", "sum", "max"], ...] = ("raw", "sum", "max")
    # of Mixture+...
    weight: tuple[Share, ...] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, ONLINE)
    dynamic_lr: Values = (0.25, 0.5, 1.0, 2.0, 4.0)  # as a multiple of the model's default
    dynamic_decay: Values = (0.0002, 0.001, 0.005, 0.02, 0.1, 0.5)

    def around(self, values: Mapping[str, Any]) -> Grid:
        """Return the part of the grid next to some values by dotted name; axes that cost little
        stay whole.
        """
        axes = {
            axis: [values[name] for name in names if name in values]
            for axis, names in COSTLY.items()
        }
        return replace(
            self,
            **{axis: near(getattr(self, axis), points) for axis, points in axes.items() if points},
        )


def near(tried: Sequence[Any], points: Iterable[Any]) -> tuple[Any, ...]:
    """Return the tried values next to some: for a number the nearest, the one below and the one
    above.

    A word has no neighbours. Next to a number every word is kept, since all words are equally far.
    """
    numbers = sorted({value for value in tried if not isinstance(value, str)})
    kept: set[Any] = set()
    for value in points:
        if isinstance(value, str):
            kept.add(value)
            continue
        nearest = min(range(len(numbers)), key=lambda at: abs(numbers[at] - value))
        kept |= {
            *numbers[max(0, nearest - 1) : nearest + 2],
            *(word for word in tried if isinstance(word, str)),
        }
    return tuple(value for value in tried if value in kept)
