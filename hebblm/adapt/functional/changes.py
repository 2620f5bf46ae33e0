"""Changes of the logits that are large only on a few classes of each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from hebblm import kernels


@dataclass(frozen=True, slots=True)
class CompactChange:
    """Change of logits f (N, V): C followed classes of each query change by numbers of their own,
    the others, its tail, by ``x q_v``.

    With p the softmax of f, ``q_v = p_v / t`` is the shape of the tail, whose mass is t.

    Args:
        logits: (N, V) f.
        normalizer: (N,) logsumexp of f, nats.
        classes: (N, C) int64, the followed classes. A row with fewer repeats its first one.
        log_p: (N, C) their log p in nats; -inf where a class is repeated.
        change: (N, C) their change in nats.
        moved: (N,) x, nats.
        tail: (N,) the least value that t is taken for, above 0.
        mass: (N,) the mass of p outside the followed classes.
        moments: (N, 3) sums of q^2, q^3 and q^4 over the tail.
        largest: (N,) the largest q.
    """

    logits: Tensor
    normalizer: Tensor
    classes: Tensor
    log_p: Tensor
    change: Tensor
    moved: Tensor
    tail: Tensor
    mass: Tensor
    moments: Tensor
    largest: Tensor

    def rows(self, index: Tensor | Sequence[int]) -> CompactChange:
        """Return the change of some queries, (m,) int64 or (N,) bool."""
        return CompactChange(*(getattr(self, field.name)[index] for field in fields(self)))

    def put(self, index: Tensor, other: CompactChange) -> None:
        """Replace the change of some queries (m,), which follow the same number of classes."""
        for field in fields(self)[2:]:  # all but the logits and their normaliser, which stay
            getattr(self, field.name)[index] = getattr(other, field.name)

    def dense(self) -> Tensor:
        """Return the change (N, V) of all logits, nats."""
        shape = (self.logits - self.normalizer.unsqueeze(1)).exp_()  # p (N, V)
        change = shape.mul_((self.moved / self.tail).unsqueeze(1))
        return change.scatter_(1, self.classes, self.change)

    def at(self, targets: Tensor) -> Tensor:
        """Return the change (N,) of one class of each query, (N,) int64, in nats."""
        same = self.classes == targets.unsqueeze(1)  # (N, C)
        followed = self.change.gather(1, same.int().argmax(1, keepdim=True)).squeeze(1)
        p = (self.logits.gather(1, targets.unsqueeze(1)).squeeze(1) - self.normalizer).exp()
        return torch.where(same.any(1), followed, self.moved * p / self.tail)

    def losses(self, targets: Tensor, weights: Tensor) -> Tensor:
        """Return how much the loss (N, W) of targets (N,) int64 grows at weights (N, W), nats."""
        if len(targets) and kernels.takes(self.logits, self.change):
            tails = torch.column_stack(
                [self.moved, self.tail, self.mass, self.moments, self.largest]
            )
            grown, own = kernels.growths(
                self.logits, self.normalizer, self.classes, self.log_p, self.change, tails,
                targets, weights.float(),
            )  # fmt: skip
        else:
            grown, own = self.growth(weights), self.at(targets)
        return grown.to(own.dtype) - weights * own.unsqueeze(1)

    def growth(self, weights: Tensor) -> Tensor:
        """Return ``log sum_v p_v exp(w d_v)``, how much the logsumexp of the logits grows by w
        times the change d.

        On the tail the sum is a series in ``w x`` and the sums of powers of q, which leaves out
        ``t (|w x| q)^4 / 24`` at most, with the largest q. Where that is more than the rounding of
        the logits' dtype, the sum is taken over all classes.

        Args:
            weights: (N, W) w of each query.

        Returns:
            (N, W) float64, nats.
        """
        weights = weights.double()
        scaled = self.log_p.double().unsqueeze(2) + self.change.double().unsqueeze(
            2
        ) * weights.unsqueeze(1)  # (N, C, W)
        x = self.moved.double().unsqueeze(1) * weights  # (N, W)
        second, third, fourth = self.moments.double().unsqueeze(2).unbind(1)  # (N, 1) each
        # sum p exp(x q) = t (1 + x S2 + x^2 S3 / 2 + x^3 S4 / 6 + ...), p = t q and sum q = 1.
        series = x * (second + x / 2 * (third + x / 3 * fourth))
        tail = self.mass.double().unsqueeze(1) + self.tail.double().unsqueeze(1) * series
        grown = torch.logaddexp(scaled.logsumexp(1), tail.clamp_min(0).log())
        left_out = self.mass.unsqueeze(1) * (x * self.largest.double().unsqueeze(1)) ** 4 / 24
        far = ~(left_out <= torch.finfo(self.logits.dtype).eps)  # also where it is not finite
        for row in far.any(1).nonzero().flatten().tolist():
            grown[row] = self._exact_growth(row, weights[row])
        return grown

    def _exact_growth(self, row: int, weights: Tensor) -> Tensor:
        """Return the growth (W,) of one query at some weights (W,), summed over all classes."""
        log_p = self.logits[row].double() - self.normalizer[row].double()  # (V,)
        change = log_p.exp() * (self.moved[row].double() / self.tail[row].double())
        change[self.classes[row]] = self.change[row].double()
        return (log_p + weights.unsqueeze(1) * change).logsumexp(1)


def joined(
    logits: Tensor, normalizer: Tensor, parts: Sequence[tuple[Tensor, CompactChange]]
) -> CompactChange:
    """Return one change of N queries from those of parts of them.

    Args:
        logits: (N, V) of all queries.
        normalizer: (N,) their logsumexp, nats.
        parts: the rows (n,) int64 of each part, and its change. Together they are all rows.
    """
    count, most = len(logits), max(part.classes.shape[1] for _, part in parts)
    classes = logits.new_zeros(count, most, dtype=torch.int64)
    log_p = logits.new_full((count, most), -torch.inf)
    change = logits.new_zeros(count, most)
    moved, tail, mass, largest = logits.new_zeros(4, count)
    moments = logits.new_zeros(count, 3)
    for rows, part in parts:
        size = part.classes.shape[1]
        classes[rows] = torch.nn.functional.pad(part.classes, (0, most - size))
        classes[rows, size:] = part.classes[:, :1]  # repeated, so that no other class changes
        log_p[rows, :size] = part.log_p
        change[rows] = torch.nn.functional.pad(part.change, (0, most - size))
        change[rows, size:] = part.change[:, :1]
        moved[rows], tail[rows], mass[rows] = part.moved, part.tail, part.mass
        moments[rows], largest[rows] = part.moments, part.largest
    return CompactChange(
        logits, normalizer, classes, log_p, change, moved, tail, mass, moments, largest
    )
