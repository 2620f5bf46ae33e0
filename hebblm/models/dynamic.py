"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2018): the weights learn from each
segment after reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hebblm.io.groups import prefixed, under
from hebblm.models.base import GradientBase, State, StreamBase
from hebblm.models.stream_rate import START, StreamRate
from hebblm.models.update import MEASURED, STREAM
from hebblm.models.update import DynamicConfig as DynamicConfig
from hebblm.types import OutputHead

TRAINED = "trained "
"""Prefix of the names of the trained base's place, if another base learns."""
RATE = "rate "
"""Prefix of the names of the state of a rate that is found on the stream."""


class DynamicBase:
    """A base that is adapted as a whole after each segment.

    With g the gradient of the segment's mean loss and theta_0 the trained weights,
    ``theta <- theta - eta g + lambda (theta_0 - theta)`` (sgd), or
    ``theta <- theta - eta g / (RMS + epsilon) + lambda R (theta_0 - theta)`` (rms), where RMS is
    the root mean square of the gradients over training segments, R is RMS over its mean, and lambda
    R is at most 1. After fewer tokens than ``config.segment``, eta and lambda R are lower in
    proportion. The steps of the third rule (stream) are those of
    :class:`~hebblm.models.stream_rate.StreamRate`. With this rule the trained base reads the same
    text; if the learned weights do worse, they go back to the trained ones.

    Args:
        base: at the beginning of its stream, without its own learning.
        config: rule and rates.
        mean_squares: if ``config`` needs them, one tensor per parameter of ``base``; see
            :meth:`hebblm.models.base.TrainedModel.mean_squares`. An appended row has no gradient
            statistics and takes the mean of the trained rows'. The rule "auto" is rms with them,
            stream without.
    """

    def __init__(
        self, base: GradientBase, config: DynamicConfig, mean_squares: list[Tensor] | None
    ) -> None:
        self.config = config = with_rate(config, mean_squares)
        self._base = base
        self.trained = base.frozen() if config.rule == STREAM else None
        # (N, D) of the trained base, of the tokens read last
        self.trained_states = base.head.weight.new_zeros(0)
        base.tracked = True
        self._mean_squares = mean_squares = mean_squares if config.rule == "rms" else None
        # One average for all parameters: a new row, which takes the mean of the trained ones, does
        # not move it.
        self._average = 0.0
        if mean_squares is not None:
            self._average = float(
                torch.stack([squares.sqrt().mean().cpu() for squares in mean_squares]).mean()
            )
        self._scales: list[_Scales] = []
        self._start()

    @property
    def head(self) -> OutputHead:
        return self._base.head

    @property
    def trains_online(self) -> bool:
        return True  # also at a rate of 0, where weights still decay

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._base.parameters()

    def read(self, inputs: Tensor) -> Tensor:
        if self.trained is not None:
            self.trained_states = self.trained.read(inputs)
        return self._base.read(inputs)

    def reset(self) -> None:
        self._base.reset()
        if self.trained is not None:
            self.trained.reset()
        self._start()

    def grow(self, rows: int) -> None:
        """Append rows; they decay to their initial value."""
        self._base.grow(rows)
        if self.trained is not None:
            self.trained.grow(rows)
        for index, parameter in enumerate(self.parameters().values() if rows else ()):
            known = len(self._origin[index])
            if len(parameter) > known:
                self._origin[index] = torch.cat([self._origin[index], parameter.detach()[known:]])
        if self._rate is not None:
            self._rate.grow(self._origin)
        self._rescale()

    def stream_state(self) -> State:
        trained_state = {} if self.trained is None else self.trained.stream_state()
        return {**self._base.stream_state(), **prefixed(TRAINED, trained_state)}

    def load_stream_state(self, state: State) -> None:
        """Go on from a state; the state of a fixed base serves both bases."""
        state_of_base = {
            name: value for name, value in state.items() if not name.startswith(TRAINED)
        }
        self._base.load_stream_state(state_of_base)
        if self.trained is not None:
            self.trained.load_stream_state(under(TRAINED, state) or state_of_base)

    def state_dict(self) -> State:
        """Return the state with the initial values of appended rows."""
        grown = {
            f"origin {index}": origin[rows:]
            for index, (origin, rows) in enumerate(zip(self._origin, self._rows, strict=True))
            if len(origin) > rows
        }
        trained_state = {} if self.trained is None else self.trained.state_dict()
        return {
            **self._base.state_dict(),
            **grown,
            **prefixed(TRAINED, trained_state),
            **self.rate_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self._base.load_state_dict(state)
        for index, origin in enumerate(self._origin):
            if (grown := state.get(f"origin {index}")) is not None:
                self._origin[index] = torch.cat([origin, grown])
        self._rescale()
        if self.trained is not None:
            self.trained.load_state_dict(under(TRAINED, state))
        self.load_rate_state(state)

    def rate_state(self) -> State:
        """Return the state of a rate that is found on the stream; empty for other rules."""
        if self._rate is None:
            return {}
        return prefixed(RATE, self._rate.state_dict())

    def load_rate_state(self, state: State) -> None:
        """Go on from the state of :meth:`rate_state`, if there is any."""
        if self._rate is not None and (known := under(RATE, state)):
            self._rate.load_state_dict(known)

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        with ExitStack() as stack:
            for base in (self._base, self.trained):
                if base is not None:
                    stack.enter_context(base.preserve_state())
            yield

    def continuations(self, rows: Sequence[Tensor]) -> list[Tensor]:
        return self._base.continuations(rows)

    @property
    def max_rewind(self) -> int:
        return self._base.max_rewind

    def rewind(self, count: int) -> None:
        for base in (self._base, self.trained):
            if base is not None:
                base.rewind(count)

    def frozen(self) -> StreamBase:
        return self._base.frozen()

    def learn(self, targets: Tensor) -> None:
        share = min(len(targets) / self.config.segment, 1.0)
        if self._rate is not None:
            self._learn_at(self._rate, targets, share)
            return
        lr = share * float(self.config.lr)
        parameters = list(self.parameters().values())
        # A weight that a single token does not reach has a gradient of zero.
        gradients = torch.autograd.grad(
            self._base.loss(targets), parameters, materialize_grads=True
        )
        with torch.no_grad():
            for index, (p, g, origin) in enumerate(
                zip(parameters, gradients, self._origin, strict=True)
            ):
                # Both terms start from the parameters as they are, so the pull comes before the
                # step.
                if self._mean_squares is None:
                    p.lerp_(origin, share * self.config.decay).add_(g, alpha=-lr)
                    continue
                scales = self._scales[index]
                l2_to_base = scales.l2_to_base if share == 1 else share * scales.l2_to_base
                p.lerp_(origin, l2_to_base).addcdiv_(g, scales.size, value=-lr)

    def _learn_at(self, rate: StreamRate, targets: Tensor, share: float) -> None:
        """Take a step at the rate found on the stream, or go back to the trained weights."""
        assert self.trained is not None
        head = self.trained.head
        parameters = list(self.parameters().values())
        with torch.no_grad():
            logits = head.logits(self.trained_states[:, : head.weight.shape[1]])
            trained = float(F.cross_entropy(logits, targets))
        loss = self._base.loss(targets)
        if rate.holds(float(loss.detach()), trained, len(targets)):
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            with torch.no_grad():
                rate.step(parameters, gradients, self._origin, len(targets), share)
        elif rate.returns():
            with torch.no_grad():
                for p, origin in zip(parameters, self._origin, strict=True):
                    p.copy_(origin)
            self._base.load_stream_state(self.trained.stream_state())

    def _start(self) -> None:
        """Make the present weights the trained ones."""
        self._origin = [p.detach().clone() for p in self.parameters().values()]
        self._rows = [len(origin) for origin in self._origin]
        self._rate = None
        if self.config.rule == STREAM:
            self._rate = StreamRate(
                self._origin, START if self.config.lr == MEASURED else self.config.lr
            )
        self._rescale()

    def _rescale(self) -> None:
        """Prepare the rms rule's scales, which change only with the vocabulary."""
        self._scales = []
        if self._mean_squares is None:
            return
        for p, mean_squares in zip(self.parameters().values(), self._mean_squares, strict=True):
            rms = _fit(mean_squares.to(p.device), p.shape[0]).sqrt()
            l2_to_base = (rms * (self.config.decay / self._average)).clamp_(max=1.0)
            self._scales.append(_Scales(l2_to_base, rms.add_(self.config.epsilon)))


def with_rate(config: DynamicConfig, mean_squares: Sequence[Tensor] | None) -> DynamicConfig:
    """Return the settings with a rule and, unless it finds its rate on the stream, a number for its
    rate.

    To first order a step of rate eta lowers the loss of the segment whose gradient is g by eta g .
    s, with s the step at rate 1: g itself, or g / (RMS + epsilon). On training text that is eta
    times the sum of RMS^2, or of RMS^2 / (RMS + epsilon), in nats whatever the model; the rate is
    measured by choosing it, ``config.gain``.

    Args:
        config: rule and rates.
        mean_squares: of the gradients of training segments, one tensor per parameter, or None if
            not known.
    """
    if config.rule == "auto" and mean_squares is None:
        config = replace(config, rule=STREAM)
    elif config.rule == "auto":
        config = replace(config, rule="rms")
    if config.lr != MEASURED or config.rule == STREAM:
        return config
    assert mean_squares is not None, "a rate is measured on the gradients of training text"
    gain = 0.0
    for squares in mean_squares:
        part = squares
        if config.rule != "sgd":
            part = squares / (squares.sqrt() + config.epsilon)
        gain += float(part.sum(dtype=torch.float64))
    if gain <= 0:
        return replace(config, lr=0.0)
    return replace(config, lr=float(f"{config.gain / gain:.1e}"))


class _Scales(NamedTuple):
    """Scales of one parameter, each of its shape."""

    l2_to_base: Tensor  # share of the way back to the trained weights, lambda R
    size: Tensor  # what its gradients are divided by, RMS + epsilon


def _fit(mean_squares: Tensor, rows: int) -> Tensor:
    """Return statistics (V, ...) of ``rows`` rows; new rows have the mean of the others."""
    missing = rows - mean_squares.shape[0]
    if missing == 0:
        return mean_squares
    return torch.cat(
        [mean_squares, mean_squares.mean(0, keepdim=True).expand(missing, *mean_squares.shape[1:])]
    )
