"""MbPA's Newton steps, one query at a time, so that what it works on stays in the second cache.

The steps are those of :mod:`hebblm.adapt.solvers.newton`, which says why; the classes that are
followed and their tail are those of :mod:`hebblm.adapt.solvers.fast`. Shapes: K keys of D numbers,
n followed classes, C = n + 1 places with the tail's, r directions. Rows are padded to 16 numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hebblm.kernels.compiled import half
from hebblm.kernels.compiled.arithmetic import (
    BITS,
    FLAGS,
    NATS,
    SMALLEST,
    F,
    as_float,
    as_int,
    dot,
    logarithm,
    power_of_two,
)
from hebblm.kernels.compiled.arithmetic import I as Int
from hebblm.kernels.compiled.products import padded, times, times_transposed
from hebblm.kernels.compiled.rows import PART, STRIDE, strided_peaks

SPARE, STEP, RANK = 64, 32, 16  # as in hebblm.adapt.solvers.fast, which a test compares
RIDGE, TAIL = F(1e-5), F(1e-6)
SMALL, LEVEL, DAMPED, OWN, DUPLICATES = F(1e-9), F(1.01), F(0.5), F(0.25), F(0.01)
FAR = F(1e12)
PARTS = 3  # rows of bfloat16 that hold one of float32
LOWEST = F(-100)  # in bits: what stands where no class is
SLACK = F(16 * 1.1920929e-07)


@njit(**FLAGS)
def _copy_keys(keys, count, signed_sqrt, query, lengths, products):
    """Turn keys (K, D) into states where they are roots; write their squared lengths and their
    products with the query.
    """
    for k in range(count):
        row = keys[k]
        if signed_sqrt:
            for d in range(len(row)):
                row[d] = row[d] * abs(row[d])
        lengths[k] = dot(row, row)
        products[k] = dot(row, query)


@njit(**FLAGS)
def _sizes(keys, count, weights, lengths, one, l2_to_base, image, mean, sizes):
    """Write ``a_k = w_k / lambda_max`` and return the pull mu."""
    width = keys.shape[1]
    largest_weight = SMALLEST
    for k in range(count):
        largest_weight = weights[k] if weights[k] > largest_weight else largest_weight
    total = F(0)
    mean[:] = F(0)
    for k in range(count):
        weights[k] /= largest_weight
        total += weights[k]
        for d in range(width):
            mean[d] += weights[k] * keys[k, d]
    top = SMALLEST
    for k in range(count):
        image[k] = weights[k] * (dot(keys[k], mean) + one * total)
        top = abs(image[k]) if abs(image[k]) > top else top
    squares = F(0)
    total = F(0)
    mean[:] = F(0)
    for k in range(count):
        image[k] /= top
        squares += image[k] * image[k] / weights[k]
        total += image[k]
        for d in range(width):
            mean[d] += image[k] * keys[k, d]
    squares = squares if squares > SMALLEST else SMALLEST
    largest = (dot(mean, mean) + one * total * total) / squares
    trace = F(0)
    for k in range(count):
        sizes[k] = weights[k] / largest if largest > F(0) else F(0)
        trace += sizes[k] * (lengths[k] + one)
    others = trace - F(1)
    others = DUPLICATES if others < DUPLICATES else others
    return F(l2_to_base * math.sqrt(others))


@njit(**FLAGS)
def _choose(row, peaks, labels, count, marks, classes, values, candidates):
    """Write the classes to follow, the labels first, then the most probable others.

    Returns their number. ``marks`` (V,) are -1, and are so again at the end.
    """
    chosen = 0
    for k in range(count):
        if marks[labels[k]] < 0:
            marks[labels[k]] = chosen
            classes[chosen] = labels[k]
            chosen += 1
    wanted = min((chosen + SPARE) // STEP * STEP + STEP - 1, len(row))
    runs = len(peaks)
    # Some ``wanted`` classes are as probable as this, so that all others to follow are.
    limit = F(-np.inf)
    if wanted < runs:
        limit = np.partition(peaks, runs - wanted)[runs - wanted]
    taken = 0
    for c in range(runs):
        if peaks[c] >= limit:
            for v in range(c, STRIDE * runs, runs):
                if row[v] >= limit and marks[v] < 0:
                    values[taken] = row[v]
                    candidates[taken] = v
                    taken += 1
    for v in range(STRIDE * runs, len(row)):
        if row[v] >= limit and marks[v] < 0:
            values[taken] = row[v]
            candidates[taken] = v
            taken += 1
    for j in range(chosen):
        marks[classes[j]] = -1
    more = wanted - chosen
    if taken <= more:
        for j in range(taken):
            classes[chosen + j] = candidates[j]
        return chosen + taken
    least = np.partition(values[:taken], taken - more)[taken - more]
    for j in range(taken):
        if values[j] > least:
            classes[chosen] = candidates[j]
            chosen += 1
    for j in range(taken):
        if values[j] == least and chosen < wanted:
            classes[chosen] = candidates[j]
            chosen += 1
    return chosen


@njit(**FLAGS)
def _tail(row, normalizer, classes, count, log_p, shares, tail):
    """Write log p of the followed classes and the tail's sums (6,): the least mass, mass, powers,
    the largest; ``shares`` (V,) hold p of the tail afterwards.
    """
    for begin in range(0, len(row), PART):
        part = row[begin : begin + PART]
        out = shares[begin : begin + PART]
        for v in range(len(part)):
            out[v] = power_of_two((part[v] - normalizer) * BITS)
    for j in range(count):
        log_p[j] = row[classes[j]] - normalizer
        shares[classes[j]] = F(0)
    mass = 0.0
    for begin in range(0, len(row), PART):
        part = shares[begin : begin + PART]
        partial = F(0)
        for v in range(len(part)):
            partial += part[v]
        mass += partial
    taken = F(mass) if mass > TAIL else TAIL
    second = 0.0
    third = 0.0
    fourth = 0.0
    scale = F(1) / taken
    for begin in range(0, len(row), PART):
        part = shares[begin : begin + PART]
        s2 = F(0)
        s3 = F(0)
        s4 = F(0)
        for v in range(len(part)):
            q = part[v] * scale
            square = q * q
            s2 += square
            s3 += square * q
            s4 += square * square
        second += s2
        third += s3
        fourth += s4
    # Floats of at least 0 have the order of their bits, and a maximum of integers vectorises.
    high = Int(0)
    for v in range(len(shares)):
        bits = as_int(shares[v])
        high = bits if bits > high else high
    largest = as_float(high)
    tail[0] = taken
    tail[1] = F(mass)
    tail[2] = F(second)
    tail[3] = F(third)
    tail[4] = F(fourth)
    tail[5] = largest * scale


@njit(**FLAGS)
def _head_logits(
    keys, count, weight, weights_half, keys_half, bias, cap, classes, n, rows, pairs, out
):
    """Write the keys' logits (K, n) on some classes (n,), in nats."""
    if len(weights_half):
        half.products(keys_half, weights_half, classes, out, count, n, pairs)
    else:
        width = weight.shape[1]
        for j in range(n):
            source = weight[classes[j]]
            target = rows[j]
            for d in range(width):
                target[d] = source[d]
        times_transposed(keys, rows, out, count, n)
    for k in range(count):
        z = out[k]
        if len(bias):
            for j in range(n):
                z[j] += bias[classes[j]]
        if cap > F(0):
            for j in range(n):
                # tanh x = 1 - 2 / (e^2x + 1)
                grown = power_of_two(F(2) * BITS * z[j] / cap)
                z[j] = cap * (F(1) - F(2) / (grown + F(1)))


