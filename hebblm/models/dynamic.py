"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2018): the whole model learns, with decay to the base."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hebblm.models.base import GradientBase, State, StreamBase
from hebblm.models.update import MEASURED
from hebblm.models.update import DynamicConfig as DynamicConfig
from hebblm.types import OutputHead


class DynamicBase:
    """A base that is adapted as a whole after each segment.

    With g the gradient of the segment's mean loss and theta_0 the trained weights,
    ``theta <- theta - eta g + lambda (theta_0 - theta)`` (sgd), or
    ``theta <- theta - eta g / (RMS + epsilon) + lambda R (theta_0 - theta)`` (rms), where RMS is the root mean square
    of the gradients over training segments, R is RMS over its mean, and lambda R is at most 1. After fewer tokens than
    ``config.segment``, eta and lambda R are lower in proportion.

    Args:
        base: at the beginning of its stream, with no learning of its own.
        config: rule and rates.
        mean_squares: where ``config`` needs them, one tensor a parameter of ``base``; see
            :meth:`hebblm.models.base.TrainedModel.mean_squares`. A row appended to the trained ones has no gradient
            statistics of its own: it takes the mean of theirs.
    """

    def __init__(self, base: GradientBase, config: DynamicConfig, mean_squares: list[Tensor] | None) -> None:
        self.config = config = with_rate(config, mean_squares)
        self._base = base
        base.tracked = True
        self._mean_squares = mean_squares = mean_squares if config.rule == "rms" else None
        # One average for all parameters: a new row, which takes the mean of the trained ones, does not move it.
        self._average = 0.0
        if mean_squares is not None:
            self._average = float(torch.stack([squares.sqrt().mean().cpu() for squares in mean_squares]).mean())
        self._scales: list[_Scales] = []
        self._start()

    @property
    def head(self) -> OutputHead:
        return self._base.head

    @property
    def moving(self) -> bool:
        return True  # also at a rate of 0, where weights still decay

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._base.parameters()

    def read(self, inputs: Tensor) -> Tensor:
        return self._base.read(inputs)

    def reset(self) -> None:
        self._base.reset()
        self._start()

    def grow(self, rows: int) -> None:
        """Append rows; what these decay to is their initial value."""
        self._base.grow(rows)
        for index, parameter in enumerate(self.parameters().values() if rows else ()):
            known = len(self._origin[index])
            if len(parameter) > known:
                self._origin[index] = torch.cat([self._origin[index], parameter.detach()[known:]])
        self._rescale()

    def stream_state(self) -> State:
        return self._base.stream_state()

    def load_stream_state(self, state: State) -> None:
        self._base.load_stream_state(state)

    def state_dict(self) -> State:
        """With the origins of the rows that were appended since."""
        grown = {
            f"origin {index}": origin[rows:]
            for index, (origin, rows) in enumerate(zip(self._origin, self._rows, strict=True))
            if len(origin) > rows
        }
        return {**self._base.state_dict(), **grown}

    def load_state_dict(self, state: State) -> None:
        self._base.load_state_dict(state)
        for index, origin in enumerate(self._origin):
            if (grown := state.get(f"origin {index}")) is not None:
                self._origin[index] = torch.cat([origin, grown])
        self._rescale()

    def aside(self) -> AbstractContextManager[None]:
        return self._base.aside()

    def frozen(self) -> StreamBase:
        return self._base.frozen()

    def learn(self, targets: Tensor) -> None:
        share = min(len(targets) / self.config.segment, 1.0)
        lr, parameters = share * float(self.config.lr), list(self.parameters().values())
        # A weight that a single token does not reach has a gradient of zero.
        gradients = torch.autograd.grad(self._base.loss(targets), parameters, materialize_grads=True)
        with torch.no_grad():
            for index, (p, g, origin) in enumerate(zip(parameters, gradients, self._origin, strict=True)):
                # Both terms start from the parameters as they are, so the pull comes before the step.
                if self._mean_squares is None:
                    p.lerp_(origin, share * self.config.decay).add_(g, alpha=-lr)
                    continue
                scales = self._scales[index]
                pull = scales.pull if share == 1 else share * scales.pull
                p.lerp_(origin, pull).addcdiv_(g, scales.size, value=-lr)

    def _start(self) -> None:
        """Take the weights as they are for the trained ones."""
        self._origin = [p.detach().clone() for p in self.parameters().values()]
        self._rows = [len(origin) for origin in self._origin]
        self._rescale()

    def _rescale(self) -> None:
        """Prepare the rms rule's scales, which change with the vocabulary alone."""
        self._scales = []
        if self._mean_squares is None:
            return
        for p, mean_squares in zip(self.parameters().values(), self._mean_squares, strict=True):
            rms = _fit(mean_squares.to(p.device), p.shape[0]).sqrt()
            pull = (rms * (self.config.decay / self._average)).clamp_(max=1.0)
            self._scales.append(_Scales(pull, rms.add_(self.config.epsilon)))


def with_rate(config: DynamicConfig, mean_squares: Sequence[Tensor] | None) -> DynamicConfig:
    """Dynamic evaluation with a number for its rate.

    To first order a step of rate eta lowers the loss of the segment whose gradient is g by eta g . s, with s the step
    at rate 1: g itself, or g / (RMS + epsilon). On training text that is eta times the sum of RMS^2, or of
    RMS^2 / (RMS + epsilon), in nats whatever the model; the rate is measured by choosing it, ``config.gain``.

    Args:
        config: rule and rates.
        mean_squares: of the gradients of training segments, one tensor a parameter; None for a rate that is a number.
    """
    if config.lr != MEASURED:
        return config
    assert mean_squares is not None, "a rate is measured on the gradients of training text"
    gains = (
        squares if config.rule == "sgd" else squares / (squares.sqrt() + config.epsilon) for squares in mean_squares
    )
    gain = sum(float(part.sum(dtype=torch.float64)) for part in gains)
    return replace(config, lr=float(f"{config.gain / gain:.1e}") if gain > 0 else 0.0)


class _Scales(NamedTuple):
    """Scales of one parameter, each of its shape."""

    pull: Tensor  # share of the way back to the trained weights, lambda R
    size: Tensor  # what its gradients are divided by, RMS + epsilon


def _fit(mean_squares: Tensor, rows: int) -> Tensor:
    """Statistics (V, ...) of ``rows`` rows, of which the new ones have the mean of the others."""
    missing = rows - mean_squares.shape[0]
    if missing == 0:
        return mean_squares
    return torch.cat([mean_squares, mean_squares.mean(0, keepdim=True).expand(missing, *mean_squares.shape[1:])])
