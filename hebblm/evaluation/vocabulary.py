"""Vocabulary policies for words that the base never saw: rows from the start (union) or at first
sight (open).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.predictor import Predictor
from hebblm.online.vocabulary import UnknownVocabulary
from hebblm.online.vocabulary import VocabularyPolicy as VocabularyPolicy


@dataclass(frozen=True, slots=True)
class UnionVocabulary:
    """Vocabulary in which every word of the target has a row from the start."""

    def readable(self, inputs: Tensor, rows: int) -> Tensor:
        return inputs

    def losses(self, predictor: Predictor, batch: EvalBatch, targets: Tensor) -> Tensor:
        return predictor.score(batch, targets)

    def new_rows(self, targets: Tensor, rows: int) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class OpenVocabulary(UnknownVocabulary):
    """A word gets a row after it is first observed; until then it has a share of the probability of
    ``<unk>``.

    With U words unseen so far, each gets ``share / U`` of P(<unk>) and the symbol ``<unk>`` itself
    keeps the rest, so that the probabilities of all rows and all unseen words sum to one at every
    step. Without unseen words ``<unk>`` keeps everything.

    Args:
        unk: row of ``<unk>``.
        size: V, all words of source and target.
        share: share of P(<unk>) that is spread over the unseen words, within (0, 1).
    """

    unk: int
    size: int
    share: float = 0.5

    def losses(self, predictor: Predictor, batch: EvalBatch, targets: Tensor) -> Tensor:
        rows = len(batch.head.weight)
        return self.charged(predictor.score(batch, self.readable(targets, rows)), targets, rows)

    def charged(self, losses: Tensor, targets: Tensor, rows: int) -> Tensor:
        """Return the losses (N,) of targets, given those of the rows that a model of ``rows`` rows
        has for them.

        ``<unk>`` gives ``share`` of its probability to the words without a row, in equal parts.
        """
        unseen = self.size - rows
        if unseen == 0:
            return losses
        losses = torch.where(targets < rows, losses, losses - math.log(self.share / unseen))
        return torch.where(targets == self.unk, losses - math.log1p(-self.share), losses)