@njit(**FLAGS)
def _to_shares(logits, shares, logs, count, n):
    """Turn logits (K, n) into log-probabilities in bits, with the tail's at n, and write their
    exponentials.
    """
    for k in range(count):
        z = logits[k]
        p = shares[k]
        known = logs[k] * BITS
        total = F(0)
        for j in range(n):
            exponent = z[j] * BITS - known
            share = power_of_two(exponent)
            z[j] = exponent
            p[j] = share
            total += share
        for j in range(n, len(z)):
            z[j] = LOWEST
            p[j] = F(0)
        rest = F(1) - total
        rest = SMALLEST if rest < SMALLEST else rest
        p[n] = rest
        z[n] = F(math.log2(rest))


@njit(**FLAGS)
def _normalise_rows(rows, count):
    """Give the first rows length 1."""
    for j in range(count):
        row = rows[j]
        length = F(math.sqrt(dot(row, row)))
        length = SMALLEST if length < SMALLEST else length
        for d in range(len(row)):
            row[d] /= length


@njit(**FLAGS)
def _inverse_lower(gram, size):
    """Return L^-1 (size, size) of ``gram = L L^T``, in float64; gram is written over."""
    inverse = np.zeros((size, size), np.float64)
    for i in range(size):
        for j in range(i + 1):
            value = gram[i, j]
            for q in range(j):
                value -= gram[i, q] * gram[j, q]
            if i == j:
                gram[i, j] = math.sqrt(value if value > 1e-30 else 1e-30)
            else:
                gram[i, j] = value / gram[j, j]
    for c in range(size):
        inverse[c, c] = 1 / gram[c, c]
        for i in range(c + 1, size):
            value = 0.0
            for q in range(c, i):
                value -= gram[i, q] * inverse[q, c]
            inverse[i, c] = value / gram[i, i]
    return inverse


