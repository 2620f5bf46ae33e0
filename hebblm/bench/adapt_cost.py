"""One case of MbPA and Hebb: the cost of every form, the error of the fast one, and the floor under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.solvers.fast import ACTIVE, RANK
from hebblm.bench import naive
from hebblm.bench.accuracy import EPS, Descent, errors, naive_difference
from hebblm.bench.adapt_settings import AdaptConfig, case_of
from hebblm.bench.breakdown import ELEMENTS, breakdown
from hebblm.bench.floor import Floor, Phase
from hebblm.bench.plain_fast import plain_fast
from hebblm.bench.problem import Batch
from hebblm.bench.rates import measure_rates
from hebblm.bench.record import Row
from hebblm.bench.source import Source
from hebblm.bench.timing import Spread, Tick, Timing, Turn, interleave, stopwatch
from hebblm.bench.work import base_work, descent_work, hebbian_work

ETA, BETA = 0.7, 0.6  # of the paper's Penn Treebank column; the cost does not depend on them


def adaptation_row(
    config: AdaptConfig, source: Source, batch: Batch, *, steps: int, lr: float, tick: Tick
) -> Row:
    """Time the forms of MbPA and Hebb in turn, then compare what they return.

    Hebb's fast form is compared with naive MbPA too, which is less work than naive Hebb however that is written.
    ``hebbian`` is what Hebb does once MbPA's change is known, in place of the ``addition`` that MbPA does with it: the
    difference of two whole times would bury that in their noise.
    """
    descent: Descent = {"lr": lr, "steps": steps, "eps": EPS, "rate": "relative"}
    plain = {"lr": lr, "steps": steps, "eps": EPS}
    naively = {**plain, "relative": True}
    hebbian = {"eta": ETA, "beta": BETA, "counts": batch.counts}
    device = batch.hidden.device

    def run(function: Callable[..., Tensor], rows: int, **options: Any) -> Turn:
        part = batch.first(rows)
        return stopwatch(partial(function, part.hidden, part.neighbors, part.head, **options), rows, device)

    rounds = {
        "naive_mbpa": run(naive.mbpa_logits, config.naive_tokens, **naively),
        "fast_mbpa": run(F.mbpa_logits, config.batch, method="fast", **descent),
        "plain_fast_mbpa": run(plain_fast, config.batch, **plain),
        "naive_hebb": run(naive.hebb_logits, config.naive_tokens, **naively, **hebbian),
        "fast_hebb": run(F.hebb_logits, config.batch, method="fast", **descent, **hebbian),
        "exact_mbpa": run(F.mbpa_logits, config.exact_tokens, method="exact", **descent),
        **_hebbian(batch.first(config.batch), lr=lr, steps=steps),
    }
    timings = interleave(rounds, config.repeats, tick)
    costs = (timings[name].a_token() for name in ("hebbian", "addition", "fast_mbpa"))
    overhead = Spread.of([(mine - added) / whole for mine, added, whole in zip(*costs, strict=True)])
    pairs = zip(timings["plain_fast_mbpa"].a_token(), timings["fast_mbpa"].a_token(), strict=True)
    beside = Spread.of([plain / fast for plain, fast in pairs])
    return Row(
        "adapt",
        case_of(config, source, steps=steps, lr=lr, eps=EPS, error_tokens=config.error_tokens),
        timings,
        dict.fromkeys(("fast_mbpa", "fast_hebb", "exact_mbpa", "plain_fast_mbpa"), "naive_mbpa"),
        {
            "plain_fast_over_fast": beside.median,
            "hebb_over_mbpa": overhead.median,
            "hebb_over_mbpa_min": overhead.low,
            "hebb_over_mbpa_max": overhead.high,
            **errors(batch.first(config.error_tokens), lr=lr, steps=steps),
            "exact_from_naive_max": naive_difference(batch.first(config.naive_tokens), lr=lr, steps=steps),
        },
        _floors(batch.first(config.batch), timings, rounds, steps=steps),
    )


@torch.no_grad()
def _hebbian(batch: Batch, *, lr: float, steps: int) -> dict[str, Turn]:
    """Time the Hebbian term and its combination with a change by MbPA, and MbPA's plain sum, each right after MbPA."""
    head = batch.head
    base = head.logits(batch.hidden)
    products = F.key_products(batch.hidden, batch.neighbors.keys)
    given = (batch.hidden, batch.neighbors, head, base)
    delta = torch.zeros_like(base)

    def mbpa() -> None:
        nonlocal delta
        delta = F.mbpa_delta(
            *given, lr=lr, steps=steps, eps=EPS, rate="relative", method="fast", products=products
        ).delta

    def hebbian() -> Tensor:
        term = F.hebbian_term(batch.neighbors, batch.hidden, eps=EPS, products=products)
        return F.hebb_combine(base, delta, term, F.hebb_weights(batch.counts, BETA), eta=ETA)

    return {
        name: stopwatch(call, len(batch.hidden), batch.hidden.device, before=mbpa)
        for name, call in (("hebbian", hebbian), ("addition", lambda: base + delta))
    }


def _floors(
    batch: Batch, timings: Mapping[str, Timing], turns: Mapping[str, Turn], *, steps: int
) -> dict[str, Floor]:
    """Return the floors under the fast form of MbPA and under what Hebb adds to it, as the machine is now."""
    head, device = batch.head, batch.hidden.device
    (classes, dim), (count, k) = head.weight.shape, batch.neighbors.values.shape
    active = min(ACTIVE, classes)
    descent = descent_work(dim=dim, classes=classes, k=k, steps=steps, active=active, rank=RANK)
    shapes = [(count, dim, classes), (k, dim, active)]
    works = {
        "fast_mbpa": (base_work(dim=dim, classes=classes, batch=count) + descent, head.weight),
        "hebbian": (hebbian_work(k=k), head.weight[:, :1].contiguous()),  # rows of a single number
    }
    floors = {
        name: Floor(
            {"adaptation": Phase(work, measure_rates(table, shapes, streamed=count * work.streamed))},
            breakdown(turns[name], timings[name].milliseconds().median, device),
        )
        for name, (work, table) in works.items()
    }
    parts = floors["hebbian"].parts  # what MbPA does as well is no part of it
    rest = parts[ELEMENTS] - timings["addition"].milliseconds().median
    floors["hebbian"] = replace(floors["hebbian"], parts={**parts, ELEMENTS: max(0.0, rest)})
    return floors
