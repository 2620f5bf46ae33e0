"""The diagonal of the Fisher information of a one-hidden-layer network, sample by sample in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.settings import FisherKind as FisherKind

CHUNK = 256  # samples at a time


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
