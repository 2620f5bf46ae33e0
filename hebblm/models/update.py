"""How a base learns from the text it reads: settings alone, which load no torch."""

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


@dataclass(frozen=True, slots=True)
class DynamicConfig:
    """Dynamic evaluation.

    Args:
        rule: sgd, or rms (each parameter's step divided by the size of its gradients on training text).
        lr: learning rate eta.
        decay: rate lambda of the pull back to the trained weights.
        epsilon: added to the root mean squares of the rms rule.
        segment: tokens a step.
        statistics: training tokens from which the rms rule takes its mean squares.
    """

    rule: Literal["sgd", "rms"] = "rms"
    lr: float = 0.002
    decay: float = 0.02
    epsilon: float = 0.001
    segment: int = 50
    statistics: int = 50_000

    def __post_init__(self) -> None:
        checks.at_least("dynamic.lr", self.lr, 0)
        checks.share("dynamic.decay", self.decay)
        checks.above_zero("dynamic.epsilon", self.epsilon)
        checks.at_least("dynamic.segment", self.segment, 1)
        checks.at_least("dynamic.statistics", self.statistics, 1)