@njit(**FLAGS)
def _make_orthonormal(rows, count):
    """Turn the first rows X into unit directions ``L^-1 X`` of ``X X^T + ridge = L L^T``, by way of
    float64: the rows are nearly parallel.
    """
    width = rows.shape[1]
    gram = np.empty((count, count), np.float64)
    for i in range(count):
        for j in range(i + 1):
            total = 0.0
            for d in range(width):
                total += np.float64(rows[i, d]) * np.float64(rows[j, d])
            gram[i, j] = total
        gram[i, i] += RIDGE
    inverse = _inverse_lower(gram, count)
    turned = np.empty(width, np.float64)
    for i in range(count - 1, -1, -1):  # a direction takes rows before its own, which still stand
        turned[:] = 0.0
        for j in range(i + 1):
            factor = inverse[i, j]
            for d in range(width):
                turned[d] += factor * rows[j, d]
        for d in range(width):
            rows[i, d] = F(turned[d])


@njit(**FLAGS)
def _directions(
    keys, keys_half, use_half, query, count, weights, lengths, products, one, rank, start, sizes,
    main, main_half, mixing, along, split, leftover, rest, first, pairs,
):  # fmt: skip
    """Write what 16 directions hold of each key, turned so that the curvature is diagonal.

    ``along`` (K, r) are U of :class:`~hebblm.adapt.solvers.newton.Directions`, ``leftover`` (K,)
    and ``rest`` (K,) what they leave. Returns curvatures (r,) and the query's coordinates (r,).
    """
    width = keys.shape[1]
    for j in range(rank):
        for d in range(start.shape[1]):
            main[j, d] = start[j, d]
    if use_half:
        for j in range(rank):
            first[j] = j
            for d in range(start.shape[1]):  # 1 and -1 are exact
                main_half[j, d] = half.rounded(main[j, d])
        half.products(keys_half, main_half, first, along, count, rank, pairs)
    else:
        times_transposed(keys, main, along, count, rank)
    # what all keys see of the directions that we start from (r, K), each of largest 1
    for j in range(rank):
        top = SMALLEST
        for k in range(count):
            mixing[j, k] = along[k, j] * weights[k]
            top = abs(mixing[j, k]) if abs(mixing[j, k]) > top else top
        for k in range(count):
            mixing[j, k] /= top
    times(mixing, keys, main, rank, count)
    _normalise_rows(main, rank)
    _make_orthonormal(main, rank)
    if use_half:
        # A direction is the sum of three rows of bfloat16, to 24 bits; the keys are exact.
        for j in range(rank):
            for d in range(width):
                remains = main[j, d]
                for part in range(PARTS):
                    bits = half.rounded(remains)
                    main_half[part * rank + j, d] = bits
                    remains -= as_float(Int(Int(bits) << Int(16)))
        for j in range(PARTS * rank):
            first[j] = j
        half.products(keys_half, main_half, first, split, count, PARTS * rank, pairs)
        for k in range(count):
            for j in range(rank):
                along[k, j] = split[k, j] + (split[k, rank + j] + split[k, 2 * rank + j])
    else:
        times_transposed(keys, main, along, count, rank)
    size = rank + (1 if one > F(0) else 0)
    # what the directions hold of the keys and, last, of the query, and the bias's share
    turned = np.empty((count + 1, size), np.float32)
    for k in range(count):
        length = F(0)
        for j in range(rank):
            turned[k, j] = along[k, j]
            length += along[k, j] * along[k, j]
        left = lengths[k] - length
        leftover[k] = F(0) if left < F(0) else left
    for j in range(rank):
        turned[count, j] = dot(main[j], query)
    if one > F(0):
        turned[:, rank] = F(1)
    curvature = np.zeros((size, size), np.float32)
    for k in range(count):
        for i in range(size):
            part = sizes[k] * turned[k, i]
            for j in range(size):
                curvature[i, j] += part * turned[k, j]
    for k in range(count):
        rest[k] = products[k] + one
        for j in range(size):
            rest[k] -= turned[k, j] * turned[count, j]
    finite = True
    for i in range(size):
        for j in range(size):
            finite = finite and math.isfinite(curvature[i, j])
    values = np.full(size, np.nan, np.float32)
    own_query = np.full(size, np.nan, np.float32)
    if not finite:
        along[:] = np.nan
        return values, own_query
    values, vectors = np.linalg.eigh(curvature)
    for j in range(size):
        total = F(0)
        for i in range(size):
            total += turned[count, i] * vectors[i, j]
        own_query[j] = total
    turns = np.ascontiguousarray(vectors)
    for k in range(count):
        row = along[k]
        for j in range(len(row)):
            row[j] = F(0)
        for i in range(size):
            part = turned[k, i]
            for j in range(size):
                row[j] += part * turns[i, j]
    return values, own_query


