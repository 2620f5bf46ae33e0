"""Learning the weight of Hebb's term, range of counts by range of counts, on validation text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.counts import entry_counts
from hebblm.adapt.functional.hebbian import COUNT_EDGES
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.evaluation.notes import Notes
from hebblm.tuning.best import Losses
from hebblm.tuning.hebbian import LabelTerms

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
RANGES = len(COUNT_EDGES) + 1
STEP = 0.2  # standard deviation of the step from one range to the next, before any text was read
START = 0.5
TOLERANCE = 1e-12  # nats a token, from one iteration to the next


class Terms(NamedTuple):
    """Terms of a text's losses beside the weights: one row a label that has a Hebbian term for a token.

    Args:
        token: (M,) which token, ascending.
        adapted: (M,) the label's logit after MbPA.
        delta: (M,) what MbPA added to it; zero for a class that was never seen, whose weight is zero.
        summed: (M,) ``D_i . h``, zero like delta.
        range: (M,) of the label's count n_i, within [0, 8).
        hit: (M,) bool, whether the label is the token's own.
        rest: (T,) logsumexp of the logits of all other classes.
        target: (T,) logit of the token's own class after MbPA.
    """

    token: Integers
    adapted: Numbers
    delta: Numbers
    summed: Numbers
    range: Integers
    hit: npt.NDArray[np.bool_]
    rest: Numbers
    target: Numbers


@dataclass(slots=True)
class TermObserver(Notes):
    """An observer that notes what Hebb's losses depend on, a column a field of :class:`Terms`.

    Args:
        mbpa: of the gradient term.
        hebb: everything but eta and the weights.
    """

    mbpa: MbpaConfig
    hebb: HebbConfig

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note the terms of a mini-batch."""
        found = LabelTerms.of(batch, targets, self.mbpa, self.hebb)
        row, column = found.mine.nonzero(as_tuple=True)
        counts = entry_counts(batch, self.hebb, found.labels)[row, column]  # (M,)
        self.add(
            {
                "token": row + sum(len(part["rest"]) for part in self.parts),
                "adapted": found.adapted[row, column].double(),
                "delta": found.delta[row, column].where(counts > 0, 0).double(),
                "summed": found.summed[row, column].where(counts > 0, 0).double(),
                "range": torch.bucketize(counts, torch.tensor(COUNT_EDGES, device=counts.device)),
                "hit": found.hit[row, column],
                "rest": found.rest.double(),
                "target": found.target.double(),
            }
        )

    def terms(self) -> Terms:
        """Return what was noted, as one."""
        return Terms(**self.columns())


def learn_weights(terms: Terms, eta: float) -> tuple[Numbers, Losses]:
    """Minimise the loss of the text plus ``sum_b (E_{b+1} - E_b)^2 / (2 STEP^2)`` over weights in [0, 1], by L-BFGS-B.

    The logits are affine in the weights, ``z_i = f_i + MbPA_i + E_i (eta D_i . h - MbPA_i)``, so that the sum is
    convex in them and has no other minimum. Where few labels of a range were met, the second term, the negative
    logarithm of a Gaussian random walk, draws its weight to those of the ranges beside it.

    Args:
        terms: of the text.
        eta: scale of the Hebbian term.

    Returns:
        E_i (8,) by ranges of counts, within [0, 1], and the losses (T,) of Hebb with them, nats.
    """
    gain = eta * terms.summed - terms.delta  # (M,)
    found = optimize.minimize(
        lambda weights: _objective(terms, gain, weights),
        np.full(RANGES, START),
        jac=True,
        bounds=[(0.0, 1.0)] * RANGES,
        method="L-BFGS-B",
        options={"ftol": TOLERANCE},
    )
    weights = np.clip(found.x, 0.0, 1.0)
    return weights, _losses_and_shares(terms, gain, weights)[0]


def _objective(terms: Terms, gain: Numbers, weights: Numbers) -> tuple[float, Numbers]:
    """Return what is minimised, divided by the number of tokens, and its gradient (8,).

    The loss's own gradient is the labels' mass less what was theirs to have, times the gain.
    """
    losses, shares = _losses_and_shares(terms, gain, weights)
    slope = np.bincount(terms.range, weights=(shares - terms.hit) * gain, minlength=RANGES).astype(
        float
    )  # of none, int
    jumps = np.diff(weights) / STEP**2
    slope += np.concatenate([[0.0], jumps]) - np.concatenate([jumps, [0.0]])
    total = losses.sum() + (STEP * jumps) @ (STEP * jumps) / 2
    return float(total) / len(losses), slope / len(losses)


def _losses_and_shares(terms: Terms, gain: Numbers, weights: Numbers) -> tuple[Losses, Numbers]:
    """Return the losses (T,) and the probability (M,) of each label."""
    logits = terms.adapted + weights[terms.range] * gain  # (M,)
    peaks = terms.rest.copy()
    np.maximum.at(peaks, terms.token, logits)
    # A token all of whose classes have a term leaves nothing for the others: exp(-inf) is zero, as it should be.
    sums = np.exp(terms.rest - peaks)
    sums += np.bincount(terms.token, weights=np.exp(logits - peaks[terms.token]), minlength=len(peaks))
    total = peaks + np.log(sums)  # (T,)
    target = terms.target.copy()
    target[terms.token[terms.hit]] = logits[terms.hit]
    return total - target, np.exp(logits - total[terms.token])
