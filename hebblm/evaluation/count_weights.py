"""Learning the weight of Hebb's term, range of counts by range of counts, on validation text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from hebblm.adapt.context import EvalBatch
from hebblm.adapt.counts import entry_counts
from hebblm.adapt.functional.hebbian import COUNT_EDGES
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_sums
from hebblm.adapt.methods.mbpa import MbpaConfig, adapted_logits, mbpa_result
from hebblm.evaluation.losses import Losses

Numbers = npt.NDArray[np.float64]
RANGES = len(COUNT_EDGES) + 1
STEP = 0.2  # standard deviation of the step from one range to the next, before any text was read
START = 0.5
TOLERANCE = 1e-12  # nats a token, from one iteration to the next


@dataclass(frozen=True, slots=True)
class Terms:
    """What the losses of a text depend on beside the weights: one row a label that has a Hebbian term for a token.

    Args:
        token: (M,) which token, ascending.
        adapted: (M,) the label's logit after MbPA.
        delta: (M,) what MbPA added to it.
        summed: (M,) ``D_i . h``.
        range: (M,) of the label's count n_i, int64 within [0, 8); the weight of a class that was never seen is zero.
        seen: (M,) whether n_i > 0.
        hit: (M,) whether the label is the token's own.
        rest: (T,) logsumexp of the logits of all other classes.
        target: (T,) logit of the token's own class after MbPA.
    """

    token: npt.NDArray[np.int64]
    adapted: Numbers
    delta: Numbers
    summed: Numbers
    range: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]
    hit: npt.NDArray[np.bool_]
    rest: Numbers
    target: Numbers


@dataclass(frozen=True, slots=True)
class TermsOf:
    """An observer that notes what Hebb's losses depend on.

    Args:
        mbpa: of the gradient term.
        hebb: everything but eta and the weights.
        parts: what was noted so far, one mini-batch each.
    """

    mbpa: MbpaConfig
    hebb: HebbConfig
    parts: list[Terms] = field(default_factory=list)

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note the terms of a mini-batch."""
        new = batch.context.new_classes
        classes = new if self.hebb.classes in ("auto", "new") else None
        adapted, _ = adapted_logits(batch, self.mbpa)  # (N, V)
        term, first, summed = hebbian_sums(batch, self.mbpa, self.hebb, classes)
        mine = first & term.present  # one entry for each label that has a Hebbian term (N, K)
        plain = adapted.gather(1, term.labels)  # (N, K)
        rest = adapted.scatter(1, term.labels, torch.where(term.present, -torch.inf, plain)).logsumexp(1)
        counts = entry_counts(batch, self.hebb, term.labels)  # (N, K)
        row, column = mine.nonzero(as_tuple=True)
        at = (row, column)
        edges = torch.tensor(COUNT_EDGES, device=counts.device)

        def numbers(values: Tensor) -> Numbers:
            return values.double().cpu().numpy()

        self.parts.append(
            Terms(
                token=row.cpu().numpy(),
                adapted=numbers(plain[at]),
                delta=numbers(mbpa_result(batch, self.mbpa).delta.gather(1, term.labels)[at]),
                summed=numbers(summed[at]),
                range=torch.bucketize(counts[at], edges).cpu().numpy(),
                seen=(counts[at] > 0).cpu().numpy(),
                hit=(term.labels == targets[:, None])[at].cpu().numpy(),
                rest=numbers(rest),
                target=numbers(adapted.gather(1, targets[:, None]).squeeze(1)),
            )
        )

    def terms(self) -> Terms:
        """Return what was noted, as one."""
        offsets = np.cumsum([0, *(len(part.rest) for part in self.parts)])
        joined = {
            name: np.concatenate([getattr(part, name) for part in self.parts])
            for name in Terms.__dataclass_fields__
            if name != "token"
        }
        tokens = [part.token + offset for part, offset in zip(self.parts, offsets, strict=False)]
        return Terms(token=np.concatenate(tokens), **joined)


@dataclass(frozen=True, slots=True)
class CountWeights:
    """Learned weights.

    Args:
        steps: E_i by ranges of counts, within [0, 1].
        losses: (T,) of Hebb with them, nats.
    """

    steps: tuple[float, ...]
    losses: Losses


def learn_weights(terms: Terms, eta: float) -> CountWeights:
    """Minimise the loss of the text plus ``sum_b (E_{b+1} - E_b)^2 / (2 STEP^2)`` over weights in [0, 1], by L-BFGS-B.

    The logits are affine in the weights, ``z_i = f_i + MbPA_i + E_i (eta D_i . h - MbPA_i)``, so that the sum is
    convex in them and has no other minimum. Where few labels of a range were met, the second term, the negative
    logarithm of a Gaussian random walk, draws its weight to those of the ranges beside it.

    Args:
        terms: of the text.
        eta: scale of the Hebbian term.
    """
    gain = np.where(terms.seen, eta * terms.summed - terms.delta, 0.0)  # (M,)
    found = optimize.minimize(
        lambda steps: _objective(terms, gain, steps),
        np.full(RANGES, START),
        jac=True,
        bounds=[(0.0, 1.0)] * RANGES,
        method="L-BFGS-B",
        options={"ftol": TOLERANCE},
    )
    steps = np.clip(found.x, 0.0, 1.0)
    losses, _ = _losses_and_shares(terms, gain, steps)
    return CountWeights(tuple(steps.tolist()), losses)


def _objective(terms: Terms, gain: Numbers, steps: Numbers) -> tuple[float, Numbers]:
    """Return what is minimised, divided by the number of tokens, and its gradient (8,).

    The loss's own gradient is the labels' mass less what was theirs to have, times the gain.
    """
    losses, shares = _losses_and_shares(terms, gain, steps)
    slope = np.bincount(terms.range, weights=(shares - terms.hit) * gain, minlength=RANGES)
    jumps = np.diff(steps) / STEP**2
    slope += np.concatenate([[0.0], jumps]) - np.concatenate([jumps, [0.0]])
    total = losses.sum() + (STEP * jumps) @ (STEP * jumps) / 2
    return float(total) / len(losses), slope / len(losses)


def _losses_and_shares(terms: Terms, gain: Numbers, steps: Numbers) -> tuple[Losses, Numbers]:
    """Return the losses (T,) and the probability (M,) of each label."""
    logits = terms.adapted + steps[terms.range] * gain  # (M,)
    peaks = terms.rest.copy()
    np.maximum.at(peaks, terms.token, logits)
    # A token all of whose classes have a term leaves nothing for the others: exp(-inf) is zero, as it should be.
    sums = np.exp(terms.rest - peaks)
    sums += np.bincount(terms.token, weights=np.exp(logits - peaks[terms.token]), minlength=len(peaks))
    total = peaks + np.log(sums)  # (T,)
    target = terms.target.copy()
    target[terms.token[terms.hit]] = logits[terms.hit]
    return total - target, np.exp(logits - total[terms.token])