@njit(**FLAGS)
def _softmax(logits, shares, n, fresh):
    """Return one over the sum of 2 to the logits (bits), which ``fresh`` writes to shares, and what
    was taken off the logits.
    """
    total = F(0)
    if fresh:
        for j in range(n):
            share = power_of_two(logits[j])
            shares[j] = share
            total += share
    else:
        for j in range(n):
            total += shares[j]
    if F(1) / FAR < total < FAR:
        return F(1) / total, F(0)
    peak = F(-np.inf)
    for j in range(n):
        peak = logits[j] if logits[j] > peak else peak
    total = F(0)
    for j in range(n):
        share = power_of_two(logits[j] - peak)
        shares[j] = share
        total += share
    return F(1) / total, peak


@njit(**FLAGS)
def _move(theta, moved, products, observed, share_observed, share_now, curvature, l2_to_base):
    """One step of all classes in one direction; ``products`` are ``rows P`` of the gradient."""
    for c in range(len(theta)):
        wanted = share_observed[c]
        now = share_now[c]
        floor = SMALLEST if now < SMALLEST else now
        ratio = wanted / floor
        ratio = LEVEL if ratio < LEVEL else ratio
        rising = (wanted - now) / logarithm(ratio)
        share = rising if ratio > LEVEL else F(0.5) * (now + wanted)
        gradient = observed[c] - products[c] - l2_to_base * theta[c]
        step = gradient / (share * curvature + l2_to_base)
        step = DAMPED * step if step * moved[c] < F(0) else step
        moved[c] = step
        theta[c] += step


