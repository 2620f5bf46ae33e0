"""Settings of a base's learning from the text it reads; they load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hebblm.adapt import checks

MEASURED: Literal["measured"] = "measured"
PREDICTED_GAIN = 0.1
"""Nats by which a step of dynamic evaluation is to lower a training segment's loss, to first order. For the Llama that
ships this is a rate between its best ones on its own text (1e-4) and on others (2e-4); for the AWD-LSTMs the default,
found on three validation texts (recipes/defaults/dynamic-texts.json), means 0.065."""

TRANSFORMERS = {"dynamic.lr": MEASURED, "dynamic.decay": 0.001, "dynamic.epsilon": 0.001}
"""Defaults of dynamic evaluation of a model of ``transformers``. The decay, beside 0, 0.0025, 0.005 and 0.02 on 10,000
pieces of validation text, loses least on the worst of three texts that the Llama reads, its own among them."""


@dataclass(frozen=True, slots=True)
class BaseUpdate:
    """Settings of the base's learning from the stream, after scoring, for every method alike.

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
        lr: learning rate eta, or measured: the one, to two digits, at which a step lowers the loss of training text by
            0.1 nats to first order; the default for models of transformers.
        decay: rate lambda of the pull back to the trained weights; 0.001 is the default for models of transformers.
        epsilon: added to the root mean squares of the rms rule.
        segment: tokens of a step that lr, decay and the statistics are for. How many are read between two steps is the
            update interval of all methods; a step after fewer is shorter in proportion, by lr and decay alike.
        statistics: training tokens from which the rms rule takes its mean squares.
    """

    rule: Literal["sgd", "rms"] = "rms"
    lr: float | Literal["measured"] = 8e-4
    decay: float = 0.02
    epsilon: float = 1e-4
    segment: int = 50
    statistics: int = 50_000

    def __post_init__(self) -> None:
        if isinstance(self.lr, str):
            checks.one_of("dynamic.lr", self.lr, (MEASURED,))
        else:
            checks.at_least("dynamic.lr", self.lr, 0)
        checks.share("dynamic.decay", self.decay)
        checks.above_zero("dynamic.epsilon", self.epsilon)
        checks.at_least("dynamic.segment", self.segment, 1)
        checks.at_least("dynamic.statistics", self.statistics, 1)

    @property
    def needs_statistics(self) -> bool:
        """Whether it has to know the size of gradients on training text."""
        return self.rule == "rms" or self.lr == MEASURED
