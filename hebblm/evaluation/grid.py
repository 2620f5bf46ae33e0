"""What a tuning pass computes for whole grids at once, from one forward pass and one retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.checks import ONLINE, Share, Sharpness
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.counts import entry_weights
from hebblm.adapt.functional.shares import LearnedShare
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_sums
from hebblm.adapt.methods.mbpa import MbpaConfig, adapted_logits, mbpa_result
from hebblm.evaluation.losses import Losses, LossTable


@dataclass(frozen=True, slots=True)
class Grid:
    """Values that are tried, those of units that a model has beside those relative to them.

    Args:
        base_lr: rate of a moving base; tried across domains only.
        theta: sharpness of Mixture and cache.
        temperature: of kNN-LM's weights.
        gamma: share of the memory in Mixture, cache and kNN-LM.
        mbpa_lr: rate of MbPA, relative to curvature.
        mbpa_steps: steps.
        absolute_lr: lambda of MbPA at an absolute rate, plain and guarded.
        beta: decay of Hebb's weight.
        eta: scale of the Hebbian term.
        closeness: scaling of the Hebbian term's closeness.
        weight: share of Mixture in Mixture+MbPA and Mixture+Hebb.
        dynamic_lr: rate of dynamic evaluation.
        dynamic_decay: its decay.
        tempered: temperature of a whole distribution, beside 1; none, as not every method could have one.
    """

    base_lr: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0)
    theta: tuple[Sharpness, ...] = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, ONLINE)
    temperature: tuple[Sharpness, ...] = (0.1, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5, 3.0, 10.0, ONLINE)
    gamma: tuple[Share, ...] = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, ONLINE)
    mbpa_lr: tuple[float, ...] = (6.0, 8.0, 10.0)
    mbpa_steps: tuple[int, ...] = (5, 10, 15)
    absolute_lr: tuple[float, ...] = (0.1, 1.0, 5.0)
    beta: tuple[float, ...] = (0.0, 0.15, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
    eta: tuple[float, ...] = (
        0.01,
        0.03,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.7,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        6.0,
        8.0,
        10.0,
        15.0,
    )
    closeness: tuple[Literal["raw", "sum", "max"], ...] = ("raw", "sum", "max")
    weight: tuple[Share, ...] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, ONLINE)
    dynamic_lr: tuple[float, ...] = (1e-3, 2e-3, 4e-3, 8e-3)
    dynamic_decay: tuple[float, ...] = (0.005, 0.02)
    tempered: tuple[float, ...] = ()

    @property
    def fixed_theta(self) -> tuple[float, ...]:
        """The sharpness of Mixture and cache where it is a number."""
        return tuple(theta for theta in self.theta if not isinstance(theta, str))


@dataclass(frozen=True, slots=True)
class HebbGrid:
    """All (beta, eta) of one MbPA configuration, read off the labels among the neighbours.

    Only these labels' logits change between two grid points, so each costs O(K) a query instead of O(V).

    Args:
        mbpa: of the gradient term.
        hebb: everything but beta and eta.
        betas: values of beta.
        etas: values of eta.
    """

    mbpa: MbpaConfig
    hebb: HebbConfig
    betas: tuple[float, ...]
    etas: tuple[float, ...]

    def points(self) -> list[tuple[float, float]]:
        """Return the (beta, eta) pairs in the order of :meth:`losses`."""
        return list(product(self.betas, self.etas))

    def losses(self, batch: EvalBatch, targets: Tensor, classes: Tensor | None) -> Tensor:
        """Return the loss (P, N) in nats of ``targets`` (N,) at every point.

        Args:
            batch: the mini-batch.
            targets: (N,) labels, only looked up, never used to choose what is computed.
            classes: (V,) bool N^new, None for all.
        """
        delta = mbpa_result(batch, self.mbpa).delta  # (N, V)
        adapted, _ = adapted_logits(batch, self.mbpa)
        term, first, summed = hebbian_sums(batch, self.mbpa, self.hebb, classes)
        mine = first & term.present  # one entry for each label that has a Hebbian term (N, K)
        plain = adapted.gather(1, term.labels)  # (N, K)
        base, change = batch.logits.gather(1, term.labels), delta.gather(1, term.labels)
        # Not total less the labels' part: where MbPA gave a label all the mass, nothing would be left of the rest.
        others = adapted.scatter(1, term.labels, torch.where(term.present, -torch.inf, plain))  # (N, V)
        log_rest = others.logsumexp(1)  # (N,)
        hit = mine & (term.labels == targets[:, None])
        at_target = adapted.gather(1, targets[:, None]).squeeze(1)
        results = []
        for beta in self.betas:
            weights = entry_weights(batch, replace(self.hebb, beta=beta), term.labels)  # (N, K)
            for eta in self.etas:
                new = base + (1 - weights) * change + eta * weights * summed
                norm = torch.logaddexp(log_rest, torch.where(mine, new, -torch.inf).logsumexp(1))
                logit = torch.where(hit.any(1), torch.where(hit, new, 0).sum(1), at_target)
                results.append(norm - logit)
        return torch.stack(results)


def mixed(memory: Losses, base: Losses, weight: Share, every: int) -> Losses:
    """Return the loss of ``weight`` memory and ``1 - weight`` base from the two losses (T,), nats.

    Args:
        memory: of the memory.
        base: of what it lies over.
        weight: a number, or learned online as a context learns it.
        every: tokens between two updates.
    """
    shares: float | Losses
    if isinstance(weight, str):
        learned = LearnedShare()
        shares = np.empty(len(base))
        for start in range(0, len(base), every):
            now = slice(start, start + every)
            shares[now] = learned.value
            learned = learned.after((base[now] - memory[now]).tolist())
    else:
        shares = weight
    losses: Losses = -np.logaddexp(np.log(shares) - memory, np.log1p(-shares) - base)
    return losses


@dataclass(slots=True)
class Best:
    """The best point of a grid so far.

    Args:
        loss: mean loss, nats.
        values: by dotted name.
        losses: (T,) of that point.
        tried: every point's values and mean loss.
        fixed: values by dotted name that a point must have where it has that name.
    """

    loss: float = float("inf")
    values: Mapping[str, float | str] = field(default_factory=dict)
    losses: Losses = field(default_factory=lambda: np.zeros(0))
    tried: list[dict[str, float | str]] = field(default_factory=list)
    fixed: Mapping[str, float | str] = field(default_factory=dict)

    def offer(self, losses: Losses, values: Mapping[str, float | str]) -> None:
        """Take over a point if it is better; a loss that is not finite never is."""
        mean = float(losses.mean())
        self._note(mean, values)
        if mean < self.loss and self._allows(values):
            self.loss, self.values, self.losses = mean, values, losses

    def offer_table(self, table: LossTable, points: Sequence[Mapping[str, float | str]]) -> None:
        """Take over the best point of a table if it is better; only that point's losses are read."""
        means = table.means()
        for mean, values in zip(means.tolist(), points, strict=True):
            self._note(mean, values)
        allowed = np.array([self._allows(values) for values in points])
        index = int(np.argmin(np.where(np.isfinite(means) & allowed, means, np.inf)))
        if not allowed[index]:
            return
        if means[index] < self.loss:
            self.loss, self.values, self.losses = float(means[index]), points[index], table.of(index)

    def _allows(self, values: Mapping[str, float | str]) -> bool:
        """Say whether a point has the values that are fixed."""
        return all(values.get(name, value) == value for name, value in self.fixed.items())

    def _note(self, mean: float, values: Mapping[str, float | str]) -> None:
        self.tried.append({**values, "nll": mean if np.isfinite(mean) else float("inf")})
