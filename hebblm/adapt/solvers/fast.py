"""Plain gradient descent on the head, followed on a few hundred classes; the others keep their
shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from hebblm.adapt.functional.changes import CompactChange
from hebblm.adapt.functional.grouping import distinct, group_ids
from hebblm.adapt.functional.normalizers import LOG2_E
from hebblm.adapt.solvers.problem import Descent, Problem, Solution, loss_increased

SPARE = 64  # probable classes followed beside the labels of the neighbours
STEP = 32  # numbers of classes differ by so much, so that queries of one number are many
SAMPLED = 128  # classes that a key's normaliser is estimated from where it is not known
RANK = 16  # directions of the keys that move each other together
RIDGE = 1e-5  # of a direction's length, tells apart directions that depend on each other
TAIL = 1e-6  # a tail that holds less is not told from none
FAR = 1e12  # a sum of exponentials may grow or shrink so far before the largest is taken off


def active_sizes(groups: Tensor, present: Tensor) -> Tensor:
    """Return the number |A| of classes that each query follows (n,) int64: its different labels and
    some others.

    With the tail's place they are a multiple of 32. A query's number depends only on its own
    neighbours: the ``groups`` (n, K) int64 of their labels, for entries ``present`` (n, K) bool.
    """
    return (distinct(groups, present) + SPARE).floor_divide(STEP).add(1).mul(STEP).sub(1)


def narrow(problem: Problem) -> bool:
    """Return whether a vocabulary is small enough to follow whole: less than two of the largest
    active sets.
    """
    return problem.head.weight.shape[0] < 2 * (problem.labels.shape[1] + SPARE + STEP)


def choose(base_logits: Tensor, labels: Tensor, present: Tensor, size: int) -> Tensor:
    """Return the classes to follow (n, size) int64 in ascending order: all labels present, then the
    base's top classes.

    The choice does not use the target, so a score cannot depend on its answer.
    """
    # (n, K) infinite logits lift the labels above all; an entry that is not real must not pull its
    # label in.
    wanted = torch.where(present, torch.inf, -torch.inf).to(base_logits.dtype)
    boosted = base_logits.scatter_reduce(1, labels, wanted, "amax")
    return boosted.topk(size, dim=1, sorted=False).indices.sort(dim=1).values


@dataclass(frozen=True, slots=True)
class QueryTail:
    """What the queries' own distributions p hold on the followed classes and outside of them."""

    normalizer: Tensor  # (n,) logsumexp of their logits
    log_p: Tensor  # (n, C - 1) log p of the followed classes
    mass: Tensor  # (n,) t, outside
    taken: Tensor  # (n,) what t is taken for: at least TAIL
    moments: Tensor  # (n, 3) sums of q^2, q^3 and q^4, with q = p / t outside
    largest: Tensor  # (n,) the largest q


@dataclass(frozen=True, slots=True)
class Followed:
    """The followed classes of some queries, and their probabilities at the keys."""

    labels: Tensor  # (n, K) int64 places of the neighbours' labels among the classes
    # (n, K, C) log-probabilities at the keys in nats; the last of the C places is the tail, if any
    logits: Tensor
    probabilities: Tensor  # (n, K, C) their exponentials
    # (n, C - 1) int64 the active set; None where all classes are followed and no tail is left
    classes: Tensor | None
    shape: Tensor  # (n, V) of the query's own tail, q, zero on the active set; empty without a tail
    # (n, 1) sum_v q_v^2, 1 without a tail: the mean of the tail's classes moves by so much of what
    # its mass would do to a single class.
    overlap: Tensor
    tail: QueryTail | None = None  # of the queries; None where all classes are followed

    def change_of(self, problem: Problem, change: Tensor) -> Tensor | CompactChange:
        """Return the change of all logits, given that of the followed places (n, C)."""
        if self.classes is None or self.tail is None:
            return change
        tail = self.tail
        return CompactChange(
            problem.base_logits, tail.normalizer, self.classes, tail.log_p, change[:, :-1],
            change[:, -1], tail.taken, tail.mass, tail.moments, tail.largest,
        )  # fmt: skip


