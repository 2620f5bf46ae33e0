"""Gradient descent on the head followed on a few hundred classes; the rest keeps its shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.blocks import block_size
from hebblm.adapt.functional.mixing import (
    Mixing,
    ThinMixing,
    WholeMixing,
    factor_pays,
    missed,
    thin_factor,
)
from hebblm.adapt.functional.path import Path, follow
from hebblm.adapt.functional.probe import SAFETY, Apart, Probe, settle
from hebblm.adapt.functional.problem import Problem, Solution, rose, weighted_loss
from hebblm.adapt.functional.tail import (
    Tail,
    TailLogit,
    adapted,
    known_tail,
    logits_of,
    mean_key,
    positive,
    sampled_tail,
)
from hebblm.adapt.functional.widths import NARROW, SHAPES, leading

NARROWLY = 2  # added to the kind of a query that is followed on few classes
THIN_SHARE = 0.25  # part of the tolerance that a factor in place of the Gram matrix may take
THIN_COST = 2.5e-4  # nats a token that it may take at most, where any error is accepted


def solve_active(
    problem: Problem,
    rates: Tensor,
    watch: Tensor,
    *,
    steps: int,
    pull: float,
    active: int,
    tolerance: float = 0.0,
    narrow: bool = False,
) -> Solution:
    """Follow S steps of descent on an active set A of classes; an approximation of :func:`solve_exact`.

    All other classes of a key make up one more class, with the base's tail mass at the start::

        Z_k[tail] = log(exp(lse_k) - sum_A exp(Z_k[v])),    lse_k = logsumexp of the key's base logits

    It moves as the classes of the tail do in the mean: ``sum_v q_v Z_k[v]`` by ``sum_v q_v^2`` of what its
    residual would do to one class. For a class v outside A the change is ``delta_v = -(sum_k s_k) q_v``, with s_k
    the tail mass of neighbour k times alpha_k, summed over the steps, and q the shape of the query's own tail.

    The error of one shape for all is taken as ``3 (sum_k |s_k|) sum_v p_x(v) q_v`` in nats a token, the mean over
    the query's distribution: an estimate, not a bound. What the motion of the tail does to the result is followed
    beside it. Where they exceed the tolerance together, q is taken at the neighbours' mean key, weighted by s_k, and
    the error is measured at some classes of the tail (:class:`~hebblm.adapt.functional.probe.Probe`). Without stored
    normalisers Z_k[tail] comes from a sample of the tail, as large as A, and the error of that is added. Where it
    costs little, M goes through a thin factor.

    Args:
        problem: the queries and their neighbours.
        rates: (n,) learning rates.
        watch: (n,) bool, the queries whose neighbours' loss is compared before and after.
        steps: number S of steps, at least 1.
        pull: rate of the pull toward the base head.
        active: |A|, at least the number of different labels of any query.
        tolerance: nats a token, below which an error need not be known better.
        narrow: whether fewer classes are followed for the queries that the problem marks.

    Returns:
        The change of the logits, the rise flags (False outside ``watch``), and the error to be expected.
    """
    descent = Descent(steps, pull, active, tolerance, narrow)
    everyone = torch.arange(len(rates), device=rates.device)
    delta = problem.scores.new_empty(len(rates), problem.scores.shape[1])  # (n, V)
    error, rises = torch.empty_like(rates), torch.empty_like(watch)
    apart = []
    for block, size in descent.blocks(problem, watch):
        part = problem.rows(block)
        for walk in descent.walks(part, size, everyone[block], rates[block], watch[block]):
            delta.index_copy_(0, walk.index, walk.delta)
            error.index_copy_(0, walk.index, walk.error)
            rises.index_copy_(0, walk.index, walk.rose)
            if walk.apart is not None:
                apart.append(walk.apart)
    if apart:
        for one, (changed, off) in zip(apart, settle(problem.head, apart), strict=True):
            delta.index_copy_(0, one.index, changed)
            error.index_copy_(0, one.index, off)
    return Solution(delta, rises, error, rates)


@dataclass(frozen=True, slots=True)
class Walk:
    """What the descent of some queries came to.

    Args:
        index: (n,) int64, which queries.
        delta: (n, V) change of the logits, that of the tail in the shape of the query's own.
        error: (n,) nats a token to be expected.
        rose: (n,) bool.
        apart: those for which that shape does not serve; None if there are none.
    """

    index: Tensor
    delta: Tensor
    error: Tensor
    rose: Tensor
    apart: Apart | None


@dataclass(frozen=True, slots=True)
class Descent:
    """Follows queries a few at a time; the values are those of :func:`solve_active`."""

    steps: int
    pull: float
    active: int
    tolerance: float
    narrow: bool

    def blocks(self, problem: Problem, watch: Tensor) -> Iterator[tuple[slice | Tensor, int]]:
        """Yield which queries are followed together, and on how many classes.

        After a single step those in ``watch`` (n,) need more than the others, and go by themselves.
        """
        count, k = problem.labels.shape
        width, size = problem.head.weight.shape[1], problem.hidden.element_size()
        kind = torch.zeros_like(watch, dtype=torch.int64)  # (n,)
        if self.steps == 1:
            kind += watch
        if self.narrow and problem.narrow is not None:
            kind += NARROWLY * problem.narrow
        kinds = sorted(set(kind.tolist()))
        for some in kinds:
            active = NARROW if some >= NARROWLY else self.active
            # A tail that is sampled takes a product with the whole head, which is read once for all queries.
            together = max(1, count)
            if problem.log_normalizers is not None:
                together = block_size(size * (k * width + active * (width + 3 * k)), count, watch.device)
            if len(kinds) == 1:
                yield from ((slice(start, start + together), active) for start in range(0, count, together))
            else:
                yield from (
                    (rows, active) for rows in torch.split((kind == some).nonzero().squeeze(1), together)
                )

    def walks(
        self, problem: Problem, active: int, index: Tensor, rates: Tensor, watch: Tensor
    ) -> Iterator[Walk]:
        """Yield what a block comes to; M goes through a thin factor for the queries where that costs little.

        Args:
            problem: the queries of the block and their neighbours.
            active: |A|.
            index: (n,) int64, which queries they are.
            rates: (n,) learning rates.
            watch: (n,) bool.
        """
        free = torch.zeros_like(rates)
        if not factor_pays(problem) or not (self.steps > 1 or bool(watch.any())):
            yield self.walk(problem, active, index, rates, watch, None, free)
            return
        factor = thin_factor(problem)
        step_sizes = rates.unsqueeze(1) * problem.weights  # a (n, K)
        cost = missed(problem, factor, step_sizes, step_sizes * problem.query_products, self.steps)  # (n,)
        thin = cost <= min(THIN_SHARE * self.tolerance, THIN_COST)
        if bool(thin.all()):
            yield self.walk(problem, active, index, rates, watch, factor, cost)
        elif not bool(thin.any()):
            yield self.walk(problem, active, index, rates, watch, None, free)
        else:
            yield self.walk(
                problem.rows(thin), active, index[thin], rates[thin], watch[thin], factor[thin], cost[thin]
            )
            rest = ~thin
            yield self.walk(
                problem.rows(rest), active, index[rest], rates[rest], watch[rest], None, free[rest]
            )

    def walk(
        self,
        problem: Problem,
        active: int,
        index: Tensor,
        rates: Tensor,
        watch: Tensor,
        factor: Tensor | None,
        cost: Tensor,
    ) -> Walk:
        """Follow some queries; M through a factor (n, K, r) whose ``cost`` (n,) is known, or whole where it is None."""
        weights = problem.weights
        chosen = leading(problem, active).sort(dim=1).values  # A (n, A)
        tail = Tail.outside(problem.base_probs, chosen)

        logits = logits_of(problem, torch.nn.functional.pad(chosen, (0, 1)))  # Z (n, K, A + 1)
        if problem.log_normalizers is None:
            tails = sampled_tail(problem, chosen, active)
            logits[:, :, -1] = tails.logit
            probs = logits.softmax(2)
        else:
            tails, probs = known_tail(problem, logits, problem.log_normalizers)
            logits[:, :, -1] = tails.logit
        # A masked entry's label may lie outside A; its weight is zero, so any position serves.
        labels = torch.searchsorted(chosen, problem.labels).clamp_max_(active - 1)  # (n, K) positions in A
        step_sizes = rates.unsqueeze(1) * weights  # a (n, K)
        alpha = step_sizes * problem.query_products  # (n, K)
        watched = bool(watch.any())
        mixing: Mixing | None = None
        if self.steps > 1 or watched:
            mixing = (
                WholeMixing.of(problem, step_sizes) if factor is None else ThinMixing.of(factor, step_sizes)
            )
        before = weighted_loss(logits, labels, weights, problem.log_normalizers) if watched else None
        path = follow(
            logits,
            probs,
            labels,
            alpha,
            tails,
            mixing,
            keep=(1 - rates * self.pull).view(-1, 1, 1) if self.pull > 0 else None,
            overlap=tail.overlap,
            steps=self.steps,
            last=watched,
        )
        rises = torch.zeros_like(watch)
        if before is not None:
            rises = watch & rose(before, weighted_loss(path.logits, labels, weights))
        return self._spread(
            problem, path, tail, tails, alpha, mixing if self.steps > 1 else None, chosen, index, rises, cost
        )

    def _spread(
        self,
        problem: Problem,
        path: Path,
        tail: Tail,
        tails: TailLogit,
        alpha: Tensor,
        mixing: Mixing | None,
        chosen: Tensor,
        index: Tensor,
        rises: Tensor,
        cost: Tensor,
    ) -> Walk:
        """Carry what was followed to all classes.

        Args:
            problem: the queries and their neighbours.
            path: what was followed.
            tail: of the queries.
            tails: of the keys.
            alpha: (n, K).
            mixing: M; None after a single step, which no tail has moved before.
            chosen: (n, A).
            index: (n,) which queries.
            rises: (n,) bool, to be passed on.
            cost: (n,) nats a token, of a thin factor.
        """
        inside = problem.base_probs.gather(1, chosen)  # p_x on A (n, A)
        likely = adapted(inside, tail.mass, path.change[:, :-1])  # (n, A)
        drift = (path.drift.abs() * likely).sum(1)  # (n,) nats
        known = SAFETY * (path.doubt.square().sum(1).sqrt() * likely).sum(1) + cost  # (n,) nats
        shares = alpha * path.left  # s_k (n, K)
        error = SHAPES * shares.abs().sum(1) * (tail.mass * tail.overlap).squeeze(1) + drift  # (n,)
        rough = (~(error <= self.tolerance)).nonzero().squeeze(1)  # (r,)
        apart = None
        if rough.numel():
            part, moved = problem.rows(rough), shares[rough]
            probe = Probe.of(part, tail.rows(rough), tails.logit[rough])
            drifted = drift[rough]
            if mixing is not None:
                mix, pushed = mixing.rows(rough), path.left[rough]
                fallen = probe.motion(pushed, mix)
                drifted = drifted * probe.motion_error(moved, pushed, mix, fallen, tail.overlap[rough])
                probe = probe.halfway(fallen)
            apart = Apart(
                index[rough],
                mean_key(part, moved.abs()),  # a neighbour that points away moves mass the other way
                chosen[rough],
                path.change[rough],
                tail.mass[rough],
                probe.classes,
                probe.moved(moved),
                drifted + known[rough],
            )
        delta = tail.probabilities * (path.change[:, -1:] / positive(tail.mass))  # (n, V)
        return Walk(index, delta.scatter_(1, chosen, path.change[:, :-1]), error + known, rises, apart)
