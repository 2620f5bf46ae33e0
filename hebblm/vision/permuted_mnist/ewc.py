"""Elastic weight consolidation: one quadratic penalty a finished task, folded into running sums."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.vision.settings import Anchor as Anchor


@dataclass(frozen=True, slots=True)
class Penalty:
    """``sum_j S_j (theta_j - m_j)^2`` up to a constant, two tensors a parameter whatever the number of tasks.

    With ``separate`` anchors it is the sum over finished tasks i of ``sum_j F_ij (theta_j - theta_ij)^2`` (Kirkpatrick
    et al. 2017): a sum of parabolas is a parabola, with ``S = sum_i F_i`` and ``m = sum_i F_i theta_i / S``. But
    theta_i was where the pull of earlier tasks and the loss of task i were in balance; that loss is gone, the pull is
    not, and task i is forgotten from then on. With the ``latest`` anchor m is theta of the last task and S the same
    sum (Huszar 2018; Schwarz et al. 2018 without decay), which is the Laplace approximation carried on.

    Args:
        precisions: S by parameter.
        centres: m by parameter; 0 where S is 0 and no task is finished.
    """

    precisions: tuple[Tensor, ...]
    centres: tuple[Tensor, ...]

    @classmethod
    def none(cls, parameters: tuple[Tensor, ...]) -> Penalty:
        """Return the penalty before any task."""
        zeros = tuple(torch.zeros_like(parameter) for parameter in parameters)
        return cls(zeros, zeros)

    @torch.no_grad()
    def fold(
        self, parameters: tuple[Tensor, ...], fisher: tuple[Tensor, ...], anchor: Anchor = "separate"
    ) -> Penalty:
        """Return the penalty with a finished task's added.

        Args:
            parameters: theta_i after the task.
            fisher: F_i, at least 0, in their shapes.
            anchor: where the parabola stands.
        """
        if anchor == "latest":
            sums = tuple(before + added for before, added in zip(self.precisions, fisher, strict=True))
            return Penalty(sums, tuple(parameter.clone() for parameter in parameters))
        precisions, centres = [], []
        for theta, added, before, centre in zip(
            parameters, fisher, self.precisions, self.centres, strict=True
        ):
            precision = before + added
            share = torch.where(precision > 0, added / precision, 0)
            precisions.append(precision)
            # Moving the centre keeps the digits that sum F_i theta_i - S theta would lose.
            centres.append(centre + share * (theta - centre))
        return Penalty(tuple(precisions), tuple(centres))

    @torch.no_grad()
    def add_gradient(self, parameters: tuple[Tensor, ...], strength: float) -> None:
        """Add to each parameter's gradient that of ``lambda / 2`` times the penalty, ``lambda S (theta - m)``.

        The penalty is added to a loss in nats (Kirkpatrick et al. 2017, Eq. 3).
        """
        for theta, precision, centre in zip(parameters, self.precisions, self.centres, strict=True):
            assert theta.grad is not None  # the caller has run backward
            theta.grad.addcmul_(precision, theta - centre, value=strength)
