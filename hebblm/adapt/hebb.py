"""Hebb as a rule: MbPA's change, and the Hebbian term on the labels of the neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.counts import class_weights, entry_weights
from hebblm.adapt.functional.losses import first_and_sum, replaced_losses
from hebblm.adapt.needs import Needs
from hebblm.adapt.rules import adapted_logits, mbpa_result
from hebblm.adapt.settings import HebbConfig, MbpaConfig


def hebbian_sums(
    batch: EvalBatch, mbpa: MbpaConfig, hebb: HebbConfig, classes: Tensor | None
) -> tuple[F.HebbianTerm, Tensor, Tensor]:
    """Return the Hebbian term, which entry is the first of its label (N, K), and ``D_i . h`` of its label (N, K).

    Args:
        batch: the mini-batch.
        mbpa: its eps is that of the closeness, in the unit of ``hebb.scale``.
        hebb: scaling of the closeness, and the unit of the term.
        classes: (V,) bool N^new, None for all.
    """

    batch.check_keys("Hebb")

    def compute() -> tuple[F.HebbianTerm, Tensor, Tensor]:
        term = F.hebbian_term(
            batch.neighbors,
            batch.hidden,
            eps=mbpa.eps,
            hebbian_classes=classes,
            closeness_normalization=hebb.closeness,
            bias=batch.head.bias is not None,
            products=batch.products,
            scale=hebb.scale,
        )
        return term, *first_and_sum(term.labels, term.bumps)

    return batch.shared(("hebbian", classes is None, mbpa.eps, hebb.closeness, hebb.scale), compute)


@dataclass(frozen=True, slots=True)
class HebbianLogits:
    """Logits after adaptation: those of ``dense`` except for the labels that have a Hebbian term.

    Args:
        dense: (N, V).
        normalizers: (N,) their logsumexp.
        labels: (N, K) of the neighbours.
        present: (N, K) bool, whether an entry's label has a Hebbian term.
        first: (N, K) bool, one entry for each label that has.
        values: (N, K) logit of each entry's label, where present.
    """

    dense: Tensor
    normalizers: Tensor
    labels: Tensor
    present: Tensor
    first: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Hebb:
    """Hebb: MbPA and the Hebbian term, weighted by how often a class was seen (Eq. 4 and 7).

    Args:
        config: of the Hebbian term.
        mbpa: of the gradient term.
        variant: ``v1`` the Hebbian term alone, ``v2`` over all of N, ``v3`` a constant weight;
            None for the method itself.
        steps: weights by ranges of counts in place of those by beta, see
            :func:`hebblm.adapt.functional.stepped_weights`.
    """

    config: HebbConfig
    mbpa: MbpaConfig
    variant: str | None = None
    steps: tuple[float, ...] | None = None

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.hebb_logits`."""

        def compute() -> Tensor:
            found = self._adapted(batch)
            plain = found.dense.gather(1, found.labels)  # (N, K)
            values = torch.where(
                found.present, found.values, plain
            )  # entries of one label carry the same value
            return found.dense.scatter(1, found.labels, values).log_softmax(1)

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""

        def compute() -> Tensor:
            found = self._adapted(batch)
            return replaced_losses(
                found.dense, found.normalizers, found.labels, found.first, found.values, targets
            )

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Neighbours, and the gradient steps on them, which v1 leaves out."""
        return Needs(retrieval=True, descents=() if self.variant == "v1" else (self.mbpa,))

    def _adapted(self, batch: EvalBatch) -> HebbianLogits:
        """Return ``f_i + (1 - E_i) MbPA_i + E_i eta D_i . h`` (Eq. 7) for the labels, and what the others have."""
        return batch.shared(("adapted", self), lambda: self._compute(batch))

    def _compute(self, batch: EvalBatch) -> HebbianLogits:
        config = self.config
        classes = self._classes(batch.context.new_classes)
        term, first, summed = hebbian_sums(batch, self.mbpa, config, classes)
        base = batch.logits.gather(1, term.labels)  # (N, K)
        if self.variant == "v1":
            dense, normalizers = batch.logits, batch.log_normalizers
            values = base + config.eta * summed
        else:
            delta = mbpa_result(batch, self.mbpa).delta  # (N, V)
            constant = torch.full_like(summed, config.constant) if self.variant == "v3" else None
            weights = constant  # (N, K)
            if weights is None:
                weights = entry_weights(batch, config, term.labels, self.steps)
            values = base + (1 - weights) * delta.gather(1, term.labels) + config.eta * weights * summed
            if config.gate == "gated":
                dense, normalizers = adapted_logits(batch, self.mbpa)
            else:
                every = class_weights(batch, config, self.steps) if constant is None else constant[:, :1]
                dense = batch.logits + (1 - every) * delta
                normalizers = dense.logsumexp(1)
        return HebbianLogits(dense, normalizers, term.labels, term.present, first & term.present, values)

    def _classes(self, new: Tensor | None) -> Tensor | None:
        """Return the classes of N^new, None for all."""
        wanted = "all" if self.variant == "v2" else self.config.classes
        if wanted == "all" or (wanted == "auto" and new is None):
            return None
        return new
