"""Settings of a base's learning from the text it reads; they load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hebblm.adapt.settings import Count, Fraction, NonNegative, Positive, Section

MEASURED: Literal["measured"] = "measured"
STREAM: Literal["stream"] = "stream"
TRANSFORMERS = {
    "dynamic.lr": MEASURED,
    "dynamic.gain": 0.1,
    "dynamic.decay": 0.001,
    "dynamic.epsilon": 0.001,
    "ngram.order": 6,
}
"""Defaults of a model of ``transformers``. The gain means a rate between the best ones of the Llama
that ships on its own text (1e-4) and on others (2e-4). The decay was compared with 0, 0.0025, 0.005
and 0.02 on 10,000 pieces of validation text. It loses least on the worst of three texts that the
Llama reads, including its own. Six pieces are about three words.
"""


@dataclass(frozen=True, slots=True)
class BaseUpdate(Section):
    """Settings of the base's learning from the stream, after scoring, for every method alike.

    Args:
        lr: learning rate; 0 keeps the base as trained.
        optimizer: sgd, or rmsprop.
        clip: largest norm of the gradient.
    """

    section: ClassVar[str] = "base"

    lr: NonNegative = 0.0
    optimizer: Literal["sgd", "rmsprop"] = "sgd"
    clip: Positive = 0.25


@dataclass(frozen=True, slots=True)
class DynamicConfig(Section):
    """Dynamic evaluation.

    Args:
        rule: sgd, rms (each parameter's step divided by the size of its gradients on training
            text), stream (divided by their size on the text that is read, at a rate found there;
            epsilon, gain and decay have no effect), or auto: rms if the training text is available,
            else stream.
        lr: learning rate eta, or measured: the one, to two digits, at which a step lowers the loss
            of training text by gain to first order. For the rule stream it is the first rate, a
            share of the size of the weights.
        gain: nats of a measured rate; 0.1 is the default for models of transformers. For the others
            the default corresponds to a rate of 8e-4, found on three validation texts
            (recipes/defaults/dynamic-texts.json).
        decay: rate lambda of the pull back to the trained weights; 0.001 is the default for models
            of transformers.
        epsilon: added to the root mean squares of the rms rule.
        segment: tokens of a step that lr, decay and the statistics are for. The update interval of
            all methods decides how many are read between two steps; a step after fewer is shorter
            in proportion, for lr and decay alike.
        statistics: training tokens from which the rms rule takes its mean squares.
    """

    section: ClassVar[str] = "dynamic"

    rule: Literal["auto", "sgd", "rms", "stream"] = "auto"
    lr: NonNegative | Literal["measured"] = MEASURED
    gain: Positive = 0.065
    decay: Fraction = 0.02
    epsilon: Positive = 1e-4
    segment: Count = 50
    statistics: Count = 50_000

    @property
    def needs_statistics(self) -> bool:
        """Whether the rule uses the size of gradients on training text, if there is any."""
        return self.rule in ("auto", "rms") or (self.rule == "sgd" and self.lr == MEASURED)