@njit(**FLAGS)
def _descend(
    along, values, own_query, leftover, rest, sizes, places, logits, shares, base, alpha, factors,
    n, count, overlap, l2_to_base, steps, rows, observed, scaled, products, theta, moved, change,
):  # fmt: skip
    """Write the change of the query's logits on the places (C,); return the neighbours' loss before
    the first and before the last step.
    """
    size = len(values)
    places_count = n + 1
    wide = base.shape[1]
    for j in range(size):
        value = values[j] if values[j] > SMALL else F(0)
        values[j] = value
        inverse = F(1) / value if value > F(0) else F(0)
        for k in range(count):
            part = sizes[k] * along[k, j]
            rows[j, k] = part
            rows[size + j, k] = part * along[k, j] * inverse
    observed[: 2 * size] = F(0)
    theta[:size] = F(0)
    moved[:size] = F(0)
    alpha[:count] = F(0)
    for j in range(2 * size):
        for k in range(count):
            observed[j, places[k]] += rows[j, k]
    losses = np.zeros(2, np.float32)
    for step in range(steps):
        now = base if step == 0 else logits
        loss = F(0)
        for k in range(count):
            scale, taken = _softmax(now[k], shares[k], places_count, step > 0)
            factors[k] = scale
            own_logit = (now[k, places[k]] - taken) * NATS
            loss -= sizes[k] * (own_logit + F(math.log(scale)))
        if step == 0:
            losses[0] = loss
        losses[1] = loss
        for j in range(2 * size):
            for k in range(count):
                scaled[j, k] = rows[j, k] * factors[k]
        times(scaled, shares, products, 2 * size, count)
        for j in range(size):
            _move(
                theta[j], moved[j], products[j], observed[j], observed[size + j],
                products[size + j], values[j], l2_to_base,
            )  # fmt: skip
        more = step + 1 < steps
        if more:
            times(along, theta, logits, count, size)
        for k in range(count):
            size_of_step = sizes[k] / (OWN * sizes[k] * leftover[k] + l2_to_base)
            keep = OWN * size_of_step * leftover[k]
            down = size_of_step * factors[k]
            a = alpha[k]
            p = shares[k]
            for j in range(wide):
                a[j] = keep * a[j] - down * p[j]
            a[places[k]] += size_of_step
            if more:
                z = logits[k]
                b = base[k]
                far = BITS * leftover[k]
                tail_moved = z[n] * BITS
                for j in range(wide):
                    z[j] = b[j] + BITS * z[j] + far * a[j]
                z[n] = b[n] + overlap * (tail_moved + far * a[n])
    change[:] = F(0)
    for j in range(size):
        row = theta[j]
        factor = own_query[j]
        for c in range(places_count):
            change[c] += factor * row[c]
    for k in range(count):
        row = alpha[k]
        factor = rest[k]
        for c in range(places_count):
            change[c] += factor * row[c]
    return losses[0], losses[1]