def follow(problem: Problem, present: Tensor, *, whole: bool = False) -> Followed:
    """Choose the classes to follow: an active set A and a tail or, with ``whole``, all; ``present``
    (n, K) are real.

    A key's probability on A is ``exp(Z_k - lse_k)`` with its stored log-normaliser, or an estimate
    of it; the tail holds the rest of 1.
    """
    if whole:
        logits = problem.head.logits(problem.keys).log_softmax(2)
        ones = torch.ones_like(problem.weights[:, :1])
        return Followed(problem.labels, logits, logits.exp(), None, ones[:, :0], ones)
    size = int(active_sizes(group_ids(problem.labels), present).max())
    chosen = choose(problem.base_logits, problem.labels, present, size)  # A (n, A)
    shape, tail = _tail(problem, chosen)
    # A label without an entry may lie outside A; it weighs nothing, so any place serves.
    # (n, K) places in A
    labels = torch.searchsorted(chosen, problem.labels).clamp_max_(chosen.shape[1] - 1)
    # Z - lse, the tail's place last (n, K, A + 1)
    logits = _log_probabilities(problem, chosen, shape)
    probabilities = logits.exp()
    probabilities[:, :, -1] = (1 - probabilities.sum(2)).clamp_min_(torch.finfo(logits.dtype).tiny)
    logits[:, :, -1] = probabilities[:, :, -1].log()
    return Followed(labels, logits, probabilities, chosen, shape, tail.moments[:, :1], tail)


def _tail(problem: Problem, chosen: Tensor) -> tuple[Tensor, QueryTail]:
    """Return q (n, V), the shape of each query's distribution outside the followed classes (n, A),
    and the sums that a loss needs of it.
    """
    normalizer = problem.normalizers
    if normalizer is None:
        normalizer = problem.base_logits.logsumexp(1)
    log_p = problem.base_logits.gather(1, chosen) - normalizer.unsqueeze(1)  # (n, A)
    shape = (problem.base_logits - normalizer.unsqueeze(1)).exp_()  # p_x (n, V)
    shape.scatter_(1, chosen, 0.0)
    mass = shape.sum(1)  # (n,)
    taken = mass.clamp_min(TAIL)
    shape.div_(taken.unsqueeze(1))  # q (n, V)
    squares = shape * shape
    moments = torch.stack(
        [
            squares.sum(1),
            torch.linalg.vecdot(squares, shape),
            torch.linalg.vecdot(squares, squares),
        ],
        1,
    )
    return shape, QueryTail(normalizer, log_p, mass, taken, moments, shape.amax(1))


def solve_fast(problem: Problem, descent: Descent) -> Solution:
    """Follow S steps of descent on an active set A of classes; an approximation of ``solve_exact``.

    The tail moves like the mean of its classes: by ``sum_v q_v^2`` times the change of a single
    class with its residual, where q is the shape of the query's own tail. For v outside A the
    change is ``-(sum_k s_k) q_v``, with s_k the tail mass of neighbour k times alpha_k, summed over
    the steps. ``H H^T + 1`` is approximated by ``U U^T + diag(e)``: a few directions that the keys
    share, and the rest of each key's own length.
    """
    followed = follow(problem, descent.sizes > 0)
    change, rises = _descend(problem, descent, followed)
    return Solution(followed.change_of(problem, change), rises)


