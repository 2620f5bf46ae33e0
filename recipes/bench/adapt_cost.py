"""Measurement of one case of MbPA and Hebb: the cost of every form, and the error of the fast
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.functional.grouping import group_ids
from recipes.bench import naive
from recipes.bench.configs import FEW, MANY, SOME, AdaptConfig
from recipes.bench.plain_fast import plain_fast
from recipes.bench.record import Rounds, Row
from recipes.bench.source import Batch, Source
from recipes.bench.timing import Spread, Turn, stopwatch

ETA, BETA = 0.7, 0.6  # of the paper's Penn Treebank column; the cost does not depend on them


def case_of(config: AdaptConfig, source: Source, **more: Any) -> dict[str, Any]:
    """Return the facts of its case that a row of the measurement of adaptation records."""
    classes, dim = source.head.weight.shape
    own = {"vocabulary": classes, "dim": dim, "k": config.k, "batch": config.batch}
    return {**own, **more, "source": source.describe()}


def adaptation_row(
    config: AdaptConfig, source: Source, made: Callable[[], Batch], rounds: Rounds, steps: int
) -> Row:
    """Time the forms of MbPA and Hebb in turn, then compare the fast form with the exact one.

    Hebb's fast form is compared with naive MbPA too, which is less work than naive Hebb however
    that is written. ``hebbian`` is what Hebb does once MbPA's change is known, in place of the
    ``addition`` that MbPA does with it: the difference of two whole times would bury that in their
    noise.
    """
    batch, plain = made(), config.descent(steps)
    options = {**plain, "lr_units": "relative"}
    naively = {**plain, "relative": True}
    hebbian = {"eta": ETA, "beta": BETA, "counts": batch.counts}

    def run(function: Callable[..., Tensor], rows: int, **given: Any) -> Turn:
        return stopwatch(
            partial(function, *batch.first(rows).given(), **given), rows, batch.hidden.device
        )

    turns = {
        "naive_mbpa": run(naive.mbpa_logits, FEW, **naively),
        "fast_mbpa": run(F.mbpa_logits, config.batch, solver="fast", **options),
        "plain_fast_mbpa": run(plain_fast, config.batch, **plain),
        "naive_hebb": run(naive.hebb_logits, FEW, **naively, **hebbian),
        "fast_hebb": run(F.hebb_logits, config.batch, solver="fast", **options, **hebbian),
        "exact_mbpa": run(F.mbpa_logits, SOME, solver="exact", **options),
        **_hebbian(batch.first(config.batch), options),
    }
    timings = rounds.times(turns)
    costs = (timings[name].a_token() for name in ("hebbian", "addition", "fast_mbpa"))
    overhead = Spread.of(
        [(mine - added) / whole for mine, added, whole in zip(*costs, strict=True)]
    )
    return Row(
        "adapt",
        case_of(config, source, **plain, error_tokens=MANY),
        timings,
        dict.fromkeys(("fast_mbpa", "fast_hebb", "exact_mbpa", "plain_fast_mbpa"), "naive_mbpa"),
        {**overhead.named("hebb_over_mbpa"), **errors(batch.first(MANY), options)},
    )


@torch.no_grad()
def _hebbian(batch: Batch, options: dict[str, Any]) -> dict[str, Turn]:
    """Time the Hebbian term and its combination with a change by MbPA, and MbPA's plain sum, each
    right after MbPA.

    What MbPA needs as well, the products of query and keys and the labels' groups, is known to
    both.
    """
    hidden, neighbors, head = batch.given()
    base = head.logits(hidden)
    products, groups = F.key_products(hidden, neighbors.keys), group_ids(neighbors.values)
    delta = torch.zeros_like(base)

    def mbpa() -> None:
        nonlocal delta
        found = F.mbpa_delta(
            hidden,
            neighbors,
            head,
            base,
            **options,
            solver="fast",
            products=products,
            groups=groups,
        )
        delta = found.delta

    def hebbian() -> Tensor:
        term = F.hebbian_term(
            neighbors, hidden, eps=options["eps"], products=products, groups=groups
        )
        return F.hebb_combine(base, delta, term, F.hebb_weights(batch.counts, BETA), eta=ETA)

    return {
        name: stopwatch(call, len(hidden), hidden.device, before=mbpa)
        for name, call in (("hebbian", hebbian), ("addition", lambda: base + delta))
    }


@torch.no_grad()
def errors(batch: Batch, options: dict[str, Any]) -> dict[str, float]:
    """Compare the fast form of MbPA with the exact form in double precision.

    Returns:
        Mean and largest absolute error of the target's loss (nats), the mean Kullback-Leibler
        divergence of the fast from the exact distribution (nats), and the bias of the perplexity in
        per cent.
    """
    q = F.mbpa_logits(*batch.given(), solver="fast", **options).double().log_softmax(1)
    p = F.mbpa_logits(*batch.double().given(), solver="exact", **options).log_softmax(1)
    # (N,) loss of fast minus loss of exact
    error = (p - q).gather(1, batch.targets[:, None]).squeeze(1)
    return {
        "error_mean": float(error.abs().mean()),
        "error_max": float(error.abs().max()),
        "kl": float((p.exp() * (p - q)).sum(1).mean()),
        "perplexity_bias_percent": 100 * math.expm1(float(error.mean())),
    }
