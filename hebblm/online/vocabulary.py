"""Words without a row in the softmax layer: how a base reads, scores and learns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.predictor import Predictor


class VocabularyPolicy(Protocol):
    """Policy that turns a head's probabilities into losses of all possible words."""

    def readable(self, inputs: Tensor, rows: int) -> Tensor:
        """Return ids (N,) that a model of ``rows`` rows can embed."""

    def losses(self, predictor: Predictor, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,) under a rule."""

    def new_rows(self, targets: Tensor, rows: int) -> int:
        """Return how many new rows the head needs after ``targets`` (N,) are observed."""


@dataclass(frozen=True, slots=True)
class UnknownVocabulary:
    """Vocabulary in which a word is read and scored as ``<unk>`` until it is first observed.

    Args:
        unk: row of ``<unk>``; None if all words have rows.
    """

    unk: int | None

    def readable(self, inputs: Tensor, rows: int) -> Tensor:
        """Return ids (N,) with ``<unk>`` in place of words that have no row yet.

        Without such words it is the same tensor, so that scoring and learning compute its losses
        once.
        """
        if self.unk is None:
            return inputs
        new = inputs >= rows
        if not new.any():
            return inputs
        return inputs.masked_fill(new, self.unk)

    def losses(self, predictor: Predictor, batch: EvalBatch, targets: Tensor) -> Tensor:
        return predictor.score(batch, self.readable(targets, len(batch.head.weight)))

    def new_rows(self, targets: Tensor, rows: int) -> int:
        return max(0, int(targets.max()) + 1 - rows)
