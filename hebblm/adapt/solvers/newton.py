"""MbPA to the optimum of its loss with a pull toward the base head, by Newton steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.normalizers import LOG2_E
from hebblm.adapt.solvers.fast import (
    Followed,
    factored,
    follow,
    narrow,
    neighbor_loss,
    normalised,
    observations,
)
from hebblm.adapt.solvers.problem import Problem, Solution, relative_weights, rose
from hebblm.blocks import side_by_side

SMALL = 1e-9  # a direction of so much less curvature than the first is not followed
DAMPED = 0.5  # what is done of a step that turns back
LEVEL = 1.01  # shares that rise by a smaller factor have their arithmetic mean for the logarithmic one
CLASSES = 2048  # a step takes so many at once, whose directions stay in a processor's caches
DUPLICATES = 0.01  # what keys count as differing by at the least
OWN = 0.25  # curvature taken in each key's own direction: the most that a probability's p (1 - p) can be


@dataclass(frozen=True, slots=True)
class Directions:
    """Orthogonal directions of the keys, in which the curvature ``H^T diag(a) H`` is diagonal.

    Args:
        keys: (n, K, r) U, the coordinates of the keys in r unit directions: ``U^T diag(a) U = diag(lambda)``.
        queries: (n, r) those of the query.
        curvatures: (n, r) lambda; the largest of all directions is 1.
        own: (n, K) e, squared length that the directions leave of each key, or None where all are followed.
        rest: (n, K) what they leave of the products of the keys and the query.
    """

    keys: Tensor
    queries: Tensor
    curvatures: Tensor
    own: Tensor | None
    rest: Tensor


def solve_newton(problem: Problem, *, steps: int, pull: float, exact: bool) -> Solution:
    """Minimise the neighbours' loss with a pull toward the base head (Eq. 5; Sprechmann et al. 2018)::

        sum_k a_k CE(y_k; W h_k + b) + mu / 2 (|dW|^2 + |db|^2),    a_k = w_k / lambda_max

    with ``mu = pull (lambda_2 + lambda_3 + ...)^1/2``, the smaller the more alike a query's neighbours are, see
    :func:`other_curvatures`. The minimum lies in the span of the keys. In the directions i of :class:`Directions` a
    class v has the coordinate theta_iv and the gradient ``sum_k a_k u_ki (p_kv - y_kv) + mu theta_iv``. Each has a step
    of its own::

        theta_iv <- theta_iv - gradient_iv / (lambda_i c_iv + mu)

    Its curvature is c times lambda_i, with c the share of the class among the neighbours, ``sum_k a_k u_ki^2 p_kv /
    lambda_i``: cross-entropy's Hessian ``diag(p) - p p^T`` is at most ``diag(p)``. As the share is on its way to that
    of the labels, c is the mean of both; the logarithmic mean where it rises, with which one step from f to g is
    ``log(g / f)``. A coordinate that turns back went too far, and goes back half of the way.

    Args:
        problem: the queries and their neighbours.
        steps: number S of steps, at least 1; on states of a language model three come near the optimum.
        pull: above 0, in units of the geometric mean of the largest curvature and the sum of all others.
        exact: follow all classes in all directions of the keys, not a few hundred classes in 16 directions and, with a
            curvature of 1/4, each key's own.

    Returns:
        The change of the logits (n, V) in nats, and whether the neighbours' loss rose.
    """
    sizes = relative_weights(problem)
    followed = follow(problem, sizes > 0, whole=exact or narrow(problem))
    along = _all_directions(problem, sizes) if exact else _few_directions(problem, sizes)
    change, rises = _descend(along, sizes, followed, steps, pull * other_curvatures(problem, sizes).sqrt())
    return Solution(followed.spread(change), rises)


def other_curvatures(problem: Problem, sizes: Tensor) -> Tensor:
    """Return the sum of a query's curvatures but the largest, in units of that (n,).

    It is what the keys differ by, ``lambda_2 + lambda_3 + ... = sum_k a_k (|h_k|^2 + 1) - 1``: near 0 for duplicates,
    for which it is 0.01.
    """
    lengths = torch.linalg.vector_norm(problem.keys, dim=2).square_() + problem.one  # (n, K)
    found: Tensor = (sizes * lengths).sum(1) - 1
    return found.clamp_min(DUPLICATES)


def _descend(along: Directions, sizes: Tensor, followed: Followed, steps: int, pulls: Tensor) -> tuple[Tensor, Tensor]:
    """Return the change of the query's logits on the classes followed (n, C), and whether the loss rose (n,)."""
    pull = pulls.view(-1, 1, 1)
    labels, overlap = followed.labels.unsqueeze(2), followed.overlap
    curvatures = along.curvatures.unsqueeze(2)  # lambda (n, r, 1)
    weighted = (along.keys * sizes.unsqueeze(2)).transpose(1, 2)  # U^T diag(a) (n, r, K)
    squares = torch.where(curvatures > 0, weighted * along.keys.transpose(1, 2) / curvatures, 0)
    rows = torch.cat([weighted, squares], 1)  # (n, 2 r, K)
    observed = observations(rows, followed)  # the rows' products with Y (n, 2 r, C)
    wanted = observed.chunk(2, 1)[1]  # (n, r, C)
    base, shares = followed.logits.mul_(LOG2_E), followed.shares  # in bits, as in solve_fast (n, K, C)
    keys, logits = LOG2_E * along.keys, base
    theta, moved = torch.zeros_like(wanted), torch.zeros_like(wanted)  # (n, r, C)
    own = None if along.own is None else along.own.unsqueeze(2)  # (n, K, 1)
    if own is not None:
        # A key's own direction has a coordinate alpha_kv; its step solves a curvature of 1/4 together with the pull.
        alpha = torch.zeros_like(base)
        step_size = sizes.unsqueeze(2) / (OWN * sizes.unsqueeze(2) * own + pull)

    def move(classes: slice) -> None:
        some = (..., classes)
        products = torch.baddbmm(observed[some], scaled, shares[some], alpha=-1)  # rows (Y - P)
        gradients, missing = products.chunk(2, 1)
        share = _mean(wanted[some] - missing, wanted[some])
        to = gradients.addcmul_(theta[some], pull, value=-1).div_(share.mul_(curvatures).add_(pull))
        # Where it turns back it went too far.
        to = torch.where(to * moved[some] < 0, DAMPED * to, to)
        moved[some] = to
        theta[some] += to

    parts = [slice(start, start + CLASSES) for start in range(0, base.shape[2], CLASSES)]
    losses = []
    for step in range(steps):
        scale = normalised(logits, shares, fresh=step > 0)  # (n, K)
        if step in (0, steps - 1):
            losses.append(neighbor_loss(logits, scale, followed.labels, sizes))
        scaled = rows * scale.unsqueeze(1)
        side_by_side(move, parts, base.device)
        if own is not None:
            alpha.mul_(OWN * step_size * own).addcmul_(step_size * scale.unsqueeze(2), shares, value=-1)
            alpha.scatter_add_(2, labels, step_size)
        if step + 1 < steps:
            logits = torch.baddbmm(base, keys, theta)
            logits[:, :, -1] = base[:, :, -1] + (keys @ (overlap * theta[:, :, -1]).unsqueeze(2)).squeeze(2)
            if own is not None:
                logits.addcmul_(LOG2_E * own, alpha)
                logits[:, :, -1] -= (1 - overlap) * LOG2_E * own.squeeze(2) * alpha[:, :, -1]
    change = torch.bmm(along.queries.unsqueeze(1), theta)
    if own is not None:
        change.baddbmm_(along.rest.unsqueeze(1), alpha)
    return change.squeeze(1), rose(losses[0], losses[-1])


