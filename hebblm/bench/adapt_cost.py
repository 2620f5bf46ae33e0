"""Measurement of one case of MbPA and Hebb: the cost of every form, and the error of the fast one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.functional.grouping import group_ids
from hebblm.adapt.solvers.problem import STABLE
from hebblm.bench import naive
from hebblm.bench.configs import AdaptConfig
from hebblm.bench.plain_fast import plain_fast
from hebblm.bench.problem import Batch
from hebblm.bench.record import Rounds, Row
from hebblm.bench.source import Source
from hebblm.bench.timing import Spread, Turn, stopwatch

EPS = 1e-3
ETA, BETA = 0.7, 0.6  # of the paper's Penn Treebank column; the cost does not depend on them


def mbpa_options(lr: float, steps: int) -> dict[str, Any]:
    """Return what MbPA is told at a relative rate, as keyword arguments."""
    return {"lr": lr, "steps": steps, "eps": EPS, "rate": "relative"}


def case_of(config: AdaptConfig, source: Source, **more: Any) -> dict[str, Any]:
    """Return what a row of the measurement of adaptation records about its case."""
    classes, dim = source.head.weight.shape
    own = {"vocabulary": classes, "dim": dim, "k": config.k, "batch": config.batch}
    return {**own, **more, "source": source.describe()}


def adaptation_row(
    config: AdaptConfig, source: Source, given: Callable[[], Batch], rounds: Rounds, *, steps: int, lr: float
) -> Row:
    """Time the forms of MbPA and Hebb in turn, then compare what they return.

    Hebb's fast form is compared with naive MbPA too, which is less work than naive Hebb however that is written.
    ``hebbian`` is what Hebb does once MbPA's change is known, in place of the ``addition`` that MbPA does with it: the
    difference of two whole times would bury that in their noise.

    Args:
        config: the options.
        source: of the queries.
        given: returns them with their neighbours.
        rounds: of the timings.
        steps: S.
        lr: for so many steps.
    """
    batch = given()
    options = mbpa_options(lr, steps)
    plain = {"lr": lr, "steps": steps, "eps": EPS}
    naively = {**plain, "relative": True}
    hebbian = {"eta": ETA, "beta": BETA, "counts": batch.counts}
    device = batch.hidden.device

    def run(function: Callable[..., Tensor], rows: int, **given: Any) -> Turn:
        part = batch.first(rows)
        return stopwatch(partial(function, part.hidden, part.neighbors, part.head, **given), rows, device)

    turns = {
        "naive_mbpa": run(naive.mbpa_logits, config.naive_tokens, **naively),
        "fast_mbpa": run(F.mbpa_logits, config.batch, method="fast", **options),
        "plain_fast_mbpa": run(plain_fast, config.batch, **plain),
        "naive_hebb": run(naive.hebb_logits, config.naive_tokens, **naively, **hebbian),
        "fast_hebb": run(F.hebb_logits, config.batch, method="fast", **options, **hebbian),
        "exact_mbpa": run(F.mbpa_logits, config.exact_tokens, method="exact", **options),
        **_hebbian(batch.first(config.batch), lr=lr, steps=steps),
    }
    timings = rounds.times(turns)
    costs = (timings[name].a_token() for name in ("hebbian", "addition", "fast_mbpa"))
    overhead = Spread.of([(mine - added) / whole for mine, added, whole in zip(*costs, strict=True)])
    return Row(
        "adapt",
        case_of(config, source, steps=steps, lr=lr, eps=EPS, error_tokens=config.error_tokens),
        timings,
        dict.fromkeys(("fast_mbpa", "fast_hebb", "exact_mbpa", "plain_fast_mbpa"), "naive_mbpa"),
        {
            "plain_fast_over_fast": timings["plain_fast_mbpa"].times(timings["fast_mbpa"]).median,
            **overhead.named("hebb_over_mbpa"),
            **errors(batch.first(config.error_tokens), lr=lr, steps=steps),
            "exact_from_naive_max": naive_difference(batch.first(config.naive_tokens), lr=lr, steps=steps),
        },
        {"batch": batch.first(config.batch), "turns": turns},
    )


@torch.no_grad()
def _hebbian(batch: Batch, *, lr: float, steps: int) -> dict[str, Turn]:
    """Time the Hebbian term and its combination with a change by MbPA, and MbPA's plain sum, each right after MbPA.

    What MbPA needs as well, the products of query and keys and the labels' groups, is known to both.
    """
    head = batch.head
    base = head.logits(batch.hidden)
    products, groups = F.key_products(batch.hidden, batch.neighbors.keys), group_ids(batch.neighbors.values)
    given = (batch.hidden, batch.neighbors, head, base)
    delta = torch.zeros_like(base)

    def mbpa() -> None:
        nonlocal delta
        options = mbpa_options(lr, steps)
        delta = F.mbpa_delta(*given, **options, method="fast", products=products, groups=groups).delta

    def hebbian() -> Tensor:
        term = F.hebbian_term(batch.neighbors, batch.hidden, eps=EPS, products=products, groups=groups)
        return F.hebb_combine(base, delta, term, F.hebb_weights(batch.counts, BETA), eta=ETA)

    return {
        name: stopwatch(call, len(batch.hidden), batch.hidden.device, before=mbpa)
        for name, call in (("hebbian", hebbian), ("addition", lambda: base + delta))
    }


@torch.no_grad()
def errors(batch: Batch, *, lr: float, steps: int) -> dict[str, float]:
    """Compare the fast form of MbPA, as it runs, with the exact form in double precision.

    Returns:
        Mean and largest absolute error of the target's loss (nats), the mean Kullback-Leibler divergence of the fast
        from the exact distribution (nats), the bias of the perplexity in per cent, the mean error of the plain form
        of ``plain_fast``, and the share of queries whose neighbours' loss rose.
    """
    options = mbpa_options(lr, steps)
    wide = batch.double()
    base, wide_base = batch.head.logits(batch.hidden), wide.head.logits(wide.hidden)
    fast = F.mbpa_delta(batch.hidden, batch.neighbors, batch.head, base, method="fast", **options)
    exact = F.mbpa_delta(wide.hidden, wide.neighbors, wide.head, wide_base, method="exact", **options)
    q = (base + fast.delta).double().log_softmax(1)
    p = (wide_base + exact.delta).log_softmax(1)
    given = (batch.hidden, batch.neighbors, batch.head)
    plain = plain_fast(*given, lr=lr, steps=steps, eps=EPS).double().log_softmax(1)
    error = (p - q).gather(1, batch.targets[:, None]).squeeze(1)  # (N,) loss of fast minus loss of exact
    return {
        "error_mean": float(error.abs().mean()),
        "error_max": float(error.abs().max()),
        "kl": float((p.exp() * (p - q)).sum(1).mean()),
        "perplexity_bias_percent": 100 * math.expm1(float(error.mean())),
        "plain_error_mean": float((p - plain).gather(1, batch.targets[:, None]).abs().mean()),
        "rose_share": float(fast.rose.double().mean()),
    }


def naive_difference(batch: Batch, *, lr: float, steps: int) -> float:
    """Return the largest difference of a log-probability between the exact and the naive form.

    Both at the largest relative rate that cannot climb, or ``lr`` if that is less: a descent that climbs magnifies the
    last digit of its rate.
    """
    lr = min(lr, STABLE)
    wide = batch.double()
    given = (wide.hidden, wide.neighbors, wide.head)
    plain = naive.mbpa_logits(*given, lr=lr, steps=steps, eps=EPS, relative=True).log_softmax(1)
    exact = F.mbpa_logits(*given, lr=lr, steps=steps, eps=EPS, rate="relative").log_softmax(1)
    return float((plain - exact).abs().max())
