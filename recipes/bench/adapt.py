"""The cost of MbPA, Hebb and the continuous cache against their plain forms, and the error of the
fast form.
"""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.functional.losses import mixture_losses
from recipes.bench import naive
from recipes.bench.adapt_cost import BETA, ETA, adaptation_row, case_of
from recipes.bench.configs import FEW, HEADS, MANY, SOME, WINDOWS, AdaptConfig
from recipes.bench.network import network_cases
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.source import Source, SyntheticSource, filled, make_batch, open_source
from recipes.bench.timing import exponent, stopwatch

ENTRIES, QUERIES = 2000, 20  # for a large softmax layer; the memory's search is measured elsewhere
THETA, GAMMA = 1.0, 0.1  # published for the cache of an AWD-LSTM on Penn Treebank


def cases(config: AdaptConfig, rounds: Rounds) -> list[Case]:
    """Return a case for each source and number of steps, each source's cache, several K, a network
    and large heads.
    """
    sources: list[Source] = (
        [] if config.checkpoint is None else [open_source(config.checkpoint, rounds.device)]
    )
    sources += [_synthetic(config, config.dim, classes, rounds) for classes in config.vocabulary]
    found: list[Case] = []
    for source in sources:
        sizes = {"entries": config.entries, "queries": max(config.batch, MANY), "k": config.k}
        batch = cache(partial(make_batch, source, **sizes))
        found += [
            partial(adaptation_row, config, source, batch, rounds, steps) for steps in config.steps
        ]
        found.append(partial(_cache, config, source, rounds))
    found.append(partial(_neighbors, config, rounds))
    return [*found, *network_cases(config, rounds), *head_cases(config, rounds)]


def _synthetic(config: AdaptConfig, dim: int, classes: int, rounds: Rounds) -> SyntheticSource:
    return SyntheticSource(dim, classes, seed=config.seed, device=rounds.device)


@torch.no_grad()
def _cache(config: AdaptConfig, source: Source, rounds: Rounds) -> Row:
    """Time the losses of the continuous cache and its classic loop, both from the base's
    log-probabilities.
    """
    head, count = source.head, config.batch
    window = WINDOWS.get(head.weight.shape[0], 500)
    keys, values = filled(source, window + count)
    hidden, targets = source.queries(count)
    log_probs = head.logits(hidden).log_softmax(1)
    history = naive.one_hot_history(values, head.weight.shape[0])
    rows = torch.arange(count, device=hidden.device)[:, None]
    columns = torch.arange(window + count, device=hidden.device)
    # (N, W + N): the W tokens before each query
    visible = (columns >= rows) & (columns < rows + window)

    def losses() -> Tensor:
        scores = THETA * (hidden @ keys.t())
        base = -log_probs.gather(1, targets[:, None]).squeeze(1)
        return mixture_losses(base, scores, values[None], visible, GAMMA, targets)

    def classic(tokens: int) -> Tensor:
        given = (log_probs[:tokens], hidden[:tokens], keys, history, targets[:tokens])
        return naive.pointer_cache_losses(*given, window=window, theta=THETA, weight=GAMMA)

    timings = rounds.times(
        {
            "classic": stopwatch(partial(classic, FEW), FEW, hidden.device),
            "cache": stopwatch(losses, count, hidden.device),
        }
    )
    difference = float((losses()[:SOME] - classic(SOME)).abs().max())
    case = case_of(config, source, window=window, theta=THETA, gamma=GAMMA)
    return Row("cache", case, timings, {"cache": "classic"}, {"difference_max": difference})


def _neighbors(config: AdaptConfig, rounds: Rounds) -> Row:
    """Time the fast form at several K, on the first synthetic head and with the most steps."""
    source = _synthetic(config, config.dim, config.vocabulary[0], rounds)
    options = config.descent(max(config.steps))
    sizes = sorted({*config.neighbors, config.k})
    turns = {}
    most = make_batch(source, entries=config.entries, queries=config.batch, k=sizes[-1])
    for k in sizes:
        near = most.first(config.batch, k)
        call = partial(F.mbpa_logits, *near.given(), solver="fast", lr_units="relative", **options)
        turns[str(k)] = stopwatch(call, config.batch, rounds.device)
    timings = rounds.times(turns)
    cost = {float(name): timing.milliseconds().median for name, timing in timings.items()}
    grows = {"exponent": exponent(cost)} if len(cost) > 1 else {}
    return Row("neighbors", case_of(config, source, **options), timings, {}, grows)


def head_cases(config: AdaptConfig, rounds: Rounds) -> list[Case]:
    """Return a case a named layer."""
    return [partial(_head, config, name, rounds) for name in config.heads]


@torch.no_grad()
def _head(config: AdaptConfig, name: str, rounds: Rounds) -> Row:
    """Time a layer's product, MbPA, Hebb and Mixture with it, each from hidden states to logits."""
    options = config.descent(max(config.steps))
    classes, dim = HEADS[name]
    source = _synthetic(config, dim, classes, rounds)
    batch = make_batch(source, entries=min(ENTRIES, config.entries), queries=QUERIES, k=config.k)
    given, fast = batch.given(), {**options, "lr_units": "relative", "solver": "fast"}
    calls = {
        "head": partial(batch.head.logits, batch.hidden),
        "fast_mbpa": partial(F.mbpa_logits, *given, **fast),
        "fast_hebb": partial(
            F.hebb_logits, *given, **fast, eta=ETA, beta=BETA, counts=batch.counts
        ),
        "mixture": partial(F.mixture_log_probs, *given, theta=THETA, gamma=GAMMA),
    }
    timings = rounds.times(
        {form: stopwatch(call, QUERIES, rounds.device) for form, call in calls.items()}
    )
    values = {
        **{
            f"{form}_over_head": timings[form].times(timings["head"]).median
            for form in calls
            if form != "head"
        },
        "head_bytes": float(4 * classes * dim),
        "key_bytes_per_token": float(4 * config.k * dim),
    }
    return Row(
        "large_head",
        case_of(config, source, head=name, **{**options, "batch": QUERIES}),
        timings,
        values=values,
    )
