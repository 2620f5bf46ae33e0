"""The cost of adaptation on softmax layers of the sizes of large language models, beside the layer's own product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from hebblm.adapt import functional as F
from hebblm.bench.accuracy import descent_of
from hebblm.bench.configs import HEADS, AdaptConfig
from hebblm.bench.machine import peak_resident_bytes
from hebblm.bench.problem import make_batch
from hebblm.bench.record import Rounds, Row
from hebblm.bench.source import SyntheticSource, case_of
from hebblm.bench.timing import stopwatch

ENTRIES = 2000  # of the memory; its search is measured elsewhere
QUERIES = 20  # of a round


@torch.no_grad()
def head_rows(config: AdaptConfig, rounds: Rounds) -> Iterator[Row]:
    """Yield one row a named layer: its product, MbPA, Hebb and Mixture, each from hidden states to logits.

    Args:
        config: names, K and steps.
        rounds: how they are timed.
    """
    steps, lr = max(zip(config.steps, config.rates(), strict=True))
    descent = descent_of(lr, steps)
    for name in config.heads:
        classes, dim = HEADS[name]
        source = SyntheticSource(dim, classes, seed=config.seed, device=rounds.device)
        batch = make_batch(source, entries=min(ENTRIES, config.entries), queries=QUERIES, k=config.k)
        given = (batch.hidden, batch.neighbors, batch.head)
        calls = {
            "head": partial(batch.head.logits, batch.hidden),
            "fast_mbpa": partial(F.mbpa_logits, *given, **descent, method="fast"),
            "fast_hebb": partial(
                F.hebb_logits, *given, **descent, method="fast", eta=0.7, beta=0.6, counts=batch.counts
            ),
            "mixture": partial(F.mixture_log_probs, *given, theta=1.0, gamma=0.1),
        }
        timings = rounds.times(
            {form: stopwatch(call, QUERIES, rounds.device) for form, call in calls.items()}
        )
        over = {f"{form}_over_head": timings[form].times(timings["head"]).median for form in calls}
        del over["head_over_head"]
        yield Row(
            "large_head",
            case_of(config, source, head=name, steps=steps, lr=lr, batch=QUERIES),
            timings,
            {},
            {
                **over,
                "head_bytes": float(4 * classes * dim),
                "key_bytes_per_token": float(4 * config.k * dim),
                "peak_bytes": float(peak_resident_bytes()),
            },
        )
