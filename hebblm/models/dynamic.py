"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2018): the whole model learns, with decay to the base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from awd_lstm import AWDLSTM, detach
from awd_lstm.loss import linear_cross_entropy
from awd_lstm.streams import ParallelStreams
from hebblm.adapt import checks
from hebblm.models.base import AwdBase, BaseUpdate
from hebblm.progress import track

Ids = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class DynamicConfig:
    """Dynamic evaluation.

    Args:
        rule: sgd, or rms (each parameter's step divided by the size of its gradients on training text).
        lr: learning rate eta.
        decay: rate lambda of the pull back to the trained weights.
        epsilon: added to the root mean squares of the rms rule.
        segment: tokens a step.
        statistics: training tokens from which the rms rule takes its mean squares.
    """

    rule: Literal["sgd", "rms"] = "rms"
    lr: float = 0.002
    decay: float = 0.02
    epsilon: float = 0.001
    segment: int = 50
    statistics: int = 50_000

    def __post_init__(self) -> None:
        checks.at_least("dynamic.lr", self.lr, 0)
        checks.share("dynamic.decay", self.decay)
        checks.above_zero("dynamic.epsilon", self.epsilon)
        checks.at_least("dynamic.segment", self.segment, 1)
        checks.at_least("dynamic.statistics", self.statistics, 1)


class DynamicBase(AwdBase):
    """A base that is adapted as a whole after each segment.

    With g the gradient of the segment's mean loss and theta_0 the trained weights,
    ``theta <- theta - eta g + lambda (theta_0 - theta)`` (sgd), or
    ``theta <- theta - eta g / (RMS + epsilon) + lambda R (theta_0 - theta)`` (rms), where RMS is the root mean square
    of the gradients over training segments, R is RMS over its mean, and lambda R is at most 1.

    Args:
        model: as trained; copied.
        config: rule and rates.
        mean_squares: for the rms rule, one tensor a parameter; see :func:`gradient_mean_squares`.
        rows: words appended from the start. A new row has no gradient statistics of its own: it takes the mean of the
            trained rows'.
        init: of new rows.
        seed: of ``uniform`` rows.
    """

    def __init__(
        self,
        model: AWDLSTM,
        config: DynamicConfig,
        mean_squares: list[Tensor] | None,
        *,
        rows: int = 0,
        init: Any = "zero",
        seed: int = 0,
    ) -> None:
        self.config = config
        self._mean_squares = mean_squares
        # One average for all parameters: a new row, which takes the mean of the trained ones, does not move it.
        self._average = 0.0
        if mean_squares is not None:
            self._average = float(torch.stack([squares.sqrt().mean() for squares in mean_squares]).mean())
        self._scales: list[_Scales] = []
        super().__init__(model, rows=rows, init=init, update=BaseUpdate(lr=config.lr), seed=seed)

    @property
    def moving(self) -> bool:
        """Dynamic evaluation always keeps the graph: a rate of 0 still decays."""
        return True

    def reset(self) -> None:
        """Return to the trained weights."""
        self._origin: list[Tensor] = []
        super().reset()
        self._origin = [p.detach().clone() for p in self.model.parameters()]
        self._rescale()

    def grow(self, rows: int) -> None:
        """Append rows, whose origin is their initial value."""
        before = self.model.embedding.shape[0]
        super().grow(rows)
        if rows and self._origin:
            names = [name for name, _ in self.model.named_parameters()]
            for name in ("embedding", "bias"):
                index = names.index(name)
                value = getattr(self.model, name).detach()
                self._origin[index] = torch.cat([self._origin[index], value[before:]])
            self._rescale()

    def learn(self, targets: Tensor) -> None:
        """Take one step on the segment read last."""
        assert self._hidden is not None, "learn follows read"
        loss = linear_cross_entropy(
            self._hidden, self.model.embedding, self.model.bias, targets, self.model.bias.dtype
        )
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        self._hidden = None
        with torch.no_grad():
            for index, (p, g, origin) in enumerate(zip(parameters, gradients, self._origin, strict=True)):
                # Both terms start from the parameters as they are, so the pull comes before the step.
                if self._mean_squares is None:
                    p.lerp_(origin, self.config.decay).add_(g, alpha=-self.config.lr)
                    continue
                scales = self._scales[index]
                p.lerp_(origin, scales.pull).addcdiv_(g, scales.size, value=-self.config.lr)

    def _rescale(self) -> None:
        """Prepare the rms rule's scales, which change with the vocabulary alone."""
        if self._mean_squares is None:
            return
        self._scales = []
        for p, mean_squares in zip(self.model.parameters(), self._mean_squares, strict=True):
            rms = _fit(mean_squares, p.shape[0]).sqrt()
            pull = (rms * (self.config.decay / self._average)).clamp_(max=1.0)
            self._scales.append(_Scales(pull, rms.add_(self.config.epsilon)))


@dataclass(frozen=True, slots=True)
class _Scales:
    """Of one parameter, each of its shape.

    Args:
        pull: share of the way back to the trained weights, lambda R.
        size: what its gradients are divided by, RMS + epsilon.
    """

    pull: Tensor
    size: Tensor


def _fit(mean_squares: Tensor, rows: int) -> Tensor:
    """Extend statistics (V, ...) to ``rows`` rows by their mean."""
    missing = rows - mean_squares.shape[0]
    if missing == 0:
        return mean_squares
    return torch.cat(
        [mean_squares, mean_squares.mean(0, keepdim=True).expand(missing, *mean_squares.shape[1:])]
    )


def gradient_mean_squares(model: AWDLSTM, train: Ids, config: DynamicConfig) -> list[Tensor]:
    """Return the mean over training segments of the squared gradient of a segment's mean loss, by parameter.

    Args:
        model: in evaluation mode.
        train: (T,) training ids; the first ``config.statistics`` are read, as 20 parallel streams.
        config: segment length and number of tokens.
    """
    streams = ParallelStreams(train[: config.statistics], min(20, max(1, len(train) // 2)))
    parameters = list(model.parameters())
    sums = [torch.zeros_like(p) for p in parameters]
    state = model.initial_state(streams.batch_size)
    starts = range(0, len(streams), config.segment)
    for start in track(starts, "gradient statistics", len(starts), "segments"):
        inputs, targets = streams.segment(start, config.segment, parameters[0].device)
        out = model(inputs, state)
        state = detach(out.state)
        hidden = out.hidden.reshape(-1, out.hidden.shape[-1])
        loss = linear_cross_entropy(
            hidden, model.embedding, model.bias, targets.reshape(-1), model.bias.dtype
        )
        for total, g in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total += g.square()
    return [total / len(starts) for total in sums]