def _descend(problem: Problem, descent: Descent, followed: Followed) -> tuple[Tensor, Tensor]:
    """Return the change on A and, as minus the mass moved, of the tail (n, A + 1), and whether the
    loss rose (n,).
    """
    sizes, steps, last_step = descent.sizes, descent.steps, descent.steps + descent.finish
    labels, logits, probabilities = followed.labels, followed.logits, followed.probabilities
    # what a key's residual does to the query (n, K)
    alpha = sizes * (problem.products + problem.one)
    if last_step == 1:  # one step needs the residuals at the base head alone: no key has moved yet
        drawn = torch.bmm(alpha.unsqueeze(1), probabilities).squeeze(1)  # (n, A + 1)
        return drawn.neg_().scatter_add_(1, labels, alpha), torch.zeros_like(
            sizes[:, 0], dtype=torch.bool
        )
    factor, _, leftover = factored(problem)  # U (n, K, r), e (n, K)
    leftover = (LOG2_E * leftover * sizes).unsqueeze(2)  # (n, K, 1)
    # What a step multiplies with R = Y - P: alpha, which gives the change, and U^T diag(a).
    # (n, 1 + r, K)
    rows = torch.cat([alpha.unsqueeze(1), (factor * sizes.unsqueeze(2)).transpose(1, 2)], 1)
    observed = observations(rows, followed)  # the rows' products with Y (n, 1 + r, A + 1)
    # From here on logits count in bits: 2^x takes a third of the time of e^x.
    logits.mul_(LOG2_E)
    factor = LOG2_E * factor
    # Without a pull nobody reads the base's logits again, and they are written over.
    pulled = bool((descent.keep != 1).any())
    base, shrink = logits.clone() if pulled else logits, descent.keep.view(-1, 1, 1)
    change = torch.zeros_like(observed[:, 0])  # (n, A + 1)
    first = last = torch.zeros_like(sizes[:, 0])
    for step in range(last_step):
        scale = normalised(logits, probabilities, fresh=step > 0)  # (n, K)
        if step in (0, last_step - 1):
            last = neighbor_loss(logits, scale, labels, sizes)
            first = first if step else last
        if step == steps:  # one more softmax, which was for the loss alone
            break
        # rows R (n, 1 + r, A + 1)
        products = torch.baddbmm(observed, rows * scale.unsqueeze(1), probabilities, alpha=-1)
        change.mul_(descent.keep.unsqueeze(1)).add_(products[:, 0])
        if step + 1 < last_step:
            if pulled:
                logits.sub_(base).mul_(shrink).add_(base)
            # The tail's classes share what moves it: by their mean each moves by sum_v q_v^2 of
            # that.
            products[:, 1:, -1] *= followed.overlap
            probabilities[:, :, -1] *= followed.overlap
            logits.baddbmm_(factor, products[:, 1:])
            # What the directions leave of a key moves that key alone: minus its probabilities, plus
            # its label.
            logits.addcmul_(leftover * scale.unsqueeze(2), probabilities, value=-1).scatter_add_(
                2, labels.unsqueeze(2), leftover
            )
    return change, loss_increased(first, last)


def observations(rows: Tensor, followed: Followed) -> Tensor:
    """Return products (n, m, C) of some rows (n, m, K) with the neighbours' labels Y, without
    one-hot vectors.
    """
    sums = rows.new_zeros(*rows.shape[:2], followed.logits.shape[2])
    return sums.scatter_add_(2, followed.labels.unsqueeze(1).expand_as(rows), rows)


def normalised(logits: Tensor, probabilities: Tensor, *, fresh: bool) -> Tensor:
    """Return 1 over the keys' normalisers (n, K); ``fresh`` overwrites shares (n, K, C) with 2 to
    the logits (bits).
    """
    if fresh:
        torch.exp2(logits, out=probabilities)
    scale = probabilities.sum(2).reciprocal_()
    # Without the maximum that a softmax takes off, a step saves two passes. Queries that went too
    # far lose theirs, and those alone: no query's rounding depends on another.
    far = ~((scale > 1 / FAR) & (scale < FAR)).all(1)  # (n,)
    if bool(far.any()):
        logits.sub_(torch.where(far.view(-1, 1, 1), logits.amax(2, keepdim=True), 0))
        scale = torch.exp2(logits, out=probabilities).sum(2).reciprocal_()
    return scale


def _log_probabilities(problem: Problem, chosen: Tensor, shape: Tensor) -> Tensor:
    """``log p_k(v) = W_v h_k + b_v - lse_k`` (n, K, A + 1) on the classes followed, and a place for
    the tail.
    """
    # the last column is only a place
    logits = _logits_on(problem, torch.nn.functional.pad(chosen, (0, 1)))
    known = problem.log_normalizers
    if known is None:
        known = _estimated_normalizers(problem, logits[:, :, :-1], shape)
    logits.sub_(known.to(logits.dtype).unsqueeze(2))
    logits[:, :, -1] = -torch.inf
    return logits


def _logits_on(problem: Problem, classes: Tensor) -> Tensor:
    """The keys' logits ``W_v h_k + b_v`` (n, K, m) on some classes of each query, (n, m) int64."""
    weight, bias = problem.head.weight, problem.head.bias
    # (n, D, m)
    rows = weight.index_select(0, classes.flatten()).view(*classes.shape, -1).transpose(1, 2)
    offset = rows.new_zeros(()) if bias is None else bias[classes].unsqueeze(1)
    return problem.head.capped(torch.baddbmm(offset, problem.keys, rows))