@njit(
    "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], int16[:, ::1],"
    " float32[::1], float32, int64[:, ::1], int64[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], float32[:, ::1], float32[:, ::1], boolean, float32, int64, int64[:, ::1],"
    " float32[:, ::1], float32[:, ::1], float32[:, ::1], boolean[::1], int64, int64)",
    cache=True,
    **FLAGS,
)
def newton_rows(
    hidden, logits, normalizers, weight, weights_half, bias, cap, ids, labels, logs, kernel_weight,
    early_keys, late_keys, start, signed_sqrt, l2_to_base, steps, classes, log_p, change, tails,
    loss_increased, begin, end,
):  # fmt: skip
    """Solve the problems of rows ``begin`` to ``end``.

    Args:
        hidden: (N, D) queries.
        logits: (N, V) of the base.
        normalizers: (N,) their logsumexp.
        weight: (V, D) of the head.
        weights_half: the same in bfloat16 (V, D) as int16 bits, if exact; else without rows.
        bias: (V,) or empty.
        cap: soft cap of the logits; 0 for none.
        ids: (N, K) positions of the keys, which count through both runs of keys.
        labels: (N, K).
        logs: (N, K) log-normalisers of the keys.
        kernel_weight: (N, K) w; an entry of weight 0 is left out.
        early_keys: (M, D).
        late_keys: (L, D).
        start: (16, D) directions of 1 and -1 that subspace iteration starts from.
        signed_sqrt: whether keys are square roots of states.
        l2_to_base: in units of the geometric mean of the largest curvature and of the sum of the
            others.
        steps: at least 1.
        classes: (N, C) written: followed classes, a missing one repeats the first.
        log_p: (N, C) written.
        change: (N, C) written.
        tails: (N, 7) written: the move of the tail, and its sums.
        loss_increased: (N,) written: whether the neighbours' loss rose.
        begin: first row.
        end: the row after the last.
    """
    width = hidden.shape[1]
    vocabulary = logits.shape[1]
    k_most = ids.shape[1]
    most = (classes.shape[1] + 1 + 31) // 32 * 32
    exact_half = len(weights_half) > 0
    wide = (width + half.STEP - 1) // half.STEP * half.STEP
    one = F(1) if len(bias) else F(0)
    rank = min(RANK, k_most)
    size = rank + (1 if len(bias) else 0)
    room = (k_most + 31) // 32 * 32
    directions = padded(size)
    query = np.zeros(wide, np.float32)
    mean = np.zeros(wide, np.float32)
    keys = np.zeros((room, wide), np.float32)
    keys_half = np.zeros((room if exact_half else 0, wide), np.int16)
    rows_of_head = np.zeros((0 if exact_half else most, wide), np.float32)
    main = np.zeros((padded(rank), wide), np.float32)
    main_half = np.zeros((padded(PARTS * rank), wide), np.int16)
    split = np.zeros((room, padded(PARTS * rank)), np.float32)
    mixing = np.zeros((padded(rank), padded(k_most)), np.float32)
    along = np.zeros((room, directions), np.float32)
    rows = np.zeros((padded(2 * size), padded(k_most)), np.float32)
    scaled = np.zeros((padded(2 * size), padded(k_most)), np.float32)
    lengths = np.zeros(k_most, np.float32)
    products_with_query = np.zeros(k_most, np.float32)
    image = np.zeros(k_most, np.float32)
    sizes = np.zeros(k_most, np.float32)
    weights = np.zeros(k_most, np.float32)
    own_labels = np.zeros(k_most, np.int64)
    own_logs = np.zeros(k_most, np.float32)
    leftover = np.zeros(k_most, np.float32)
    rest = np.zeros(k_most, np.float32)
    factors = np.zeros(k_most, np.float32)
    places = np.zeros(k_most, np.int64)
    followed = np.zeros(most + 4, np.int64)
    first = np.zeros(padded(PARTS * rank), np.int64)
    # 16 more, so that rows do not lie a power of two apart and meet in the caches
    pairs = np.zeros((wide // 2 if exact_half else 0, most + 16), np.int32)
    peaks = np.zeros(vocabulary // STRIDE, np.float32)
    shares_of_query = np.zeros(vocabulary, np.float32)
    marks = np.full(vocabulary, -1, np.int32)
    values = np.zeros(vocabulary, np.float32)
    candidates = np.zeros(vocabulary, np.int64)
    sums = np.zeros(6, np.float32)
    flat_logits = np.zeros(room * most, np.float32)
    flat_shares = np.zeros(room * most, np.float32)
    flat_base = np.zeros(room * most, np.float32)
    flat_alpha = np.zeros(room * most, np.float32)
    flat_observed = np.zeros(padded(2 * size) * most, np.float32)
    flat_products = np.zeros(padded(2 * size) * most, np.float32)
    flat_theta = np.zeros(padded(size) * most, np.float32)
    flat_moved = np.zeros(padded(size) * most, np.float32)
    flat_change = np.zeros(most, np.float32)
    for i in range(begin, end):
        count = 0
        early = len(early_keys)
        for k in range(k_most):
            if kernel_weight[i, k] > F(0):
                weights[count] = kernel_weight[i, k]
                own_labels[count] = labels[i, k]
                own_logs[count] = logs[i, k]
                at = ids[i, k]
                if at < early:
                    source = early_keys[at]
                else:
                    source = late_keys[at - early]
                target = keys[count]
                for d in range(width):
                    target[d] = source[d]
                count += 1
        loss_increased[i] = False
        classes[i, :] = 0
        log_p[i, :] = -np.inf
        change[i, :] = F(0)
        tails[i, :] = F(0)
        tails[i, 1] = F(1)
        if not math.isfinite(normalizers[i]):
            tails[i, 2] = F(np.nan)  # which a loss then is, too
            continue
        if count == 0:  # nothing changes: all classes are the tail, which holds all
            tails[i, 2] = F(1)
            continue
        strided_peaks(logits[i], peaks)
        up = (count + 31) // 32 * 32
        for k in range(count, up):
            for d in range(wide):
                keys[k, d] = F(0)
        for d in range(width):
            query[d] = hidden[i, d]
        _copy_keys(keys, count, signed_sqrt, query, lengths, products_with_query)
        if exact_half:
            for k in range(up):
                source = keys[k]
                bits = keys_half[k]
                for d in range(wide):
                    bits[d] = half.rounded(source[d])
        mu = _sizes(keys, count, weights, lengths, one, l2_to_base, image, mean, sizes)
        n = _choose(logits[i], peaks, own_labels, count, marks, followed, values, candidates)
        for j in range(n):
            marks[followed[j]] = j
        for k in range(count):
            places[k] = marks[own_labels[k]]
        for j in range(n):
            marks[followed[j]] = -1
            classes[i, j] = followed[j]
        for j in range(n, classes.shape[1]):
            classes[i, j] = followed[0]
        for j in range(n, (n + 3) // 4 * 4):
            followed[j] = followed[0]
        _tail(logits[i], normalizers[i], followed, n, log_p[i], shares_of_query, sums)
        across = (n + 1 + 31) // 32 * 32
        base = flat_base[: room * across].reshape(room, across)
        z = flat_logits[: room * across].reshape(room, across)
        p = flat_shares[: room * across].reshape(room, across)
        alpha = flat_alpha[: room * across].reshape(room, across)
        observed = flat_observed[: padded(2 * size) * across].reshape(padded(2 * size), across)
        products = flat_products[: padded(2 * size) * across].reshape(padded(2 * size), across)
        theta = flat_theta[: padded(size) * across].reshape(padded(size), across)
        moved = flat_moved[: padded(size) * across].reshape(padded(size), across)
        _head_logits(
            keys,
            count,
            weight,
            weights_half,
            keys_half,
            bias,
            cap,
            followed,
            n,
            rows_of_head,
            pairs,
            base,
        )
        _to_shares(base, p, own_logs, count, n)
        curvatures, own_query = _directions(
            keys, keys_half, exact_half, query, count, weights, lengths, products_with_query, one,
            rank, start, sizes, main, main_half, mixing, along, split, leftover, rest, first, pairs,
        )  # fmt: skip
        before, after = _descend(
            along, curvatures, own_query, leftover, rest, sizes, places, z, p, base, alpha, factors,
            n, count, sums[2], mu, steps, rows, observed, scaled, products, theta, moved,
            flat_change[:across],
        )  # fmt: skip
        for j in range(n):
            change[i, j] = flat_change[j]
        for j in range(n, classes.shape[1]):
            change[i, j] = flat_change[0]
        tails[i, 0] = flat_change[n]
        for j in range(6):
            tails[i, 1 + j] = sums[j]
        loss_increased[i] = not (math.isfinite(after) and after <= before + SLACK * abs(before))
