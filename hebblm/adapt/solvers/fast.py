"""Plain gradient descent on the head, followed on a few hundred classes; the others keep their shape."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.functional.normalizers import LOG2_E
from hebblm.adapt.solvers.problem import Descent, Problem, Solution, rose

ACTIVE = 255  # classes followed
SAMPLED = 256  # classes that a key's normaliser is estimated from where it is not known
SPARE = 32  # probable classes beside the labels, however many these are
RANK = 16  # directions of the keys that move each other together
RIDGE = 1e-5  # of a direction's length, tells apart directions that depend on each other
TAIL = 1e-6  # a tail that holds less is not told from none
FAR = 1e12  # a sum of exponentials may grow or shrink so far before the largest is taken off


def active_size(k: int) -> int:
    """Return the number |A| of classes to follow: room for the labels of K neighbours and some others."""
    return max(ACTIVE, k + SPARE)


def choose(base_logits: Tensor, labels: Tensor, present: Tensor, size: int) -> Tensor:
    """Return the classes to follow (n, size) int64 in ascending order: all labels, then the base's top classes.

    The choice knows nothing of the target, so that a score cannot depend on its answer.

    Args:
        base_logits: (n, V).
        labels: (n, K) int64.
        present: (n, K) bool, which labels are real.
        size: classes wanted, at least the number of different labels of any query.
    """
    wanted = torch.where(present, torch.inf, -torch.inf).to(base_logits.dtype)
    boosted = base_logits.scatter_reduce(1, labels, wanted, "amax")
    return boosted.topk(size, dim=1, sorted=False).indices.sort(dim=1).values


def solve_fast(problem: Problem, descent: Descent) -> Solution:
    """Follow S steps of descent on an active set A of classes; an approximation of ``solve_exact``.

    A key's probability on A is ``exp(Z_k - lse_k)`` with its stored log-normaliser. What is left of 1 makes up one
    more class, the tail, which moves as its classes do in the mean: by ``sum_v q_v^2`` of what its residual would do to
    a single class, q the shape of the query's own tail. For v outside A the change is ``-(sum_k s_k) q_v``, with s_k
    the tail mass of neighbour k times alpha_k, summed over the steps. ``H H^T + 1`` is taken as ``U U^T + diag(e)``: a
    few directions that the keys share, and what these leave of each key's own length.

    Args:
        problem: the queries and their neighbours. Normalisers that are not known are estimated, see
            :func:`_estimated_normalizers`.
        descent: step sizes a, pull and number of steps.

    Returns:
        The change of the logits (n, V) in nats, and whether the neighbours' loss rose.
    """
    size = active_size(problem.labels.shape[1])
    probs = problem.base_logits.softmax(1)  # p_x (n, V)
    chosen = choose(problem.base_logits, problem.labels, descent.sizes > 0, size)  # A (n, A)
    mass = probs.gather(1, chosen).sum(1)  # of the query on A (n,)
    shape = probs.scatter_(1, chosen, 0.0).div_((1 - mass).clamp_min(TAIL).unsqueeze(1))  # q (n, V)
    change, rises = _follow(problem, descent, chosen, mass, shape)
    return Solution(shape.mul_(change[:, -1:]).scatter_(1, chosen, change[:, :-1]), rises)


def _follow(
    problem: Problem, descent: Descent, chosen: Tensor, mass: Tensor, shape: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the change on A and, minus the mass moved, of the tail (n, A + 1), and whether the loss rose (n,).

    Args:
        problem: the queries and their neighbours.
        descent: as in :func:`solve_fast`.
        chosen: (n, A) the active set.
        mass: (n,) of the query on A.
        shape: (n, V) of its tail.
    """
    sizes, steps, last_step = descent.sizes, descent.steps, descent.steps + descent.finish
    # A label without an entry may lie outside A; it weighs nothing, so any place serves.
    labels = torch.searchsorted(chosen, problem.labels).clamp_max_(chosen.shape[1] - 1)  # (n, K) places in A
    alpha = sizes * (problem.products + problem.one)  # (n, K)
    logits = _log_shares(problem, chosen, shape)  # Z - lse, the tail's place last (n, K, A + 1)
    shares = logits.exp()  # (n, K, A + 1)
    if last_step == 1:
        drawn = torch.bmm(alpha.unsqueeze(1), shares).squeeze(1)  # (n, A + 1)
        drawn[:, -1] = alpha.sum(1) - drawn[:, :-1].sum(1)
        return drawn.neg_().scatter_add_(1, labels, alpha), torch.zeros_like(mass, dtype=torch.bool)
    shares[:, :, -1] = (1 - shares.sum(2)).clamp_min_(torch.finfo(logits.dtype).tiny)
    logits[:, :, -1] = shares[:, :, -1].log()
    factor, own = _factored(problem)  # U (n, K, r), e (n, K)
    own = (LOG2_E * own * sizes).unsqueeze(2)  # (n, K, 1)
    # What a step multiplies with R = Y - P: alpha, which gives the change, and U^T diag(a).
    rows = torch.cat([alpha.unsqueeze(1), (factor * sizes.unsqueeze(2)).transpose(1, 2)], 1)  # (n, 1 + r, K)
    observed = rows.new_zeros(*rows.shape[:2], logits.shape[2])  # the rows' products with Y (n, 1 + r, A + 1)
    observed.scatter_add_(2, labels.unsqueeze(1).expand_as(rows), rows)
    # From here on logits count in bits: 2^x takes a third of the time of e^x.
    logits.mul_(LOG2_E)
    factor = LOG2_E * factor
    pulled = bool((descent.keep != 1).any())
    base, shrink = logits.clone() if pulled else logits, descent.keep.view(-1, 1, 1)
    overlap = torch.linalg.vector_norm(shape, dim=1, keepdim=True).square_()  # sum_v q_v^2 (n, 1)
    change = torch.zeros_like(observed[:, 0])  # (n, A + 1)
    first = last = torch.zeros_like(mass)
    for step in range(last_step):
        if step:
            torch.exp2(logits, out=shares)
        scale = shares.sum(2).reciprocal_()  # 1 / sum_v exp Z (n, K)
        far = ~((scale > 1 / FAR) & (scale < FAR)).all(1)  # (n,) queries of too large a rate
        if bool(far.any()):  # as exact does, and for these alone: no query's rounding depends on another
            logits.sub_(torch.where(far.view(-1, 1, 1), logits.amax(2, keepdim=True), 0))
            scale = torch.exp2(logits, out=shares).sum(2).reciprocal_()
        if step in (0, last_step - 1):
            last = _loss(logits, scale, labels, sizes)
            first = first if step else last
        if step == steps:
            break
        products = torch.baddbmm(
            observed, rows * scale.unsqueeze(1), shares, alpha=-1
        )  # rows R (n, 1 + r, A + 1)
        change.mul_(descent.keep.unsqueeze(1)).add_(products[:, 0])
        if step + 1 < last_step:
            if pulled:
                logits.sub_(base).mul_(shrink).add_(base)
            # The mean of the tail's classes moves by sum_v q_v^2 of what its mass would do to a single class.
            products[:, 1:, -1] *= overlap
            shares[:, :, -1] *= overlap
            logits.baddbmm_(factor, products[:, 1:])
            logits.addcmul_(own * scale.unsqueeze(2), shares, value=-1).scatter_add_(
                2, labels.unsqueeze(2), own
            )
    return change, rose(first, last)