def _estimated_normalizers(problem: Problem, logits: Tensor, shape: Tensor) -> Tensor:
    """Estimate the keys' log-normalisers (n, K): exact on A (logits n, K, A), by importance
    sampling on the tail.

    With classes v_1 .. v_M drawn from the query's own tail q, ``sum_{v not in A} exp Z_kv`` is near
    the mean over them of ``exp(Z_kv) / q_v``, which varies little because keys are near the query.
    They lie at the M midpoints of q's cumulative distribution: a systematic sample, always the same
    for the same query.
    """
    cumulative = shape.cumsum(1)  # (n, V)
    total = cumulative[:, -1:]  # 1, or less for a query with next to no tail
    # (M,)
    middles = (torch.arange(SAMPLED, dtype=shape.dtype, device=shape.device) + 0.5) / SAMPLED
    drawn = torch.searchsorted(cumulative, total * middles).clamp_max_(shape.shape[1] - 1)  # (n, M)
    probabilities = shape.gather(1, drawn).unsqueeze(1)  # q_v (n, 1, M)
    # (n, K, M)
    ratios = (_logits_on(problem, drawn) - probabilities.log()).masked_fill_(
        probabilities == 0, -torch.inf
    )
    tail = ratios.logsumexp(2) + (total / SAMPLED).log()  # (n, K)
    return torch.logaddexp(logits.logsumexp(2), tail)


@lru_cache(maxsize=16)
def start_directions(width: int) -> Tensor:
    """Return the directions (16, D) of 1 and -1 that subspace iteration starts from: random, and
    always the same.

    Started from some of the keys, a solution would depend on which of two equally near neighbours
    comes first.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (RANK, width), generator=generator).mul_(2).sub_(1).float()


def factored(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (n, K, r), u (n, r) and e (n, K): ``U U^T + diag(e)`` is near ``H H^T + 1``, and
    equal on the diagonal.

    U and u hold the keys and the query on the span of random directions after one round of subspace
    iteration (Halko et al. 2011), and the bias's share: ``U = H (L^-1 X)^T`` with ``X X^T = L
    L^T``.
    """
    keys = problem.keys
    start = start_directions(keys.shape[2])[: keys.shape[1]].to(keys)  # (r, D)
    # One round: what all keys see of the directions that we start from, and from there back to D
    # numbers.
    # (n, r, K)
    main = torch.matmul(start, keys.transpose(1, 2)) * problem.weights.unsqueeze(1)
    tiny = torch.finfo(main.dtype).tiny
    main = main / main.abs().amax(2, keepdim=True).clamp_min(tiny)
    main = torch.nn.functional.normalize(torch.bmm(main, keys), dim=2, eps=tiny)  # X (n, r, D)
    # Unit directions L^-1 X, which X need not be: its rows are nearly parallel, as the keys are. In
    # float32 the rounding of X X^T would be of the size of the least directions, and grow there to
    # hundredths of a nat. (n, r, D)
    exact = main.double()
    gram = torch.bmm(exact, exact.transpose(1, 2))
    gram.diagonal(dim1=1, dim2=2).add_(RIDGE)  # keeps L regular where two are alike
    lower = torch.linalg.cholesky_ex(gram).L
    unit = torch.linalg.solve_triangular(lower, exact, upper=False).to(keys.dtype).transpose(1, 2)
    factor = torch.cat(
        [torch.bmm(keys, unit), torch.bmm(problem.hidden.unsqueeze(1), unit)], 1
    )  # (n, K + 1, r)
    lengths = torch.linalg.vector_norm(keys, dim=2).square_()  # (n, K)
    # What rounding may take below 0.
    leftover = (lengths - factor[:, :-1].square().sum(2)).clamp_min_(0)
    if problem.one:
        factor = torch.cat([factor, factor.new_ones(*factor.shape[:2], 1)], 2)
    return factor[:, :-1], factor[:, -1], leftover


def neighbor_loss(logits: Tensor, scale: Tensor, labels: Tensor, sizes: Tensor) -> Tensor:
    """``-sum_k a_k log p_k(y_k)`` (n,) in nats, of logits (n, K, A) in bits and one over their
    normaliser (n, K).
    """
    taken = logits.gather(2, labels.unsqueeze(2)).squeeze(2) / LOG2_E + scale.log()
    return -torch.where(sizes > 0, sizes * taken, 0).sum(1)