def _mean(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the logarithmic mean of two shares where the first is on its way up, else the arithmetic one."""
    # One that falls counts as level: no logarithm of zero, which takes many times as long.
    ratio = (wanted / found.clamp_min(torch.finfo(found.dtype).tiny)).clamp_min_(LEVEL)
    rises = ratio > LEVEL
    return torch.where(rises, (wanted - found).div_(ratio.log_()), torch.lerp(found, wanted, 0.5))


def _all_directions(problem: Problem, sizes: Tensor) -> Directions:
    """Return every direction of the keys, from the eigenvectors of ``A^1/2 (H H^T + 1) A^1/2``, A = diag(a)."""
    gram = problem.keys @ problem.keys.transpose(1, 2) + problem.one  # (n, K, K)
    roots = sizes.sqrt()
    values, vectors = torch.linalg.eigh(roots.unsqueeze(2) * gram * roots.unsqueeze(1))
    values = torch.where(values > SMALL, values, 0)
    inverse = torch.where(values > 0, values.rsqrt(), 0)
    mixing = roots.unsqueeze(2) * vectors * inverse.unsqueeze(1)  # a direction is a sum of keys (n, K, r)
    products = (problem.products + problem.one).unsqueeze(1)  # (n, 1, K)
    return Directions(gram @ mixing, (products @ mixing).squeeze(1), values, None, torch.zeros_like(sizes))


def _few_directions(problem: Problem, sizes: Tensor) -> Directions:
    """Return the directions in which a few keys lie after one round of subspace iteration."""
    keys, query, own = factored(problem)
    values, vectors = torch.linalg.eigh((keys * sizes.unsqueeze(2)).transpose(1, 2) @ keys)
    values = torch.where(values > SMALL, values, 0)
    rest = problem.products + problem.one - torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
    return Directions(keys @ vectors, torch.bmm(query.unsqueeze(1), vectors).squeeze(1), values, own, rest)
