"""Measurement of one case of MbPA and Hebb: the cost of every form, and the error of the fast one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.bench import naive
from hebblm.bench.accuracy import EPS, errors, mbpa_options, naive_difference
from hebblm.bench.configs import AdaptConfig
from hebblm.bench.plain_fast import plain_fast
from hebblm.bench.problem import Batch
from hebblm.bench.record import Rounds, Row
from hebblm.bench.source import Source, case_of
from hebblm.bench.timing import Spread, Turn, stopwatch

ETA, BETA = 0.7, 0.6  # of the paper's Penn Treebank column; the cost does not depend on them


@dataclass(frozen=True, slots=True)
class Adapted:
    """The input of a row of MbPA, and what was timed.

    Args:
        batch: the queries of a round.
        turns: by timing.
    """

    batch: Batch
    turns: Mapping[str, Turn]


def adaptation_row(
    config: AdaptConfig, source: Source, batch: Batch, rounds: Rounds, *, steps: int, lr: float
) -> Row:
    """Time the forms of MbPA and Hebb in turn, then compare what they return.

    Hebb's fast form is compared with naive MbPA too, which is less work than naive Hebb however that is written.
    ``hebbian`` is what Hebb does once MbPA's change is known, in place of the ``addition`` that MbPA does with it: the
    difference of two whole times would bury that in their noise.
    """
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
    row = Row(
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
    )
    return rounds.noted(row, Adapted(batch.first(config.batch), turns))


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
        delta = F.mbpa_delta(*given, **mbpa_options(lr, steps), method="fast", products=products).delta

    def hebbian() -> Tensor:
        term = F.hebbian_term(batch.neighbors, batch.hidden, eps=EPS, products=products)
        return F.hebb_combine(base, delta, term, F.hebb_weights(batch.counts, BETA), eta=ETA)

    return {
        name: stopwatch(call, len(batch.hidden), batch.hidden.device, before=mbpa)
        for name, call in (("hebbian", hebbian), ("addition", lambda: base + delta))
    }
