"""How a base learns from the text it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hebblm.adapt import checks


@dataclass(frozen=True, slots=True)
class BaseUpdate:
    """How the base learns from the stream, after scoring, for every method alike.

    Args:
        lr: learning rate; 0 keeps the base as trained.
        optimizer: sgd, or rmsprop.
        clip: largest norm of the gradient.
    """

    lr: float = 0.0
    optimizer: Literal["sgd", "rmsprop"] = "sgd"
    clip: float = 0.25

    def __post_init__(self) -> None:
        checks.at_least("base.lr", self.lr, 0)
        checks.above_zero("base.clip", self.clip)
