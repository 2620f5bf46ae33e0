"""Gradient descent on the head followed on a few hundred classes; the rest keeps its shape."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from hebblm.adapt.functional.mixing import (
    Mixing,
    ThinMixing,
    WholeMixing,
    factor_pays,
    missed,
    thin_factor,
)
from hebblm.adapt.functional.path import Path, follow
from hebblm.adapt.functional.problem import Problem, Solution, rose, weighted_loss
from hebblm.adapt.functional.tail import (
    SAFETY,
    Probe,
    Tail,
    TailLogit,
    known_tail,
    logits_of,
    sampled_tail,
    shape_at_mean,
)
from hebblm.adapt.functional.widths import SHAPES, leading

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
    the error is measured at some classes of the tail (:class:`~hebblm.adapt.functional.tail.Probe`). Without stored
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

    Returns:
        The change of the logits, the rise flags (False outside ``watch``), and the error to be expected.
    """
    walk = partial(_solve, steps=steps, pull=pull, active=active, tolerance=tolerance)
    if not factor_pays(problem) or not (steps > 1 or bool(watch.any())):
        return walk(problem, rates, watch, None)
    factor = thin_factor(problem)
    step_sizes = rates.unsqueeze(1) * problem.weights  # a (n, K)
    cost = missed(problem, factor, step_sizes, step_sizes * problem.query_products, steps)  # (n,)
    thin = cost <= min(THIN_SHARE * tolerance, THIN_COST)
    if bool(thin.all()):
        found = walk(problem, rates, watch, factor)
        return Solution(found.delta, found.rose, found.error + cost, rates)
    if not bool(thin.any()):
        return walk(problem, rates, watch, None)
    delta, rises, error = torch.zeros_like(problem.base_logits), torch.zeros_like(watch), cost
    for some, kept in ((thin.nonzero().squeeze(1), factor[thin]), ((~thin).nonzero().squeeze(1), None)):
        found = walk(problem.rows(some), rates[some], watch[some], kept)
        delta[some], rises[some] = found.delta, found.rose
        error[some] = found.error if kept is None else found.error + cost[some]
    return Solution(delta, rises, error, rates)


def _solve(
    problem: Problem,
    rates: Tensor,
    watch: Tensor,
    factor: Tensor | None,
    *,
    steps: int,
    pull: float,
    active: int,
    tolerance: float,
) -> Solution:
    """Return what :func:`solve_active` returns; M through a factor (n, K, r), or whole where it is None."""
    weights = problem.weights
    chosen = leading(problem, active).sort(dim=1).values  # A (n, A)
    inside = problem.base_probs.gather(1, chosen)  # p_x on A (n, A)
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
    if steps > 1 or watched:
        mixing = WholeMixing.of(problem, step_sizes) if factor is None else ThinMixing.of(factor, step_sizes)
    before = weighted_loss(logits, labels, weights, problem.log_normalizers) if watched else None
    path = follow(
        logits,
        probs,
        labels,
        alpha,
        tails,
        mixing,
        keep=(1 - rates * pull).view(-1, 1, 1) if pull > 0 else None,
        overlap=tail.overlap,
        steps=steps,
        last=watched,
    )
    delta, error = _spread(problem, path, tail, tails, alpha, mixing, chosen, inside, tolerance)
    rises = torch.zeros_like(watch)
    if before is not None:
        rises = watch & rose(before, weighted_loss(path.logits, labels, weights))
    return Solution(delta, rises, error, rates)


def _spread(
    problem: Problem,
    path: Path,
    tail: Tail,
    tails: TailLogit,
    alpha: Tensor,
    mixing: Mixing | None,
    chosen: Tensor,
    inside: Tensor,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Return the change on all classes (n, V), and its error (n,) in nats a token.

    Args:
        problem: the queries and their neighbours.
        path: what was followed.
        tail: of the queries.
        tails: of the keys.
        alpha: (n, K).
        mixing: M, None after a single step.
        chosen: (n, A).
        inside: (n, A) base probabilities of the queries on A.
        tolerance: below which an error need not be known better.
    """
    likely = _adapted(inside, tail.mass, path.change[:, :-1])  # (n, A)
    doubt = (path.doubt.square().sum(1).sqrt() * likely).sum(1)  # (n,) nats
    drift = (path.drift.abs() * likely).sum(1)  # (n,) nats
    shares = alpha * path.left  # s_k (n, K)
    outside = path.change[:, -1:] / tail.mass.clamp_min(torch.finfo(tail.mass.dtype).tiny)  # (n, 1)
    delta = tail.probabilities * outside  # (n, V)
    error = SHAPES * shares.abs().sum(1) * (tail.mass * tail.overlap).squeeze(1) + drift  # (n,)
    doubtful = (~(error <= tolerance)).nonzero().squeeze(1)  # (r,)
    if doubtful.numel():
        rough = slice(None) if doubtful.numel() == error.numel() else doubtful  # a slice copies no keys
        part, moved = problem.rows(rough), shares[rough]
        delta[rough] = shape_at_mean(part, moved, chosen[rough]).mul_(path.change[rough, -1:])
        probe = Probe.of(part, tail.rows(rough), tails.logit[rough])
        if mixing is not None:
            mix, pushed = mixing.rows(rough), path.left[rough]
            fallen = probe.motion(pushed, mix)
            drift[rough] *= probe.motion_error(moved, pushed, mix, fallen, tail.overlap[rough])
            probe = probe.halfway(fallen)
        error[rough] = drift[rough] + probe.shape_error(moved, delta[rough], tail.mass[rough])
    return delta.scatter_(1, chosen, path.change[:, :-1]), error + SAFETY * doubt


def _adapted(inside: Tensor, mass: Tensor, change: Tensor) -> Tensor:
    """Return the adapted probabilities (n, A) of base probabilities (n, A); the tail (n, 1) keeps its mass."""
    grown = inside.log() + change
    whole = torch.logaddexp(grown.logsumexp(1, keepdim=True), mass.log())
    return (grown - whole).exp()
