"""Terms of Hebb's losses, label by label of the neighbours, and the losses of its whole grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.counts import entry_weights
from hebblm.adapt.grid import Grid
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_term
from hebblm.adapt.methods.mbpa import MbpaConfig, adapted_logits, mbpa_change
from hebblm.evaluation.observers import Notes
from hebblm.runtime.ranks import current
from hebblm.tuning.points import Losses, Point, points


class LabelTerms(NamedTuple):
    """Terms of a mini-batch's losses that do not depend on the weights of the Hebbian term."""

    labels: Tensor  # (N, K) of the neighbours
    mine: Tensor  # (N, K) bool, one entry for each label that has a Hebbian term
    base: Tensor  # (N, K) logit of the label
    delta: Tensor  # (N, K) what MbPA adds to it
    summed: Tensor  # (N, K) ``D_i . h``
    hit: Tensor  # (N, K) bool, whether that label is the target
    rest: Tensor  # (N,) logsumexp of the logits of all classes without a Hebbian term
    target: Tensor  # (N,) logit of the target after MbPA

    @classmethod
    def of(
        cls, batch: EvalBatch, targets: Tensor, mbpa: MbpaConfig, hebb: HebbConfig
    ) -> LabelTerms:
        """Return the terms of a mini-batch and its targets (N,)."""
        classes = batch.context.new_classes if hebb.classes in ("auto", "new") else None
        dense, _ = adapted_logits(batch, mbpa)  # (N, V)
        term = hebbian_term(batch, mbpa, hebb, classes)
        # Not total less the labels' part: where MbPA gave a label all the mass, nothing would be
        # left of the rest.
        # (N, K)
        gone = torch.full_like(term.values, torch.inf).masked_fill_(term.chosen, -torch.inf)
        others = dense.scatter_reduce(1, term.labels, gone, "amin")  # (N, V)
        return cls(
            labels=term.labels,
            mine=term.chosen,
            base=batch.logits.gather(1, term.labels),
            delta=mbpa_change(batch, mbpa).gather(1, term.labels),
            summed=term.values,
            hit=term.chosen & (term.labels == targets[:, None]),
            rest=others.logsumexp(1),
            target=dense.gather(1, targets[:, None]).squeeze(1),
        )

    def losses(self, weights: Tensor, eta: float) -> Tensor:
        """Losses (N,) of the targets at weights (N, K) of the Hebbian term and its strength,
        nats.
        """
        new = self.base + (1 - weights) * self.delta + eta * weights * self.summed
        gained = torch.where(self.mine, new, -torch.inf).logsumexp(1)
        hit = torch.where(self.hit, new, 0).sum(1)
        logit = torch.where(self.hit.any(1), hit, self.target)
        return torch.logaddexp(self.rest, gained) - logit


@dataclass(slots=True)
class HebbGrid:
    """An observer that adds up the losses of Hebb at every closeness, beta and eta of a grid.

    Only the logits of the neighbours' labels change between two points, so each costs O(K) a query
    instead of O(V).
    """

    mbpa: MbpaConfig  # of the gradient term
    hebb: HebbConfig  # everything that is not tried
    grid: Grid  # what is tried
    points: list[Point]  # by dotted name
    pairs: range  # of closeness and beta, in the order of the points: those that this process tries
    sums: Tensor  # (p,) of the losses at these, over the tokens so far
    tokens: int = 0  # how many they are

    @classmethod
    def of(cls, mbpa: MbpaConfig, hebb: HebbConfig, grid: Grid) -> HebbGrid:
        """Return an observer without losses; several ranks divide the points."""
        tried = points(
            "hebb",
            scale=[hebb.scale],
            kernel_weight=grid.kernel_weight,
            beta=grid.beta,
            eta=grid.eta,
        )
        pairs = current().partition(len(grid.kernel_weight) * len(grid.beta))
        return cls(
            mbpa,
            hebb,
            grid,
            tried,
            pairs,
            torch.zeros(len(pairs) * len(grid.eta), dtype=torch.float64),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums and their number of tokens."""
        return {"sums": self.sums.clone(), "tokens": torch.tensor(self.tokens)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the sums of an earlier process."""
        self.sums = state["sums"].cpu()
        self.tokens = int(state["tokens"])

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Add the losses of a mini-batch."""
        losses = self.losses(batch, targets).float().cpu().numpy()
        self.sums += torch.from_numpy(losses.sum(1, dtype=np.float64))
        self.tokens += len(targets)

    def means(self) -> Losses:
        """Return the mean loss (P,) of every point, nats; not finite if one of its losses is
        not.
        """
        means: Losses = current().all_gather(self.sums / max(1, self.tokens)).numpy()
        return means

    def losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (p, N) in nats of ``targets`` (N,) at every point of this rank."""
        results = [batch.hidden.new_zeros(0, len(targets))]
        betas = self.grid.beta
        for index, kernel_weight in enumerate(self.grid.kernel_weight):
            tried = [beta for at, beta in enumerate(betas) if index * len(betas) + at in self.pairs]
            if not tried:
                continue
            hebb = replace(self.hebb, kernel_weight=kernel_weight)
            terms = LabelTerms.of(batch, targets, self.mbpa, hebb)
            for beta in tried:
                weights = entry_weights(batch, beta, hebb.counts, terms.labels)  # (N, K)
                results += [terms.losses(weights, eta)[None] for eta in self.grid.eta]
        return torch.cat(results)


@dataclass(slots=True)
class HebbLosses(Notes):
    """An observer that records the losses of Hebb at one point, equal to the bit to those of a
    grid.
    """

    mbpa: MbpaConfig  # of the gradient term
    hebb: HebbConfig  # the point

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Record the losses of a mini-batch."""
        terms = LabelTerms.of(batch, targets, self.mbpa, self.hebb)
        weights = entry_weights(batch, self.hebb.beta, self.hebb.counts, terms.labels)
        self.add({"losses": terms.losses(weights, self.hebb.eta).float()})

    def losses(self) -> Losses:
        """Return the recorded losses, (T,) nats."""
        return self.columns()["losses"].astype(np.float64)
