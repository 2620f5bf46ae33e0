"""MbPA to the optimum of its loss with a pull toward the base head, by Newton steps.

Shapes: n queries, each with K keys of D numbers; r directions that the keys span; C places, which
are the followed classes and, last, a tail for all others. V is the vocabulary.
"""

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
from hebblm.adapt.solvers.problem import Problem, Solution, loss_increased, relative_weights
from hebblm.runtime.blocks import in_parallel

SMALL = 1e-9  # a direction of so much less curvature than the first is not followed
DAMPED = 0.5  # what is done of a step that turns back
# shares that rise by a smaller factor have their arithmetic mean for the logarithmic one
LEVEL = 1.01
CLASSES = 2048  # a step takes so many at once, whose directions stay in a processor's caches
DUPLICATES = 0.01  # what keys count as differing by at the least
# curvature taken in each key's own direction: the most that a probability's p (1 - p) can be
OWN = 0.25


@dataclass(frozen=True, slots=True)
class Directions:
    """Orthogonal directions of the keys, in which the curvature ``H^T diag(a) H`` is diagonal."""

    # (n, K, r) U, coordinates of the keys in r unit directions: U^T diag(a) U = diag(lambda)
    keys: Tensor
    queries: Tensor  # (n, r) those of the query
    curvatures: Tensor  # (n, r) lambda; the largest of all directions is 1
    # (n, K) e, squared length that the directions leave of each key; None where all are followed
    leftover: Tensor | None
    rest: Tensor  # (n, K) what they leave of the products of the keys and the query


def solve_newton(problem: Problem, *, steps: int, l2_to_base: float, exact: bool) -> Solution:
    """Minimise the neighbours' loss with a pull toward the base head (Eq. 5; Sprechmann et al.
    2018)::

        sum_k a_k CE(y_k; W h_k + b) + mu / 2 (|dW|^2 + |db|^2),    a_k = w_k / lambda_max

    with ``mu = l2_to_base (lambda_2 + lambda_3 + ...)^1/2``, the smaller the more alike a query's
    neighbours are. The minimum lies in the span of the keys. In the directions i of
    :class:`Directions` a class v has the coordinate theta_iv and the gradient ``sum_k a_k u_ki
    (p_kv - y_kv) + mu theta_iv``. Each coordinate has its own step::

        theta_iv <- theta_iv - gradient_iv / (lambda_i c_iv + mu)

    Its curvature is c times lambda_i, with c the share of the class among the neighbours, ``sum_k
    a_k u_ki^2 p_kv / lambda_i``: cross-entropy's Hessian ``diag(p) - p p^T`` is at most
    ``diag(p)``. As the share moves to that of the labels during the step, c is a mean of both, see
    :func:`_mean`.

    Three of the ``steps`` >= 1 come near the optimum on states of a language model; ``l2_to_base``
    > 0 is in units of the geometric mean of the largest curvature and the sum of all others.
    ``exact`` follows all classes in all directions of the keys; without it, a few hundred classes
    in 16 directions and each key's own direction.
    """
    # a (n, K): the largest curvature is 1, so that pull has no unit of the model's
    sizes = relative_weights(problem)
    # Which classes move. Nothing here knows the target, so that a score cannot depend on its
    # answer.
    followed = follow(problem, sizes > 0, whole=exact or narrow(problem))
    # A change of the head outside the keys' span costs pull and gains nothing, so coordinates in
    # the span are enough.
    along = _all_directions(problem, sizes) if exact else _few_directions(problem, sizes)
    # The more alike the neighbours are, the less there is to tell them apart by, and the smaller mu
    # is.
    change, rises = _descend(
        along, sizes, followed, steps, l2_to_base * _other_curvatures(problem, sizes).sqrt()
    )
    return Solution(followed.change_of(problem, change), rises)


