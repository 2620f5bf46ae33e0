"""Steps of dynamic evaluation whose rate is found on the stream itself, and a bound on their
loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite

import torch
from torch import Tensor

from hebblm.io.groups import prefixed, under
from hebblm.models.base import State

START = 5e-4  # share of a weight's size that the first step changes it by
SMALLEST = 1e-3  # size of weights that are smaller, as biases of 0
KEPT = 0.9  # of the evidence for a larger rate, from step to step
SPEED = 0.15  # of the log of the rate, by the evidence, which is at most 1 / sqrt(1 - KEPT)
ALLOWED = 0.003  # nats a token by which the learned weights may be worse than the trained ones
GRACE = 500  # tokens for which that is allowed from the start


class StreamRate:
    """Steps from trained weights theta_0, and their size.

    With g the gradient of the mean loss of a segment of n tokens, v the mean of its square over the
    segments so far, for each weight, and V the mean of v over a tensor::

        x   = n g . (theta_0 - theta)            gain of the way from theta_0 on the segment, to
        first order s   <- 0.9 s + x,  r <- 0.9 r + x^2
        f   = exp(0.15 s / sqrt(r)),  eta <- f eta
        theta <- theta_0 + f (theta - theta_0) - eta RMS(theta_0) g / mean(sqrt(v), sqrt(V))

    The segment was scored before, so x tests all earlier steps on text that they have not seen. It
    is positive if a longer way would have been better, and negative if the rate is too large. The
    step size relative to the weights is Adafactor's (Shazeer and Stern 2018); a rate from the
    product of a gradient and earlier steps is hypergradient descent (Baydin and others 2018). V
    limits the steps of weights that have hardly any gradient, such as output rows of words that do
    not occur.

    Args:
        origin: theta_0, one tensor per parameter; only these first rows count for RMS(theta_0), not
            later ones.
        eta: rate of the first step.
    """

    def __init__(self, origin: Sequence[Tensor], eta: float) -> None:
        self._sizes = [max(float(q.square().mean()) ** 0.5, SMALLEST) for q in origin]
        self._means = [torch.zeros_like(q) for q in origin]
        self.eta = eta
        self._evidence = self._spread = 0.0
        self._steps = 0
        self._behind = 0.0
        self._tokens = 0
        self._moved = False

    def holds(self, loss: float, trained: float, tokens: int) -> bool:
        """Return whether the learned weights stay within their bound, after a segment of ``tokens``
        was scored.

        Args:
            loss: mean loss under the learned weights, nats.
            trained: mean loss under the trained weights, nats.
            tokens: tokens of the segment.
        """
        self._behind += tokens * (loss - trained)
        self._tokens += tokens
        return self._behind <= ALLOWED * (self._tokens + GRACE)

    def returns(self) -> bool:
        """Halve the rate and start again from the trained weights; False without steps since the
        last return.
        """
        moved = self._moved
        self._moved = False
        if moved:
            self.eta = self.eta / 2
            self._evidence = 0.0
            self._spread = 0.0
        return moved

    def step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        origin: Sequence[Tensor],
        tokens: int,
        share: float,
    ) -> None:
        """Change parameters by ``share`` of a whole step; gradients that overflow change
        nothing.
        """
        ways = []
        for p, g, q in zip(parameters, gradients, origin, strict=True):
            ways.append(((q - p) * g).sum().double())
        gain = tokens * sum(map(float, ways))
        if not isfinite(gain) or not all(bool(g.isfinite().all()) for g in gradients):
            return
        self._evidence = KEPT * self._evidence + gain
        self._spread = KEPT * self._spread + gain**2
        factor = exp(SPEED * self._evidence / self._spread**0.5) if self._spread else 1.0
        self.eta *= factor
        self._steps += 1
        self._moved = True
        for p, g, q, size, mean in zip(
            parameters, gradients, origin, self._sizes, self._means, strict=True
        ):
            mean.lerp_(g.square(), 1 / self._steps)
            average = float(mean.mean()) ** 0.5
            p.lerp_(q, 1 - factor)
            if average:
                p.addcdiv_(g, mean.sqrt().add_(average), value=-2 * share * self.eta * size)

    def grow(self, origin: Sequence[Tensor]) -> None:
        """Add rows appended to the trained weights; they had no gradients so far."""
        for index, q in enumerate(origin):
            known = self._means[index]
            if len(q) > len(known):
                self._means[index] = torch.cat([known, torch.zeros_like(q[len(known) :])])

    def state_dict(self) -> State:
        """Return the state for :meth:`load_state_dict`."""
        numbers = [
            self.eta,
            self._evidence,
            self._spread,
            self._steps,
            self._behind,
            self._tokens,
            self._moved,
        ]
        state = torch.tensor(
            [float(number) for number in numbers], dtype=torch.float64, device="cpu"
        )
        return {
            "found": state,
            **prefixed("mean ", {f"{i:05d}": mean for i, mean in enumerate(self._means)}),
        }

    def load_state_dict(self, state: State) -> None:
        self.eta, self._evidence, self._spread, steps, self._behind, tokens, moved = state[
            "found"
        ].tolist()
        self._steps = int(steps)
        self._tokens = int(tokens)
        self._moved = bool(moved)
        means = under("mean ", state)
        self._means = [
            means[name].to(known.device).clone()
            for name, known in zip(sorted(means), self._means, strict=True)
        ]
