"""The Hebbian term, and its dynamic interpolation with MbPA."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import LrUnits, Scale
from hebblm.adapt.functional.grouping import group_ids, group_sums
from hebblm.adapt.functional.mbpa import Optimizer, Solver, mbpa_delta
from hebblm.adapt.functional.scales import KernelNormalization, kernel_weight
from hebblm.adapt.solvers.problem import key_products
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

Gate = Literal["gated", "literal"]

LOST = -38.0  # expm1 of it is -1 in float64


class HebbianTerm(NamedTuple):
    """The Hebbian term in the logits of the neighbours' labels, each at one entry of its label.

    Args:
        labels: (N, K) int64.
        values: (N, K) ``D_i . h`` of the chosen entries' label i, ``relative`` divided by ``|h|^2 +
            1``; 0 at others.
        chosen: (N, K) bool, one entry for each label with entries in N^new.
    """

    labels: Tensor
    values: Tensor
    chosen: Tensor


def hebbian_term(  # noqa: PLR0913 - the parameters of Eq. 4, by name
    neighbors: Neighbors,
    hidden: Tensor,
    *,
    eps: float,
    hebbian_classes: Tensor | None = None,
    kernel_normalization: KernelNormalization = "raw",
    bias: bool = True,
    products: Tensor | None = None,
    groups: Tensor | None = None,
    scale: Scale = "absolute",
) -> HebbianTerm:
    """Return the Hebbian change of each query's logits (Eq. 4).

    ``D_i = 1/|N_i| sum_{k in N_i} c_k h_k`` for the weights of class i and ``1/|N_i| sum c_k`` for
    its bias, over the entries of N^new with label i. Only its product with the query is formed.
    ``relative`` divides it by ``|h|^2 + 1``, its value for an entry that equals the query, and
    takes the relative closeness: with closeness of maximum 1 such a label then gains eta nats.

    Args:
        neighbors: the neighbours of the queries.
        hidden: (N, D) queries.
        eps: the constant in c_k, above 0.
        hebbian_classes: (V,) bool, the labels that make up N^new; None for all.
        kernel_normalization: ``raw`` c_k, or scaled to ``sum`` 1 or ``max`` 1.
        bias: whether the head has a bias to change.
        products: (N, K) ``h_k . h``, if known.
        groups: (N, K) int64 groups of the labels, if known, see
            :func:`hebblm.adapt.functional.grouping.group_ids`.
        scale: unit of eps, closeness and term; ``absolute`` as printed.

    Returns:
        The term; ``eta * values`` is the change of the labels' logits.

    Raises:
        UserError: eps <= 0, or K = 0.
    """
    checks.some_neighbors(neighbors.values)
    weights = kernel_weight(
        neighbors.distances,
        neighbors.mask,
        eps=eps,
        normalization=kernel_normalization,
        scale=scale,
    ).to(hidden.dtype)
    member = neighbors.mask
    if hebbian_classes is not None:
        member = member & hebbian_classes[neighbors.values]  # (N, K)
    products = key_products(hidden, neighbors.keys) if products is None else products
    lifts = products + float(bias)  # h_k . h + 1 (N, K)
    if scale == "relative":
        query_products = hidden.square().sum(1, keepdim=True) + float(bias)  # (N, 1)
        lifts = lifts / query_products.clamp_min(torch.finfo(query_products.dtype).tiny)
    groups = group_ids(neighbors.values) if groups is None else groups
    # One after the other: torch would divide them among threads, which costs more than it saves.
    sizes = group_sums(groups, member.to(lifts))
    sums = group_sums(groups, weights * lifts * member)
    # |N_i| (N, K) at the chosen
    return HebbianTerm(neighbors.values, sums / sizes.clamp_min(1), sizes > 0)


def hebb_weights(counts: Tensor, beta: float) -> Tensor:
    """Return the weight of the Hebbian term, ``E_i = (1 - beta) / (1 - beta^n_i)`` (Eq. 7).

    It is 1 after one example and falls to 1 - beta. A class without an example has weight 0.

    Args:
        counts: examples n_i of each class observed so far, int64 of any shape.
        beta: decay, within [0, 1).

    Returns:
        float64 weights in [0, 1], of the same shape.

    Raises:
        UserError: beta outside [0, 1).
    """
    checks.decay("beta", beta)
    log_beta = math.log1p(beta - 1) if beta > 0 else -math.inf
    last = max(1, math.ceil(LOST / log_beta))  # the first n from which on E_i stays the same
    if last + 1 < counts.numel():
        table = hebb_weights(torch.arange(last + 1, device=counts.device), beta)
        return looked_up(table, counts.clamp_max(last))
    # beta^n - 1 by expm1: the difference itself loses every digit as beta nears 1
    return torch.where(counts > 0, (beta - 1) / torch.expm1(counts.double() * log_beta), 0)


def looked_up(table: Tensor, indices: Tensor) -> Tensor:
    """Return ``table[indices]`` of a table (M,), by an operation that is faster than indexing."""
    return table.index_select(0, indices.flatten()).view(indices.shape)


def hebb_combine(
    base_logits: Tensor,
    delta: Tensor | None,
    term: HebbianTerm,
    weights: Tensor,
    *,
    eta: float,
    gate: Gate = "gated",
) -> Tensor:
    """Add ``(1 - E_i) delta_i + E_i eta D_i . h`` to the logits of each class (Eq. 7).

    Args:
        base_logits: (N, V).
        delta: (N, V) change by MbPA, or None to leave it out.
        term: the Hebbian term.
        weights: (V,) E_i.
        eta: scale of the Hebbian term alone.
        gate: ``gated`` takes E_i as 0 for a class without an entry in N^new, which keeps its whole
            MbPA change; ``literal`` shrinks that change by 1 - E_i as well.

    Returns:
        (N, V) logits.

    Raises:
        UserError: a negative eta, or an unknown gate.
    """
    checks.at_least("eta", eta, 0)
    checks.one_of("gate", gate, ("gated", "literal"))
    weights = weights.to(base_logits.dtype)
    change = eta * term.values  # (N, K), 0 but for one entry a class
    if delta is None:
        logits = base_logits.clone()
    elif gate == "literal":
        logits = base_logits + (1 - weights) * delta
    else:
        logits = base_logits + delta
        # eta D_i . h - delta_i
        change = torch.where(term.chosen, change - delta.gather(1, term.labels), 0)
    return logits.scatter_add_(1, term.labels, looked_up(weights, term.labels) * change)


def hebb_logits(  # noqa: PLR0913 - the parameters of Eq. 4, 5 and 7, by name
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eta: float,
    beta: float,
    counts: Tensor,
    eps: float,
    hebbian_classes: Tensor | None = None,
    gate: Gate = "gated",
    solver: Solver = "exact",
    optimizer: Optimizer = "sgd",
    weighting: Literal["dynamic"] | float = "dynamic",
    mbpa: bool = True,
    l2_to_base: float = 0.0,
    kernel_normalization: KernelNormalization = "raw",
    lr_units: LrUnits = "guarded",
    scale: Scale = "absolute",
) -> Tensor:
    """Return each query's logits after memory-based Hebbian adaptation (Eq. 4 and 7).

    The change of class i is ``(1 - E_i) MbPA_i + E_i eta D_i`` with ``E_i = (1 - beta) / (1 -
    beta^n_i)``.

    Args:
        hidden: (N, D) queries.
        neighbors: their neighbours.
        head: weight (V, D) and bias (V,) or None.
        lr: learning rate of MbPA.
        steps: number of MbPA steps.
        eta: scale of the Hebbian term, at least 0.
        beta: decay of E_i with n_i, within [0, 1).
        counts: (V,) examples n_i of each class observed so far; n_i = 0 gives E_i = 0.
        eps: the constant in c_k, above 0.
        hebbian_classes: (V,) bool, the labels that make up N^new; None for all of N (variant v2).
        gate: ``gated`` keeps the whole MbPA change of a class without an entry in N^new;
            ``literal`` shrinks it by 1 - E_i.
        solver: as in :func:`mbpa_logits`.
        optimizer: as in :func:`mbpa_logits`.
        weighting: ``dynamic`` as above, or one constant E within [0, 1] (variant v3).
        mbpa: False discards the gradient-based change and adds ``eta D_i`` alone (variant v1).
        l2_to_base: as in :func:`mbpa_logits`.
        kernel_normalization: as in :func:`mbpa_logits`, for both terms.
        lr_units: as in :func:`mbpa_logits`.
        scale: of the Hebbian term, as in :func:`hebbian_term`, and of the closeness in MbPA.

    Returns:
        (N, V) logits; the base logits for a query without neighbours.

    Raises:
        UserError: a value out of range, an unknown word, K = 0, or counts of another length than V.
    """
    base_logits = head.logits(hidden)
    products, groups = key_products(hidden, neighbors.keys), group_ids(neighbors.values)
    term = hebbian_term(
        neighbors,
        hidden,
        eps=eps,
        hebbian_classes=hebbian_classes,
        kernel_normalization=kernel_normalization,
        bias=head.bias is not None,
        products=products,
        groups=groups,
        scale=scale,
    )
    weights = _class_weights(counts, beta, weighting, classes=head.weight.shape[0])
    if not mbpa:
        return hebb_combine(base_logits, None, term, torch.ones_like(weights), eta=eta, gate=gate)
    result = mbpa_delta(
        hidden,
        neighbors,
        head,
        base_logits,
        lr=lr,
        steps=steps,
        eps=eps,
        solver=solver,
        optimizer=optimizer,
        l2_to_base=l2_to_base,
        kernel_normalization=kernel_normalization,
        lr_units=lr_units,
        scale=scale,
        products=products,
        groups=groups,
    )
    return hebb_combine(base_logits, result.delta, term, weights, eta=eta, gate=gate)


def _class_weights(counts: Tensor, beta: float, weighting: str | float, *, classes: int) -> Tensor:
    """E (V,): dynamic, or one constant."""
    if counts.shape != (classes,):
        raise UserError(
            f"counts has shape {tuple(counts.shape)}; give one count for each of the {classes} "
            "classes"
        )
    dynamic = hebb_weights(counts, beta)
    if isinstance(weighting, str):
        checks.one_of("weighting", weighting, ("dynamic",))
        return dynamic
    checks.share("weighting", weighting)
    return torch.full_like(dynamic, weighting)
