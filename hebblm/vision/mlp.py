"""The classifier of permuted MNIST, one hidden layer, and elastic weight consolidation (EWC) of its
parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.types import OutputHead
from hebblm.vision.settings import Anchor, FisherKind, PermutedSettings
from hebblm.vision.state import DivergedError

CHUNK = 256  # samples at a time
Parameters = tuple[Tensor, ...]
"""W, b, V, v, or as many tensors in their shapes."""


@dataclass(frozen=True, slots=True)
class MLP:
    """Logits ``V relu(W x + b) + v``."""

    weight: Tensor  # W (H, D)
    bias: Tensor  # b (H,)
    head: OutputHead  # V (C, H) and v (C,)

    @classmethod
    def of(cls, parameters: Parameters) -> MLP:
        weight, bias, output, offset = parameters
        return cls(weight, bias, OutputHead(output, offset))

    @classmethod
    def initial(cls, width: int, hidden: int, classes: int, generator: torch.Generator) -> MLP:
        """Draw every layer uniformly from ``+-1 / sqrt(fan-in)``, as torch does."""
        shapes = (
            (width, hidden, width),
            (width, hidden),
            (hidden, classes, hidden),
            (hidden, classes),
        )
        parameters = []
        for fan_in, *shape in shapes:
            between = 2 * torch.rand(*shape, generator=generator) - 1  # -1 and 1
            parameters.append(between / math.sqrt(fan_in))
        return cls.of(tuple(parameters))

    def parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        assert self.head.bias is not None  # set by every constructor
        return self.weight, self.bias, self.head.weight, self.head.bias

    def to(self, device: torch.device) -> MLP:
        return MLP.of(tuple(parameter.to(device) for parameter in self.parameters()))

    def inputs(self, pixels: Tensor) -> Tensor:
        """Return ``W x + b`` (..., H), what the hidden units receive, for pixels (..., D)."""
        return torch.nn.functional.linear(pixels, self.weight, self.bias)

    def hidden(self, pixels: Tensor) -> Tensor:
        return self.inputs(pixels).relu()

    def logits(self, pixels: Tensor) -> Tensor:
        return self.head.logits(self.hidden(pixels))


@dataclass(frozen=True, slots=True)
class Penalty:
    """``sum_j S_j (theta_j - m_j)^2`` up to a constant, two tensors a parameter whatever the number
    of tasks.

    With ``separate`` anchors it is the sum over finished tasks i of ``sum_j F_ij (theta_j -
    theta_ij)^2`` (Kirkpatrick et al. 2017): a sum of parabolas is a parabola, with ``S = sum_i
    F_i`` and ``m = sum_i F_i theta_i / S``. But theta_i was where the pull of earlier tasks and the
    loss of task i were in balance; that loss is gone, the pull is not, and task i is forgotten from
    then on. With the ``latest`` anchor m is theta of the last task and S the same sum (Huszar 2018;
    Schwarz et al. 2018 without decay), which is the Laplace approximation carried on.
    """

    precisions: Parameters  # S
    centres: Parameters  # m; 0 where S is 0 and no task is finished

    @classmethod
    def none(cls, parameters: Parameters) -> Penalty:
        zeros = tuple(torch.zeros_like(parameter) for parameter in parameters)
        return cls(zeros, zeros)

    @torch.no_grad()
    def fold(
        self, parameters: Parameters, fisher: Parameters, anchor: Anchor = "separate"
    ) -> Penalty:
        """The penalty with that of a finished task added: of theta_i = ``parameters`` and F_i =
        ``fisher``.
        """
        if anchor == "latest":
            sums = tuple(
                before + added for before, added in zip(self.precisions, fisher, strict=True)
            )
            return Penalty(sums, tuple(parameter.clone() for parameter in parameters))
        precisions = []
        centres = []
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
    def add_gradient(self, parameters: Parameters, strength: float) -> None:
        """Add to each parameter's gradient that of ``lambda / 2`` times the penalty, ``lambda S
        (theta - m)``.

        The penalty is added to a loss in nats (Kirkpatrick et al. 2017, Eq. 3).
        """
        for theta, precision, centre in zip(parameters, self.precisions, self.centres, strict=True):
            assert theta.grad is not None  # the caller has run backward
            theta.grad.addcmul_(precision, theta - centre, value=strength)


@torch.no_grad()
def fisher_diagonal(model: MLP, pixels: Tensor, labels: Tensor, *, kind: FisherKind) -> Parameters:
    """The mean over the samples of each one's squared gradient of ``log P(y | x)``.

    The gradient of a layer is the outer product of what flows back into it and what flows in, so
    its square is the outer product of the squares, and the sum over samples one matrix product.
    With ``r = softmax - Y``, ``h = relu(z)`` and ``d = (r V) [z > 0]``::

        F_V = (r^2)^T h^2 / N     F_v = sum r^2 / N     F_W = (d^2)^T x^2 / N     F_b = sum d^2 / N

    ``labels`` takes y from the data (the empirical Fisher information). ``predictions`` takes the
    expectation over ``y ~ P(. | x)``, in which ``r^2`` becomes ``p (1 - p)`` and ``d^2`` the
    variance under p of the columns of V (Kirkpatrick et al. 2017 mean this one).
    """
    totals = [torch.zeros_like(parameter) for parameter in model.parameters()]
    weight, bias, output, offset = totals
    head = model.head.weight  # V (C, H)
    for part, classes in zip(torch.split(pixels, CHUNK), torch.split(labels, CHUNK), strict=True):
        inputs = model.inputs(part)  # z (n, H)
        hidden = inputs.relu()
        mixture_weights = model.head.logits(hidden).softmax(1)  # p (n, C)
        if kind == "labels":
            # r
            residual = mixture_weights.scatter_add(
                1, classes.unsqueeze(1), -torch.ones_like(mixture_weights[:, :1])
            )
            output_squares = residual.square()  # (n, C)
            hidden_squares = (residual @ head).square()  # (n, H)
        else:
            output_squares = mixture_weights * (1 - mixture_weights)
            # Centred first: the difference of two means would lose the digits of a confident
            # network.
            centred = head - (mixture_weights @ head).unsqueeze(1)  # (n, C, H)
            hidden_squares = torch.einsum("nc,nch->nh", mixture_weights, centred.square())
        hidden_squares = hidden_squares * (inputs > 0)
        weight.addmm_(hidden_squares.t(), part.square())
        bias.add_(hidden_squares.sum(0))
        output.addmm_(output_squares.t(), hidden.square())
        offset.add_(output_squares.sum(0))
    return tuple(total.div_(len(pixels)) for total in totals)


def train_task(
    model: MLP,
    pixels: Tensor,
    labels: Tensor,
    settings: PermutedSettings,
    *,
    generator: torch.Generator,
    penalty: Penalty | None = None,
    strength: float = 0.0,
) -> MLP:
    """A copy that minimises the mean cross-entropy, and EWC's penalty, by Adam with a fresh state.

    ``generator`` draws the order of each epoch; ``strength`` is the penalty's lambda.
    """
    parameters = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    trained = MLP.of(parameters)
    optimizer = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
    for _ in range(settings.epochs):
        order = torch.randperm(len(pixels), generator=generator).to(pixels.device)
        total = pixels.new_zeros(())
        for batch in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(trained.logits(pixels[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            if penalty is not None:
                penalty.add_gradient(parameters, strength)
            optimizer.step()
            total += loss.detach()
        if not bool(total.isfinite()):
            raise DivergedError(
                f"training diverged with lr = {settings.lr:g} and penalty strength {strength:g}; "
                "lower one of them"
            )
    return MLP.of(tuple(parameter.detach() for parameter in parameters))
