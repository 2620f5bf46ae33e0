"""The kernels over tensors: arrays of their memory, shared among torch's threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hebblm.kernels.forms import compiled, is_compiled, uses_bfloat16
from hebblm.runtime.blocks import in_parallel

PARTS = 2  # of the rows, a thread: who is done early takes another
_halves: Any = WeakIdKeyDictionary()  # by head weight: its version, and its bits or None


def takes(*tensors: Tensor) -> bool:
    """Return whether kernels compute with these tensors: float32 on the CPU, without gradients."""
    if not is_compiled():
        return False
    return all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


def row_statistics(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return normaliser, entropy and log-probability of the favourite (N, 3) of logits (N, V), in
    nats, and the favourite (N,) int64.
    """
    stats = logits.new_empty(len(logits), 3)
    favorite = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    arrays = _array(logits), _array(stats), _array(favorite)
    _each(compiled("rows").row_statistics, arrays, len(logits))
    return stats, favorite


def growths(
    logits: Tensor,
    normalizers: Tensor,
    classes: Tensor,
    log_p: Tensor,
    change: Tensor,
    tails: Tensor,
    targets: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the growth (N, W) float64 of the logsumexp of logits (N, V) at weights (N, W), and the
    change (N,) of targets (N,), in nats.

    Args:
        logits: (N, V).
        normalizers: (N,) their logsumexp, nats.
        classes: (N, C) int64, followed classes.
        log_p: (N, C) nats.
        change: (N, C) nats.
        tails: (N, 7) what :func:`newton` returns.
        targets: (N,) int64.
        weights: (N, W).
    """
    grown = torch.empty(weights.shape, dtype=torch.float64, device=logits.device)
    of_targets = logits.new_empty(len(logits))
    arrays = tuple(
        map(_array, (logits, normalizers, classes, log_p, change, tails, targets, weights))
    )
    _each(compiled("growth").growths, (*arrays, _array(grown), _array(of_targets)), len(logits))
    return grown, of_targets


@dataclass(frozen=True, slots=True)
class NewtonProblem:
    """Problems of N queries, as :func:`hebblm.adapt.solvers.newton.solve_newton` has them.

    Args:
        hidden: (N, D) queries.
        logits: (N, V) of the base.
        normalizers: (N,) their logsumexp, nats.
        weight: (V, D) of the head.
        bias: (V,) or None.
        cap: soft cap of the logits, or None.
        ids: (N, K) int64 positions of the keys among ``early`` and then ``late``.
        labels: (N, K) int64.
        logs: (N, K) log-normalisers of the keys, nats.
        kernel_weight: (N, K) weights; 0 where there is no entry.
        early: (M, D) keys.
        late: (L, D) keys.
        signed_sqrt: whether keys are square roots of states.
        most: C, the most classes that a query follows.
        start: (r, D) directions of 1 and -1 that subspace iteration starts from.
    """

    hidden: Tensor
    logits: Tensor
    normalizers: Tensor
    weight: Tensor
    bias: Tensor | None
    cap: float | None
    ids: Tensor
    labels: Tensor
    logs: Tensor
    kernel_weight: Tensor
    early: Tensor
    late: Tensor
    signed_sqrt: bool
    most: int
    start: Tensor


def newton(
    problem: NewtonProblem, *, l2_to_base: float, steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return followed classes (N, C) int64, their log p and change (N, C), numbers of the tail
    (N, 7), and whether the neighbours' loss rose (N,) bool.

    The tail's are its move x, the least t, t, the sums of q^2, q^3 and q^4, and the largest q.
    """
    count, like = len(problem.hidden), problem.logits
    classes = torch.empty(count, problem.most, dtype=torch.int64, device=like.device)
    log_p, change = like.new_empty(2, count, problem.most)
    tails = like.new_empty(count, 7)
    loss_increased = torch.empty(count, dtype=torch.bool, device=like.device)
    bias = like.new_empty(0) if problem.bias is None else problem.bias
    bits = _bits_of(problem.weight) if _is_half(problem.hidden) else None
    arrays = (
        _array(problem.hidden),
        _array(problem.logits),
        _array(problem.normalizers),
        _array(problem.weight),
        np.empty((0, 32), np.int16) if bits is None else bits,
        _array(bias),
        np.float32(problem.cap or 0),
        _array(problem.ids),
        _array(problem.labels),
        _array(problem.logs),
        _array(problem.kernel_weight),
        _array(problem.early),
        _array(problem.late),
        _array(problem.start),
        problem.signed_sqrt,
        np.float32(l2_to_base),
        steps,
        *map(_array, (classes, log_p, change, tails, loss_increased)),
    )
    _each(compiled("newton").newton_rows, arrays, count)
    return classes, log_p, change, tails, loss_increased


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.detach().contiguous().numpy()
    return array


def _bits_of(weight: Tensor) -> npt.NDArray[np.int16] | None:
    """Return a head's weights (V, D) in bfloat16, as bits in rows padded to 32 numbers.

    Returns None if bfloat16 does not hold them exactly, or if products are taken in float32.
    """
    if not uses_bfloat16():
        return None
    known = _halves.get(weight)
    if known is None or known[0] != weight._version:
        rounded = weight.detach().bfloat16()
        exact = bool((rounded.float() == weight).all())
        bits = None
        if exact:
            missing = -weight.shape[1] % 32
            bits = _array(torch.nn.functional.pad(rounded, (0, missing)).view(torch.int16))
        known = weight._version, bits
        _halves[weight] = known
    halves: npt.NDArray[np.int16] | None = known[1]
    return halves


def _is_half(states: Tensor) -> bool:
    """Return whether states are exact in bfloat16, as those of a model in bfloat16 are."""
    return uses_bfloat16() and bool((states.bfloat16().float() == states).all())


def _each(kernel: Callable[..., None], arrays: tuple[Any, ...], count: int) -> None:
    """Run a kernel on all rows, some in each of torch's threads."""
    parts = min(count, PARTS * torch.get_num_threads() if torch.get_num_threads() > 1 else 1)
    cuts = [part * count // parts for part in range(parts + 1)] if parts else []
    in_parallel(
        lambda part: kernel(*arrays, part.start, part.stop),
        [slice(start, stop) for start, stop in pairwise(cuts)],
        torch.device("cpu"),
    )