def _other_curvatures(problem: Problem, sizes: Tensor) -> Tensor:
    """Return the sum of a query's curvatures without the largest, in units of that (n,): how much
    the keys differ.
    """
    # |h_k|^2 + 1 (n, K)
    lengths = torch.linalg.vector_norm(problem.keys, dim=2).square_() + problem.one
    trace: Tensor = (sizes * lengths).sum(1)  # lambda_1 + lambda_2 + ..., and lambda_1 = 1
    # duplicates leave rounding alone, which may be below 0
    return (trace - 1).clamp_min(DUPLICATES)


def _descend(
    along: Directions, sizes: Tensor, followed: Followed, steps: int, pulls: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the change of the query's logits on the followed places (n, C) in nats, and whether
    the loss rose (n,).
    """
    l2_to_base = pulls.view(-1, 1, 1)  # mu (n, 1, 1)
    labels, overlap = followed.labels.unsqueeze(2), followed.overlap
    curvatures = along.curvatures.unsqueeze(2)  # lambda (n, r, 1)
    # Gradients and curvatures are both sums over the keys of p times a number a key and direction.
    # Both come from one product of (n, 2 r, K) with the probabilities (n, K, C), the most costly
    # operation of a step.
    weighted = (along.keys * sizes.unsqueeze(2)).transpose(1, 2)  # a_k u_ki: U^T diag(a) (n, r, K)
    # a_k u_ki^2 / lambda
    squares = torch.where(curvatures > 0, weighted * along.keys.transpose(1, 2) / curvatures, 0)
    rows = torch.cat([weighted, squares], 1)  # (n, 2 r, K)
    observed = observations(rows, followed)  # what the labels give to both sums: rows Y (n, 2 r, C)
    # share of each class among the labels (n, r, C): where its p is going
    wanted = observed.chunk(2, 1)[1].clone()
    # The share now is summed by itself. Taken as a difference to the wanted share, a share smaller
    # than its rounding would be lost, and its logarithm with it.
    observed.chunk(2, 1)[1].zero_()
    # in bits: 2^x takes a third of the time (n, K, C)
    base, probabilities = followed.logits.mul_(LOG2_E), followed.probabilities
    keys, logits = LOG2_E * along.keys, base
    # coordinates and their last steps (n, r, C)
    theta, moved = torch.zeros_like(wanted), torch.zeros_like(wanted)
    leftover = None if along.leftover is None else along.leftover.unsqueeze(2)  # (n, K, 1)
    if leftover is not None:
        # The part of a key outside the 16 directions moves that key alone: one more coordinate
        # alpha_kv for each. Its step solves a curvature of 1/4, the largest possible, together with
        # the pull.
        alpha = torch.zeros_like(base)  # (n, K, C)
        step_size = sizes.unsqueeze(2) / (
            OWN * sizes.unsqueeze(2) * leftover + l2_to_base
        )  # (n, K, 1)

    def move(classes: slice) -> None:
        """One Newton step of some classes in all directions."""
        at = (..., classes)
        # rows (Y - P), and for shares rows (-P) (n, 2 r, c)
        products = torch.baddbmm(observed[at], scaled, probabilities[at], alpha=-1)
        # minus the gradient of the loss; minus the share now
        gradients, minus_now = products.chunk(2, 1)
        share = _mean(minus_now.neg_(), wanted[at])
        step = gradients.addcmul_(theta[at], l2_to_base, value=-1).div_(
            share.mul_(curvatures).add_(l2_to_base)
        )
        # A coordinate that turns back went too far, and goes half of the way back.
        step = torch.where(step * moved[at] < 0, DAMPED * step, step)
        moved[at] = step
        theta[at] += step

    parts = [slice(start, start + CLASSES) for start in range(0, base.shape[2], CLASSES)]
    losses = []
    for number in range(steps):
        # 1 / sum_v 2^logits (n, K); P = scale * shares
        scale = normalised(logits, probabilities, fresh=number > 0)
        if number in (0, steps - 1):  # the first and the last known loss say whether it rose
            losses.append(neighbor_loss(logits, scale, followed.labels, sizes))
        # normalising the rows takes less than normalising the shares (n, 2 r, K)
        scaled = rows * scale.unsqueeze(1)
        in_parallel(move, parts, base.device)
        if leftover is not None:  # alpha <- alpha + (a (y - p) - mu alpha) / (a e / 4 + mu)
            alpha.mul_(OWN * step_size * leftover).addcmul_(
                step_size * scale.unsqueeze(2), probabilities, value=-1
            )
            alpha.scatter_add_(2, labels, step_size)
        # the keys' logits under the new head; not needed after the last step
        if number + 1 < steps:
            logits = torch.baddbmm(base, keys, theta)  # U theta (n, K, C)
            # The tail moves like the mean of its classes: by overlap = sum_v q_v^2 times the move
            # of one class.
            logits[:, :, -1] = base[:, :, -1] + (
                keys @ (overlap * theta[:, :, -1]).unsqueeze(2)
            ).squeeze(2)
            if leftover is not None:
                logits.addcmul_(LOG2_E * leftover, alpha)
                logits[:, :, -1] -= (1 - overlap) * LOG2_E * leftover.squeeze(2) * alpha[:, :, -1]
    # u theta: the query's change under the new head (n, 1, C)
    change = torch.bmm(along.queries.unsqueeze(1), theta)
    if leftover is not None:
        change.baddbmm_(along.rest.unsqueeze(1), alpha)
    return change.squeeze(1), loss_increased(losses[0], losses[-1])


def _mean(now: Tensor, wanted: Tensor) -> Tensor:
    """Return the logarithmic mean of two shares if the first is the smaller one, else the
    arithmetic mean.

    With the logarithmic mean a single step from f to g is ``log(g / f)``, the needed rise of the
    logit.
    """
    # A share that falls counts as level: no logarithm of zero, which takes many times as long.
    ratio = (wanted / now.clamp_min(torch.finfo(now.dtype).tiny)).clamp_min_(LEVEL)
    rises = ratio > LEVEL
    return torch.where(rises, (wanted - now).div_(ratio.log_()), torch.lerp(now, wanted, 0.5))


def _all_directions(problem: Problem, sizes: Tensor) -> Directions:
    """Every direction of the keys, from the eigenvectors of ``A^1/2 (H H^T + 1) A^1/2``, A =
    diag(a).
    """
    gram = problem.keys @ problem.keys.transpose(1, 2) + problem.one  # (n, K, K)
    roots = sizes.sqrt()
    # K by K has the same eigenvalues other than 0 as the curvature H^T diag(a) H, D by D.
    values, vectors = torch.linalg.eigh(roots.unsqueeze(2) * gram * roots.unsqueeze(1))
    values = torch.where(values > SMALL, values, 0)
    # makes directions of unit length; 0 drops one
    inverse = torch.where(values > 0, values.rsqrt(), 0)
    # a direction is a sum of keys (n, K, r)
    mixing = roots.unsqueeze(2) * vectors * inverse.unsqueeze(1)
    products = (problem.products + problem.one).unsqueeze(1)  # (n, 1, K)
    return Directions(
        gram @ mixing, (products @ mixing).squeeze(1), values, None, torch.zeros_like(sizes)
    )


def _few_directions(problem: Problem, sizes: Tensor) -> Directions:
    """Return the directions of a few keys after one round of subspace iteration, and the rest of
    each key.
    """
    # (n, K, r), (n, r), (n, K): H H^T + 1 is near U U^T + diag(e)
    keys, query, leftover = factored(problem)
    # Turned so that the curvature is diagonal: every coordinate can then have its own step.
    # r by r
    values, vectors = torch.linalg.eigh((keys * sizes.unsqueeze(2)).transpose(1, 2) @ keys)
    values = torch.where(values > SMALL, values, 0)
    rest = problem.products + problem.one - torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
    return Directions(
        keys @ vectors, torch.bmm(query.unsqueeze(1), vectors).squeeze(1), values, leftover, rest
    )
