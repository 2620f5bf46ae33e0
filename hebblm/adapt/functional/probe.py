"""Queries whose tail is looked at more closely: what one shape for the tails of all neighbours costs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.mixing import Mixing
from hebblm.adapt.functional.problem import Problem
from hebblm.adapt.functional.tail import Tail, logits_of, positive
from hebblm.types import OutputHead

PROBED = 32  # classes of the tail at which the error is measured
SAFETY = 2.0  # factor on what was measured: the probed classes are few, and only the first order is seen


@dataclass(frozen=True, slots=True)
class Probe:
    """Some classes of the tail, at which what the keys do is known one by one.

    Args:
        classes: (n, m) at equal steps of the query's tail.
        own: (n, m) shape ``q_v`` of the query's tail.
        keys: (n, K, m) shape ``q_kv`` of the tail of each key.
    """

    classes: Tensor
    own: Tensor
    keys: Tensor

    @classmethod
    def of(cls, problem: Problem, tail: Tail, logit: Tensor) -> Probe:
        """Look at the tails of the queries, and of the keys, whose logit is ``logit`` (n, K)."""
        classes = tail.quantiles(PROBED)
        keys = (logits_of(problem, classes) - logit.unsqueeze(2)).clamp_max_(0).exp_()
        own = tail.probabilities.gather(1, classes) / positive(tail.mass)
        return cls(classes, positive(own), keys)

    def moved(self, shares: Tensor) -> Tensor:
        """Return ``sum_k s_k q_kv`` (n, m), by how much the logits fall, formed neighbour by neighbour.

        Args:
            shares: (n, K) ``s_k``, the mass that each neighbour moves out of the tail.
        """
        return (shares.unsqueeze(1) @ self.keys).squeeze(1)

    def motion(self, pushed: Tensor, mixing: Mixing) -> Tensor:
        """Return how far the logits fall over the steps (n, K, m): by ``sum_j M_kj T_j q_jv`` at key k.

        Args:
            pushed: (n, K) ``T_j``, the tail mass of each neighbour, summed over the steps.
            mixing: M.
        """
        return mixing.product(pushed.unsqueeze(2) * self.keys)

    def motion_error(
        self, shares: Tensor, pushed: Tensor, mixing: Mixing, fallen: Tensor, overlap: Tensor
    ) -> Tensor:
        """Return by what part (n,) the tails of the keys fall otherwise than by the query's overlap with itself.

        Args:
            shares: (n, K) how much the tail of each key counts.
            pushed: as in :meth:`motion`.
            mixing: as in :meth:`motion`.
            fallen: what :meth:`motion` returned.
            overlap: (n, 1) ``sum_v q_v^2``.
        """
        sizes = shares.abs()
        each = (sizes.unsqueeze(1) @ (self.keys * fallen)).squeeze(1)  # (n, m)
        true = (each / self.own).mean(1)  # (n,)
        taken = overlap.squeeze(1) * (sizes * mixing.product(pushed.unsqueeze(2)).squeeze(2)).sum(1)
        return (true - taken).abs() / positive(taken.abs())

    def halfway(self, fallen: Tensor) -> Probe:
        """Return the shapes that the tails of the keys have in the middle of the descent."""
        keys = self.keys * (-fallen / 2).exp()
        own = self.own.unsqueeze(1)
        mass = (keys / own).mean(2, keepdim=True) / positive((self.keys / own).mean(2, keepdim=True))
        return Probe(self.classes, self.own, keys / positive(mass))


@dataclass(frozen=True, slots=True)
class Apart:
    """Queries for which the shape of their own tail does not serve; that at their neighbours' mean key may.

    Args:
        index: (r,) int64, which of the queries.
        mean: (r, D) the neighbours' mean key, weighted by what each moves out of the tail.
        chosen: (r, A) the active set.
        change: (r, A + 1) of the logits on A, and minus the mass moved out of the tail.
        mass: (r, 1) of the query's tail.
        classes: (r, m) of the tail, those of the probe.
        moved: (r, m) what :meth:`Probe.moved` gives there.
        error: (r,) nats a token, of all but the shape.
    """

    index: Tensor
    mean: Tensor
    chosen: Tensor
    change: Tensor
    mass: Tensor
    classes: Tensor
    moved: Tensor
    error: Tensor


def settle(head: OutputHead, parts: Sequence[Apart]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each part the change of the logits (r, V), and its error (r,) in nats a token.

    The change of the tail takes the shape at the mean key, which costs a product with the whole head: the reason to do
    it for many queries at a time. A label outside A is charged the difference at the probed classes and that of the
    normaliser, a label within A the latter; the mean is over the query's distribution.
    """
    probs = head.logits(torch.cat([part.mean for part in parts])).softmax(1)
    for part, delta in zip(parts, torch.split(probs, [len(part.index) for part in parts]), strict=True):
        delta.scatter_(1, part.chosen, 0.0)
        delta.mul_(part.change[:, -1:] / positive(delta.sum(1, keepdim=True)))
        apart = part.moved + delta.gather(1, part.classes)  # (r, m)
        shape = SAFETY * part.mass.squeeze(1) * (apart.abs().mean(1) + apart.mean(1).abs())
        yield delta.scatter_(1, part.chosen, part.change[:, :-1]), part.error + shape
