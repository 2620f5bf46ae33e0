"""How much the logsumexp of logits grows by a compact change, for the loss of a label."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hebblm.kernels.compiled.arithmetic import BITS, FLAGS, F, power_of_two
from hebblm.kernels.compiled.rows import PART

EXACT = 1.1920929e-07  # of float32: what the series may leave out


@njit(**FLAGS)
def _on_classes(log_p, change, weight):
    """Return ``sum p exp(w d)`` over the followed classes, and the largest exponent in bits."""
    largest = F(-np.inf)
    for j in range(len(log_p)):
        exponent = (log_p[j] + weight * change[j]) * BITS
        largest = exponent if exponent > largest else largest
    if F(-60) < largest < F(100):
        largest = F(0)
    else:
        largest = F(-900) if largest < F(-900) else largest
    total = F(0)
    for j in range(len(log_p)):
        total += power_of_two((log_p[j] + weight * change[j]) * BITS - largest)
    return float(total), float(largest)


@njit(**FLAGS)
def _on_tail(row, normalizer, followed, moved, largest):
    """Return ``sum p exp(x q)`` over all classes but the followed ones; ``moved`` is x / t.

    The sum is scaled by 2 to the power of minus the largest exponent.
    """
    total = 0.0
    for begin in range(0, len(row), PART):
        part = row[begin : begin + PART]
        taken = followed[begin : begin + PART]
        partial = F(0)
        for v in range(len(part)):
            log_p = part[v] - normalizer
            p = power_of_two(log_p * BITS)
            share = power_of_two((log_p + moved * p) * BITS - largest)
            partial += F(0) if taken[v] else share
        total += partial
    return total


@njit(
    "void(float32[:, ::1], float32[::1], int64[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], int64[::1], float32[:, ::1], float64[:, ::1], float32[::1], int64, int64)",
    cache=True,
    **FLAGS,
)
def growths(
    logits,
    normalizers,
    classes,
    log_p,
    change,
    tails,
    targets,
    weights,
    grown,
    of_targets,
    first,
    last,
):
    """Write ``log sum_v p_v exp(w d_v)`` (N, W) for weights (N, W), and the change (N,) of the
    targets (N,).

    The columns of ``tails`` (N, 7) are x, the least t, t, three sums of powers and the largest q,
    as :class:`~hebblm.adapt.functional.changes.CompactChange` has them. It says how the tail's sum
    is a series, and where it is not.
    """
    followed = np.zeros(logits.shape[1], np.bool_)
    for i in range(first, last):
        moved = float(tails[i, 0])
        least = float(tails[i, 1])
        mass = float(tails[i, 2])
        target = targets[i]
        normalizer = normalizers[i]
        of_targets[i] = F(moved * math.exp(logits[i, target] - normalizer) / least)
        for j in range(classes.shape[1]):
            if classes[i, j] == target:
                of_targets[i] = change[i, j]
                break
        for w in range(weights.shape[1]):
            total, largest = _on_classes(log_p[i], change[i], weights[i, w])
            x = weights[i, w] * moved
            left_out = mass * (x * tails[i, 6]) ** 4 / 24
            if left_out <= EXACT:
                third = x / 3 * tails[i, 5]
                series = x * (tails[i, 3] + x / 2 * (tails[i, 4] + third))
                total += max(mass + least * series, 0.0) * 2.0**-largest
            else:
                for j in range(classes.shape[1]):
                    followed[classes[i, j]] = True
                scaled = F(x / least)
                total += _on_tail(logits[i], normalizer, followed, scaled, F(largest))
                for j in range(classes.shape[1]):
                    followed[classes[i, j]] = False
            grown[i, w] = math.log(total) + largest * 0.6931471805599453
