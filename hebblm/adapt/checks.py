"""Ranges of the equations' arguments: a value outside is an error with its name and the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hebblm.errors import UserError
from hebblm.runtime.spelling import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Scale = Literal["relative", "absolute"]
"""Scores and distances relative to those that a query sees, or as they are."""
LrUnits = Literal["relative", "absolute", "guarded"]
"""A learning rate in the unit of a query's curvature, as it is, or as it is with a second run if it
diverges.
"""


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
            f"{name} = {value!r} is unknown;{did_you_mean(value, allowed)} choose one of "
            f"{', '.join(allowed)}"
        )


def logits_or_linear(form: str, scale: str, **values: float | str) -> None:
    """Raise if ``logit-sum`` gets scores in another unit than the logits', or a value to learn
    online.
    """
    for name, value in values.items():
        if form == "logit-sum" and isinstance(value, str):
            raise UserError(
                f"mixture.form = 'logit-sum' is not a mixture of two distributions, so {name} = "
                f"{value} cannot learn "
                f"a share; set mixture.{name} to a number"
            )
    if form == "logit-sum" and scale == "relative":
        raise UserError(
            "mixture.form = 'logit-sum' needs scores in the unit of logits; set "
            "mixture.scale=absolute"
        )


def some_neighbors(labels: Tensor) -> None:
    """Raise if queries have no neighbours: labels (N, 0)."""
    if labels.shape[1] == 0:
        raise UserError("K = 0 neighbours leave nothing to adapt to; choose K >= 1")


def precise(weight: Tensor) -> None:
    """Raise if a softmax layer (V, D) has half precision: its sums overflow, and equations cannot
    be solved.
    """
    if weight.dtype.itemsize < 4:
        name = str(weight.dtype).removeprefix("torch.")
        raise UserError(f"a softmax layer of {name} cannot be adapted; give its weights as float32")
