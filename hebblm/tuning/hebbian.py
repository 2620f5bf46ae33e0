"""Terms of Hebb's losses, label by label of the neighbours, and the losses of its whole grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.counts import entry_weights
from hebblm.adapt.grid import Grid
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_term
from hebblm.adapt.methods.mbpa import MbpaConfig, adapted_logits, mbpa_result
from hebblm.ranks import current
from hebblm.tuning.best import LossTable
from hebblm.tuning.grid import Point, points


class LabelTerms(NamedTuple):
    """Terms of a mini-batch's losses beside the weights of the Hebbian term.

    Args:
        labels: (N, K) of the neighbours.
        mine: (N, K) bool, one entry for each label that has a Hebbian term.
        base: (N, K) logit of the label.
        delta: (N, K) what MbPA adds to it.
        adapted: (N, K) their sum.
        summed: (N, K) ``D_i . h``.
        hit: (N, K) bool, whether that label is the target.
        rest: (N,) logsumexp of the logits of all classes without a Hebbian term.
        target: (N,) logit of the target after MbPA.
    """

    labels: Tensor
    mine: Tensor
    base: Tensor
    delta: Tensor
    adapted: Tensor
    summed: Tensor
    hit: Tensor
    rest: Tensor
    target: Tensor

    @classmethod
    def of(cls, batch: EvalBatch, targets: Tensor, mbpa: MbpaConfig, hebb: HebbConfig) -> LabelTerms:
        """Return the terms of a mini-batch and its targets (N,), which are only looked up."""
        classes = batch.context.new_classes if hebb.classes in ("auto", "new") else None
        dense, _ = adapted_logits(batch, mbpa)  # (N, V)
        term = hebbian_term(batch, mbpa, hebb, classes)
        adapted = dense.gather(1, term.labels)
        # Not total less the labels' part: where MbPA gave a label all the mass, nothing would be left of the rest.
        gone = torch.full_like(adapted, torch.inf).masked_fill_(term.chosen, -torch.inf)  # (N, K)
        others = dense.scatter_reduce(1, term.labels, gone, "amin")  # (N, V)
        return cls(
            labels=term.labels,
            mine=term.chosen,
            base=batch.logits.gather(1, term.labels),
            delta=mbpa_result(batch, mbpa).delta.gather(1, term.labels),
            adapted=adapted,
            summed=term.values,
            hit=term.chosen & (term.labels == targets[:, None]),
            rest=others.logsumexp(1),
            target=dense.gather(1, targets[:, None]).squeeze(1),
        )


@dataclass(frozen=True, slots=True)
class HebbGrid:
    """An observer that writes the losses of Hebb at every closeness, beta and eta of a grid to a table.

    Only the logits of the neighbours' labels change between two points, so each costs O(K) a query instead of O(V).

    Args:
        mbpa: of the gradient term.
        hebb: everything that is not tried.
        grid: what is tried.
        points: by dotted name.
        pairs: of closeness and beta, in the order of the points: those that this process tries.
        table: with a row a point of these.
    """

    mbpa: MbpaConfig
    hebb: HebbConfig
    grid: Grid
    points: list[Point]
    pairs: range
    table: LossTable

    @classmethod
    def of(cls, mbpa: MbpaConfig, hebb: HebbConfig, grid: Grid) -> HebbGrid:
        """Return one with an empty table; several ranks divide the points."""
        tried = points("hebb", scale=[hebb.scale], closeness=grid.closeness, beta=grid.beta, eta=grid.eta)
        pairs, etas = current().share(len(grid.closeness) * len(grid.beta)), len(grid.eta)
        return cls(mbpa, hebb, grid, tried, pairs, LossTable(range(pairs.start * etas, pairs.stop * etas)))

    def noted(self) -> dict[str, Tensor]:
        """Return the losses that were added to the table since this was asked last, and their sums."""
        return self.table.noted()

    def restore(self, noted: dict[str, Tensor]) -> None:
        """Take over such losses of an earlier process."""
        self.table.restore(noted)

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Write the losses of a mini-batch to the table."""
        self.table.append(self.losses(batch, targets).float().cpu().numpy())

    def losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (p, N) in nats of ``targets`` (N,) at every point that is tried here."""
        results = [batch.hidden.new_zeros(0, len(targets))]
        betas = self.grid.beta
        for index, closeness in enumerate(self.grid.closeness):
            tried = [beta for at, beta in enumerate(betas) if index * len(betas) + at in self.pairs]
            if not tried:
                continue
            hebb = replace(self.hebb, closeness=closeness)
            terms = LabelTerms.of(batch, targets, self.mbpa, hebb)
            for beta in tried:
                weights = entry_weights(batch, replace(hebb, beta=beta), terms.labels)  # (N, K)
                for eta in self.grid.eta:
                    new = terms.base + (1 - weights) * terms.delta + eta * weights * terms.summed
                    gained = torch.where(terms.mine, new, -torch.inf).logsumexp(1)
                    own = torch.where(terms.hit, new, 0).sum(1)
                    logit = torch.where(terms.hit.any(1), own, terms.target)
                    results.append((torch.logaddexp(terms.rest, gained) - logit)[None])
        return torch.cat(results)
