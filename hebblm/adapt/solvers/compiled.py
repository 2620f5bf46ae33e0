"""Newton steps by compiled kernels, where they compute with a problem's tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hebblm import kernels
from hebblm.adapt.functional.changes import CompactChange
from hebblm.adapt.solvers.fast import SPARE, STEP, start_directions
from hebblm.memory.found import Found
from hebblm.types import Neighbors, OutputHead

GATHERED = 64  # queries whose keys are copied at once, where kernels cannot read the memory's


def applies(hidden: Tensor, neighbors: Neighbors | Found, head: OutputHead, logits: Tensor) -> bool:
    """Return whether kernels solve these problems: float32 on the CPU, with stored normalisers, and
    more classes than a query follows.
    """
    k = neighbors.values.shape[1]
    if neighbors.log_normalizers is None or len(head.weight) < 2 * (k + SPARE + STEP):
        return False
    bias = head.weight if head.bias is None else head.bias
    return kernels.takes(hidden, logits, head.weight, bias)


def solve(  # noqa: PLR0913 - the parts of a problem of all queries
    hidden: Tensor,
    neighbors: Neighbors | Found,
    head: OutputHead,
    logits: Tensor,
    normalizers: Tensor,
    weights: Tensor,
    *,
    signed_sqrt: bool,
    l2_to_base: float,
    steps: int,
) -> tuple[CompactChange, Tensor]:
    """Solve as :func:`hebblm.adapt.solvers.newton.solve_newton` does, for all queries at once.

    Args:
        hidden: (N, D) queries.
        neighbors: their neighbours.
        head: weight (V, D) and bias (V,) or None.
        logits: (N, V) of the base.
        normalizers: (N,) their logsumexp, nats.
        weights: (N, K) closeness; 0 where there is no entry.
        signed_sqrt: whether keys are square roots of states.
        l2_to_base: see :func:`~hebblm.adapt.solvers.newton.solve_newton`.
        steps: number of steps, at least 1.

    Returns:
        The change of the logits, and whether the neighbours' loss rose (N,) bool.
    """
    runs = _runs(neighbors)
    if runs is not None:
        parts = [slice(0, len(hidden))]
    else:
        parts = [slice(at, at + GATHERED) for at in range(0, len(hidden), GATHERED)]
    logs = neighbors.log_normalizers
    assert logs is not None, "applies() has seen them"
    k = neighbors.values.shape[1]
    solved = []
    for rows in parts:
        if runs is not None:
            ids, early, late = runs
        else:
            ids, early, late = _gathered(neighbors, rows, hidden.dtype)
        problem = kernels.NewtonProblem(
            hidden[rows], logits[rows], normalizers[rows], head.weight, head.bias, head.cap,
            ids, neighbors.values[rows], logs[rows].float(), weights[rows], early, late,
            signed_sqrt, min((k + SPARE) // STEP * STEP + STEP - 1, len(head.weight)),
            start_directions(hidden.shape[1]),
        )  # fmt: skip
        solved.append(kernels.newton(problem, l2_to_base=l2_to_base, steps=steps))
    columns: Sequence[Tensor] = solved[0]
    if len(solved) > 1:
        columns = tuple(torch.cat(column) for column in zip(*solved, strict=True))
    classes, log_p, change, tails, loss_increased = columns
    moved, tail, mass = tails[:, :3].unbind(1)
    compact = CompactChange(
        logits, normalizers, classes, log_p, change, moved, tail, mass, tails[:, 3:6], tails[:, 6]
    )
    return compact, loss_increased


def _runs(neighbors: Neighbors | Found) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return positions (N, K) and the two runs of keys that they count through, read where they
    lie; None where they are more, or of another precision.
    """
    if isinstance(neighbors, Neighbors):
        return None
    keys = [segment.keys for segment in neighbors.segments if len(segment)]
    if len(keys) > 2 or any(key.dtype != torch.float32 for key in keys):
        return None
    if not all(key.device.type == "cpu" for key in keys):
        return None
    empty = neighbors.segments[0].keys[:0].float()
    runs = keys + [empty] * (2 - len(keys))
    return neighbors.ranked.ids, runs[0], runs[1]


def _gathered(
    neighbors: Neighbors | Found, rows: slice, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions (n, K) and a copy of the keys of some queries, and no second run of keys."""
    count, k = neighbors.values[rows].shape
    if isinstance(neighbors, Neighbors):
        keys = neighbors.keys[rows].to(dtype)
    else:
        everything = torch.arange(len(neighbors.values), device=neighbors.values.device)
        keys = neighbors.keys(everything[rows], dtype)
    flat = keys.reshape(count * k, keys.shape[2])
    ids = torch.arange(count * k, device=flat.device).view(count, k)
    return ids, flat, flat[:0]
