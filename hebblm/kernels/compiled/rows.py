"""Statistics of a row of logits in two passes, which stay in the second cache."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hebblm.kernels.compiled.arithmetic import BITS, FLAGS, F, power_of_two

STRIDE = 32  # classes v, v + n, v + 2 n, ... share a maximum, n of them a row
PART = 1024  # numbers that are summed in float32


@njit(**FLAGS)
def strided_peaks(row, peaks):
    """Write the maxima of 32 classes each, ``len(peaks)`` apart, and return the largest of all.

    Maxima of neighbouring numbers would be taken one by one; these are taken side by side.
    """
    count = len(peaks)
    for c in range(count):
        peaks[c] = row[c]
    for j in range(1, STRIDE):
        part = row[j * count : (j + 1) * count]
        for c in range(count):
            peaks[c] = part[c] if part[c] > peaks[c] else peaks[c]
    peak = F(-np.inf)
    for c in range(count):
        peak = peaks[c] if peaks[c] > peak else peak
    for v in range(STRIDE * count, len(row)):
        peak = row[v] if row[v] > peak else peak
    return peak


@njit(**FLAGS)
def _favorite(row, peaks, peak):
    """Return the first class whose logit is the peak, or 0 where none is."""
    count = len(peaks)
    best = len(row)
    for c in range(count):
        if peaks[c] == peak:
            for v in range(c, STRIDE * count, count):
                if row[v] == peak:
                    best = min(best, v)
                    break
    for v in range(STRIDE * count, len(row)):
        if row[v] == peak:
            best = min(best, v)
            break
    return best if best < len(row) else 0


@njit(**FLAGS)
def _statistics(row, peaks):
    """Return normaliser, entropy, log-probability of the favourite, and the favourite."""
    peak = strided_peaks(row, peaks)
    total = 0.0
    weighed = 0.0
    for begin in range(0, len(row), PART):
        part = row[begin : begin + PART]
        sum_of_shares = F(0)
        sum_of_logits = F(0)
        for v in range(len(part)):
            below = part[v] - peak
            # a class without probability has -inf here, and adds nothing
            below = F(-87) if below < F(-87) else below
            share = power_of_two(below * BITS)
            sum_of_shares += share
            sum_of_logits += share * below
        total += sum_of_shares
        weighed += sum_of_logits
    size = math.log(total)
    return F(peak + size), F(size - weighed / total), F(-size), _favorite(row, peaks, peak)


@njit(
    "void(float32[:, ::1], float32[:, ::1], int64[::1], int64, int64)",
    cache=True,
    **FLAGS,
)
def row_statistics(logits, found, favorite, first, last):
    """Write normaliser, entropy and log-probability of the favourite (N, 3), and the favourite
    (N,), of rows ``first`` to ``last`` of logits (N, V).
    """
    peaks = np.empty(logits.shape[1] // STRIDE, np.float32)
    for i in range(first, last):
        normalizer, entropy, peak, best = _statistics(logits[i], peaks)
        found[i, 0] = normalizer
        found[i, 1] = entropy
        found[i, 2] = peak
        favorite[i] = best
