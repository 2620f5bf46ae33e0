"""Learning the share of a gated mixture on validation text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional import Scale
from hebblm.adapt.methods.gated import base_peak, label_entropy, nearest_distance
from hebblm.evaluation.notes import Notes
from hebblm.tuning.best import Losses

ROUNDING = 1e-9
START = -2.0  # logit of the share that the search begins with
TOLERANCE = 1e-12  # nats a token, from one iteration to the next
Features = npt.NDArray[np.float64]


@dataclass(slots=True)
class GateFeatures(Notes):
    """An observer that notes what a gate may depend on.

    These are the log squared ``distance`` of the nearest entry (+inf without any), the base's largest log-probability
    as ``peak``, and for each theta the ``entropy`` of the labels, in nats.

    Args:
        thetas: sharpness values of the neighbours' weights.
        scale: unit of products and distances.
    """

    thetas: tuple[float, ...]
    scale: Scale

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note the features of a mini-batch."""
        entropies = {f"entropy {theta}": label_entropy(batch, theta, self.scale) for theta in self.thetas}
        rows = {"distance": nearest_distance(batch, self.scale), "peak": base_peak(batch), **entropies}
        self.add({name: row.float() for name, row in rows.items()})

    def features(self, theta: float) -> Features:
        """Return what was noted for one theta: (T, 3) distance, entropy, peak."""
        columns, names = self.columns(), ("distance", f"entropy {theta}", "peak")
        return np.stack([columns[name] for name in names]).T.astype(np.float64)


class Gate(NamedTuple):
    """A learned gate.

    Args:
        bias: constant term.
        coefficients: (F,) one a feature.
        losses: (T,) of the mixture, nats.
    """

    bias: float
    coefficients: Features
    losses: Losses


def learn_gate(memory: Losses, base: Losses, features: Features) -> Gate:
    """Minimise the mean of ``-log(sigma(s) e^-m + sigma(-s) e^-b)`` with ``s = bias + features . coefficients``.

    By L-BFGS-B, over standardised features. The same input gives the same gate.

    Args:
        memory: (T,) losses m of the neighbours' distribution, nats.
        base: (T,) losses b of the base, nats.
        features: (T, F); a row that is not finite has no neighbours, and its loss is the base's.
    """
    usable = np.isfinite(features).all(1)  # (T,)
    m, b, x = memory[usable], base[usable], features[usable]
    mean = x.mean(0) if len(x) else np.zeros(features.shape[1])
    spread = x.std(0) if len(x) else np.zeros(features.shape[1])
    varies = spread > ROUNDING * np.abs(mean)  # what is left of a constant feature is rounding
    spread = np.where(varies, spread, 1.0)
    standard = np.where(varies, (x - mean) / spread, 0.0)
    design = np.concatenate([np.ones((len(x), 1)), standard], axis=1)  # (T', 1 + F)

    def objective(weights: Features) -> tuple[float, Features]:
        losses, gradient = _loss_and_gradient(m, b, design, weights)
        return float(losses.sum()) / max(1, len(m)), gradient

    start = np.zeros(design.shape[1])
    start[0] = START
    found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"ftol": TOLERANCE})
    whole = base.copy()
    whole[usable], _ = _loss_and_gradient(m, b, design, found.x)
    coefficients = found.x[1:] / spread
    return Gate(float(found.x[0] - coefficients @ mean), coefficients, whole)


def _loss_and_gradient(m: Losses, b: Losses, design: Features, weights: Features) -> tuple[Losses, Features]:
    """Return the losses (T',) and the gradient of their mean: the share less what of the target's mass it earned."""
    s = design @ weights
    log_share, log_rest = -np.logaddexp(0, -s), -np.logaddexp(0, s)
    losses = -np.logaddexp(log_share - m, log_rest - b)
    surprise = np.exp(log_share) - np.exp(log_share - m + losses)
    return losses, design.T @ surprise / max(1, len(m))