def _log_shares(problem: Problem, chosen: Tensor, shape: Tensor) -> Tensor:
    """Return ``log p_k(v) = W_v h_k + b_v - lse_k`` (n, K, A + 1) on the classes followed, and a place for the tail."""
    logits = _logits_on(problem, torch.nn.functional.pad(chosen, (0, 1)))  # the last column is only a place
    known = problem.log_normalizers
    if known is None:
        known = _estimated_normalizers(problem, logits[:, :, :-1], shape)
    logits.sub_(known.to(logits.dtype).unsqueeze(2))
    logits[:, :, -1] = -torch.inf
    return logits


def _logits_on(problem: Problem, classes: Tensor) -> Tensor:
    """Return the keys' logits ``W_v h_k + b_v`` (n, K, m) on some classes of each query, (n, m) int64."""
    weight, bias = problem.head.weight, problem.head.bias
    rows = weight.index_select(0, classes.flatten()).view(*classes.shape, -1).transpose(1, 2)  # (n, D, m)
    offset = rows.new_zeros(()) if bias is None else bias[classes].unsqueeze(1)
    return problem.head.capped(torch.baddbmm(offset, problem.keys, rows))


def _estimated_normalizers(problem: Problem, logits: Tensor, shape: Tensor) -> Tensor:
    """Return the keys' log-normalisers (n, K), exact on A and by importance sampling on the tail.

    With classes v_1 .. v_M drawn from the query's own tail q, ``sum_{v not in A} exp Z_kv`` is near the mean over them
    of ``exp(Z_kv) / q_v``, which varies little as keys are near the query. They lie at the M midpoints of q's
    cumulative distribution: a systematic sample, the same whenever the query is.

    Args:
        problem: the queries and their neighbours.
        logits: (n, K, A) of the keys on A.
        shape: (n, V) of the query's tail, q; zero on A.
    """
    cumulative = shape.cumsum(1)  # (n, V)
    total = cumulative[:, -1:]  # 1, or less for a query with next to no tail
    middles = (torch.arange(SAMPLED, device=shape.device) + 0.5) / SAMPLED  # (M,)
    drawn = torch.searchsorted(cumulative, total * middles).clamp_max_(shape.shape[1] - 1)  # (n, M)
    shares = shape.gather(1, drawn).unsqueeze(1)  # q_v (n, 1, M)
    ratios = (_logits_on(problem, drawn) - shares.log()).masked_fill_(shares == 0, -torch.inf)  # (n, K, M)
    tail = ratios.logsumexp(2) + (total / SAMPLED).log()  # (n, K)
    return torch.logaddexp(logits.logsumexp(2), tail)


