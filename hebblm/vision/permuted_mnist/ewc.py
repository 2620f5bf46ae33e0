"""Elastic weight consolidation: quadratic penalties, folded into running sums, and their Fisher information."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.settings import Anchor, FisherKind

CHUNK = 256  # samples at a time


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
    def fold(self, parameters: tuple[Tensor, ...], fisher: tuple[Tensor, ...], anchor: Anchor = "separate") -> Penalty:
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
        for theta, added, before, centre in zip(parameters, fisher, self.precisions, self.centres, strict=True):
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


@torch.no_grad()
def fisher_diagonal(
    model: MLP, pixels: Tensor, labels: Tensor, *, kind: FisherKind
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the mean over the samples of each one's squared gradient of ``log P(y | x)``.

    The gradient of a layer is the outer product of what flows back into it and what flows in, so its square is
    the outer product of the squares, and the sum over samples one matrix product. With ``r = softmax - Y``,
    ``h = relu(z)`` and ``d = (r V) [z > 0]``::

        F_V = (r^2)^T h^2 / N     F_v = sum r^2 / N     F_W = (d^2)^T x^2 / N     F_b = sum d^2 / N

    ``labels`` takes y from the data (the empirical Fisher information). ``predictions`` takes the expectation
    over ``y ~ P(. | x)``, in which ``r^2`` becomes ``p (1 - p)`` and ``d^2`` the variance under p of the
    columns of V (Kirkpatrick et al. 2017 mean this one).

    Args:
        model: where the information is taken.
        pixels: (N, D).
        labels: (N,) int64; not read for ``predictions``.
        kind: ``labels`` or ``predictions``.

    Returns:
        In the order and the shapes of W, b, V, v.
    """
    totals = [torch.zeros_like(parameter) for parameter in model.parameters()]
    weight, bias, output, offset = totals
    head = model.head.weight  # V (C, H)
    for some, classes in zip(torch.split(pixels, CHUNK), torch.split(labels, CHUNK), strict=True):
        inputs = model.inputs(some)  # z (n, H)
        hidden = inputs.relu()
        shares = model.head.logits(hidden).softmax(1)  # p (n, C)
        if kind == "labels":
            residual = shares.scatter_add(1, classes.unsqueeze(1), -torch.ones_like(shares[:, :1]))  # r
            output_squares = residual.square()  # (n, C)
            hidden_squares = (residual @ head).square()  # (n, H)
        else:
            output_squares = shares * (1 - shares)
            # Centred first: the difference of two means would lose the digits of a confident network.
            centred = head - (shares @ head).unsqueeze(1)  # (n, C, H)
            hidden_squares = torch.einsum("nc,nch->nh", shares, centred.square())
        hidden_squares = hidden_squares * (inputs > 0)
        weight.addmm_(hidden_squares.t(), some.square())
        bias.add_(hidden_squares.sum(0))
        output.addmm_(output_squares.t(), hidden.square())
        offset.add_(output_squares.sum(0))
    for total in totals:
        total.div_(len(pixels))
    return weight, bias, output, offset
