"""Ranges of what the equations take: a value outside is refused with its name and the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hebblm.errors import UserError
from hebblm.suggest import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.types import Neighbors

Scale = Literal["relative", "absolute"]
"""Scores and distances in units of what a query sees, or as they are."""
LrUnits = Literal["relative", "absolute", "guarded"]
"""A learning rate in the unit of a query's curvature, as it is, or as it is with a second run where it diverges."""


def at_least(name: str, value: float, low: float) -> None:
    if not (math.isfinite(value) and value >= low):
        raise UserError(f"{name} = {value} is out of range; choose {name} >= {low:g}")


def above_zero(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} = {value} is out of range; choose {name} > 0")


def share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UserError(f"{name} = {value} is out of range; choose {name} within [0, 1]")


def decay(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise UserError(f"{name} = {value} is out of range; choose {name} with 0 <= {name} < 1")


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UserError(
            f"{name} = {value!r} is unknown;{did_you_mean(value, allowed)} choose one of {', '.join(allowed)}"
        )


def logits_or_linear(form: str, scale: str, **values: float | str) -> None:
    """Raise if Mixture's scores are to be added to logits in another unit than theirs, or by shares to be learned."""
    for name, value in values.items():
        if form == "logit-sum" and isinstance(value, str):
            raise UserError(
                f"mixture.form = 'logit-sum' mixes no two distributions whose share could be learned, as {name} = "
                f"{value} asks; set mixture.{name} to a number"
            )
    if form == "logit-sum" and scale == "relative":
        raise UserError("mixture.form = 'logit-sum' needs scores in the unit of logits; set mixture.scale=absolute")


def some_neighbors(neighbors: Neighbors) -> None:
    if neighbors.keys.shape[1] == 0:
        raise UserError("K = 0 neighbours leave nothing to adapt to; choose K >= 1")


def precise(weight: Tensor) -> None:
    """Raise if a softmax layer (V, D) is of half precision: sums overflow in it, and equations cannot be solved."""
    if weight.dtype.itemsize < 4:
        name = str(weight.dtype).removeprefix("torch.")
        raise UserError(f"a softmax layer of {name} cannot be adapted; give its weights as float32")
