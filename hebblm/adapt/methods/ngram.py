"""n-gram: probabilities by the exact words before, over all text read so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from hebblm.adapt.methods.base import LSTM, Unadapted
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.predictor import Method, Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import Count, MethodSettings, NonNegative, Section

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.memory.ngram_rows import NGramRows
    from hebblm.memory.ngrams import Seen

SUFFIX = "+ngram"
FEATURES = (
    "no match",
    "one token matches",
    "two tokens match",
    "three or more match",
    "top share",
    "count",
)
"""Of the longest context seen: its length, the share of its top follower, and ``log(1 + n) / 5`` of
its count n.
"""
# Weights at the start: the longer the match, the less the gate trusts the base.
BASE_WEIGHTS, NGRAM_WEIGHTS = (4.0, 3.0, 2.0, 1.0, 0.0, 0.0), (0.0,) * 6
BEGINNING_WEIGHTS = (0.0,) * 6


@dataclass(frozen=True, slots=True)
class NgramConfig(Section):
    """n-gram of the words before (Chen and Goodman 1999), mixed by a learned gate.

    Args:
        order: number of words before that it uses.
        fresh: token (it counts every token before) or interval (like other memories, only those
            before the last update).
        capacity: the most tokens to count.
        lr: learning rate of the gate; 0 keeps the shipped weights.
    """

    section: ClassVar[str] = "ngram"

    order: Count = 3
    fresh: Literal["token", "interval"] = "token"
    capacity: Count = 20_000_000
    lr: NonNegative = 0.1


@dataclass(frozen=True, slots=True)
class Ngram:
    """Interpolated n-gram of the words before; see :class:`hebblm.memory.ngrams.NGrams`."""

    name: ClassVar[str] = "ngram"

    config: NgramConfig

    @property
    def requirements(self) -> Requirements:
        return Requirements(ngrams=(self.config.order, self.config.capacity))

    def log_probs(self, batch: EvalBatch) -> Tensor:
        import torch

        def compute() -> Tensor:
            ngrams, vocabulary = batch.context.ngrams, batch.logits.shape[1]
            assert ngrams is not None
            base = batch.log_probs.exp().double().cpu().numpy()  # (N, V), below order 0
            distributions = ngrams.distributions(self.rows(batch), vocabulary, base)
            return torch.from_numpy(distributions).to(batch.logits)

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        import torch

        def compute() -> Tensor:
            return -torch.from_numpy(self.seen(batch, targets).log_prob).to(batch.logits)

        return batch.scored(self, targets, compute)

    def seen(self, batch: EvalBatch, targets: Tensor) -> Seen:
        """Return probabilities of targets (N,), and the length of the context that gave them."""

        def compute() -> Seen:
            ngrams = batch.context.ngrams
            assert ngrams is not None
            lowest = (-batch.base_losses(targets)).exp().double().cpu().numpy()  # (N,)
            return ngrams.score(
                self.rows(batch), batch.logits.shape[1], targets.cpu().numpy(), lowest
            )

        return batch.scored(("seen", self), targets, compute)

    def features(self, batch: EvalBatch) -> Tensor:
        """Return features (N, F) of :data:`FEATURES`, float64; none depends on the labels."""
        import torch

        def compute() -> Tensor:
            seen = self.seen(batch, batch.no_targets)
            matches = np.eye(4)[np.minimum(seen.length, 3)]  # (N, 4)
            distributions = np.c_[matches, seen.peak, np.log1p(seen.count) / 5]
            return torch.from_numpy(distributions).to(batch.hidden.device)

        return batch.shared(("features", self), compute)

    def rows(self, batch: EvalBatch) -> NGramRows:
        """Return the rows of a mini-batch; each sees the rows before it that are counted."""
        rows, block = batch.ngram_rows(), batch.block
        if self.config.fresh == "token" or block is None:
            return rows
        return replace(rows, visible=block.visible.cpu().numpy())


def with_ngram(predictor: Predictor, settings: MethodSettings) -> Predictor:
    """Mix a rule with the n-gram, by a gate that depends on the length of the match before."""
    config = settings[NgramConfig]
    ngram = Ngram(config)
    name = SUFFIX[1:] if isinstance(predictor, Unadapted) else predictor.name + SUFFIX
    return Gated(
        name,
        f"gate of {name}/2",
        (predictor, ngram),
        ngram.features,
        tuple((*row, *BEGINNING_WEIGHTS) for row in (BASE_WEIGHTS, NGRAM_WEIGHTS)),
        config.lr,
        anchor=0,
        needed=ngram.requirements,
    )


NGRAM = Method(
    "ngram", "n-gram", "ours", lambda s: with_ngram(LSTM.predictor(s), s), (NgramConfig,),
    tuned=False,
    plot_style=("#aa4499",),
)  # fmt: skip


def beside_ngram(method: Method) -> Method:
    """Return the record of any method mixed with the n-gram."""
    return Method(
        method.name + SUFFIX,
        f"{method.label}+n-gram",
        "ours",
        lambda settings: with_ngram(method.predictor(settings), settings),
        (*method.settings, NgramConfig),
        uses_dynamic_base=method.uses_dynamic_base,
        tuned=False,
    )