def _factored(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return U (n, K, r) and e (n, K) with ``U U^T + diag(e)`` near ``H H^T + 1``, and equal on the diagonal.

    U holds the keys on the span of some of them after one round of subspace iteration (Halko et al. 2011), and the
    bias's share: ``U = H X^T L^-T`` with ``X X^T = L L^T``.
    """
    keys, count = problem.keys, problem.keys.shape[1]
    some = torch.linspace(0, count - 1, min(RANK, count), device=keys.device).long()
    main = torch.bmm(keys[:, some], keys.transpose(1, 2)) * problem.weights.unsqueeze(1)  # (n, r, K)
    tiny = torch.finfo(main.dtype).tiny
    main = main / main.abs().amax(2, keepdim=True).clamp_min(tiny)
    main = torch.nn.functional.normalize(torch.bmm(main, keys), dim=2, eps=tiny)  # X (n, r, D)
    gram = torch.bmm(main, main.transpose(1, 2))
    gram.diagonal(dim1=1, dim2=2).add_(RIDGE)
    lower = torch.linalg.cholesky_ex(gram).L
    products = torch.bmm(keys, main.transpose(1, 2))  # (n, K, r)
    factor: Tensor = torch.linalg.solve_triangular(lower.transpose(1, 2), products, upper=True, left=False)
    lengths = torch.linalg.vector_norm(keys, dim=2).square_()  # (n, K)
    own = (lengths - factor.square().sum(2)).clamp_min_(0)
    if problem.one:
        factor = torch.cat([factor, factor.new_ones(*factor.shape[:2], 1)], 2)
    return factor, own


def _loss(logits: Tensor, scale: Tensor, labels: Tensor, sizes: Tensor) -> Tensor:
    """Return ``-sum_k a_k log p_k(y_k)`` (n,) in nats.

    Args:
        logits: (n, K, A) in bits.
        scale: (n, K) one over their normaliser.
        labels: (n, K) places in A.
        sizes: (n, K) a.
    """
    taken = logits.gather(2, labels.unsqueeze(2)).squeeze(2) / LOG2_E + scale.log()
    return -torch.where(sizes > 0, sizes * taken, 0).sum(1)
