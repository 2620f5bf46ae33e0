"""The cost of MbPA, Hebb and the continuous cache against their plain forms, and the error of the fast form."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.functional.losses import mixture_losses
from hebblm.bench import naive
from hebblm.bench.adapt_cost import BETA, ETA, adaptation_row, case_of, mbpa_options
from hebblm.bench.configs import HEADS, AdaptConfig
from hebblm.bench.machine import peak_resident_bytes
from hebblm.bench.network import network_cases
from hebblm.bench.problem import Batch, make_batch
from hebblm.bench.record import Case, Rounds, Row
from hebblm.bench.source import Source, SyntheticSource, filled, open_source
from hebblm.bench.timing import exponent, stopwatch

ENTRIES, QUERIES = 2000, 20  # behind a large softmax layer; the memory's search is measured elsewhere
THETA, GAMMA = 1.0, 0.1  # published for the cache behind an AWD-LSTM on Penn Treebank


def cases(config: AdaptConfig, rounds: Rounds) -> list[Case]:
    """Return a case for each source and number of steps, each source's cache, several K, a network and large heads."""
    sources: list[tuple[Source, int]] = []  # each with the window of its cache
    if config.checkpoint is not None:
        sources.append((open_source(config.checkpoint, config.corpus, rounds.device), config.windows[0]))
    for classes, window in zip(config.vocabulary, config.windows, strict=True):
        synthetic = SyntheticSource(config.dim, classes, seed=config.seed, device=rounds.device)
        sources.append((synthetic, window))
    found: list[Case] = []
    for source, window in sources:
        batch = cache(partial(_batch, config, source))
        found += [
            partial(adaptation_row, config, source, batch, rounds, steps=steps, lr=lr)
            for steps, lr in zip(config.steps, config.rates(), strict=True)
        ]
        found.append(partial(_cache, config, source, window, rounds))
    found.append(partial(_neighbors, config, rounds))
    return [*found, *network_cases(config, rounds), *head_cases(config, rounds)]


def _batch(config: AdaptConfig, source: Source) -> Batch:
    """Return the queries of a source: a mini-batch, and those on which the error is measured."""
    return make_batch(source, entries=config.entries, queries=max(config.batch, config.error_tokens), k=config.k)


@torch.no_grad()
def _cache(config: AdaptConfig, source: Source, window: int, rounds: Rounds) -> Row:
    """Time the continuous cache against its classic loop, both from the base's log-probabilities.

    ``cache`` gives the losses of the targets, as the loop does and as an evaluation takes them; ``cache_distribution``
    the log-probabilities of all classes.
    """
    head, count = source.head, config.batch
    keys, values = filled(source, window + count)
    hidden, targets = source.queries(count)
    log_probs = head.logits(hidden).log_softmax(1)
    history = naive.one_hot_history(values, head.weight.shape[0])
    rows = torch.arange(count, device=hidden.device)[:, None]
    columns = torch.arange(window + count, device=hidden.device)
    visible = (columns >= rows) & (columns < rows + window)  # (N, W + N): the W tokens before each query

    def losses() -> Tensor:
        scores = THETA * (hidden @ keys.t())
        base = -log_probs.gather(1, targets[:, None]).squeeze(1)
        return mixture_losses(base, scores, values[None], visible, GAMMA, targets)

    def distribution() -> Tensor:
        scores = THETA * (hidden @ keys.t())
        return F.memory_mixture(log_probs, scores, values[None], visible, GAMMA)

    def classic(tokens: int) -> Tensor:
        given = (log_probs[:tokens], hidden[:tokens], keys, history, targets[:tokens])
        return naive.pointer_cache_losses(*given, window=window, theta=THETA, weight=GAMMA)

    few, some, device = config.naive_tokens, config.exact_tokens, hidden.device
    timings = rounds.times(
        {
            "classic": stopwatch(partial(classic, few), few, device),
            "cache": stopwatch(losses, count, device),
            "cache_distribution": stopwatch(distribution, count, device),
        }
    )
    difference = float((losses()[:some] - classic(some)).abs().max())
    return Row(
        "cache",
        case_of(config, source, window=window, theta=THETA, gamma=GAMMA),
        timings,
        {"cache": "classic", "cache_distribution": "classic"},
        {"difference_max": difference},
    )


def _neighbors(config: AdaptConfig, rounds: Rounds) -> Row:
    """Time the fast form at several K, on the first synthetic head and with the most steps."""
    source = SyntheticSource(config.dim, config.vocabulary[0], seed=config.seed, device=rounds.device)
    steps, lr = max(zip(config.steps, config.rates(), strict=True))
    sizes = sorted({*config.neighbors, config.k})
    turns = {}
    most = make_batch(source, entries=config.entries, queries=config.batch, k=sizes[-1])
    for k in sizes:
        near = most.first(config.batch, k)
        given = (near.hidden, near.neighbors, near.head)
        call = partial(F.mbpa_logits, *given, method="fast", **mbpa_options(lr, steps))
        turns[str(k)] = stopwatch(call, config.batch, rounds.device)
    timings = rounds.times(turns)
    cost = {float(name): timing.milliseconds().median for name, timing in timings.items()}
    grows = {"exponent": exponent(cost)} if len(cost) > 1 else {}
    return Row("neighbors", case_of(config, source, steps=steps, lr=lr), timings, {}, grows)


def head_cases(config: AdaptConfig, rounds: Rounds) -> list[Case]:
    """Return a case a named layer."""
    return [partial(_head, config, name, rounds) for name in config.heads]


@torch.no_grad()
def _head(config: AdaptConfig, name: str, rounds: Rounds) -> Row:
    """Time a layer's product, MbPA, Hebb and Mixture behind it, each from hidden states to logits."""
    steps, lr = max(zip(config.steps, config.rates(), strict=True))
    options = mbpa_options(lr, steps)
    classes, dim = HEADS[name]
    source = SyntheticSource(dim, classes, seed=config.seed, device=rounds.device)
    batch = make_batch(source, entries=min(ENTRIES, config.entries), queries=QUERIES, k=config.k)
    given = (batch.hidden, batch.neighbors, batch.head)
    calls = {
        "head": partial(batch.head.logits, batch.hidden),
        "fast_mbpa": partial(F.mbpa_logits, *given, **options, method="fast"),
        "fast_hebb": partial(F.hebb_logits, *given, **options, method="fast", eta=ETA, beta=BETA, counts=batch.counts),
        "mixture": partial(F.mixture_log_probs, *given, theta=THETA, gamma=GAMMA),
    }
    timings = rounds.times({form: stopwatch(call, QUERIES, rounds.device) for form, call in calls.items()})
    values = {
        **{f"{form}_over_head": timings[form].times(timings["head"]).median for form in calls if form != "head"},
        "head_bytes": float(4 * classes * dim),
        "key_bytes_per_token": float(4 * config.k * dim),
        "peak_bytes": float(peak_resident_bytes()),
    }
    case = case_of(config, source, head=name, steps=steps, lr=lr, batch=QUERIES)
    return Row("large_head", case, timings, values=values)
