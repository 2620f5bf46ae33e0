"""The cost of MbPA, Hebb and the continuous cache against their plain forms, and the error of the fast form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.functional.losses import mixture_losses
from hebblm.adapt.functional.widths import NARROW
from hebblm.bench import naive
from hebblm.bench.problem import Batch, make_batch
from hebblm.bench.record import Row
from hebblm.bench.settings import StatesConfig, each_at_least
from hebblm.bench.source import Source, SyntheticSource, filled, open_source
from hebblm.bench.timing import Spread, Tick, Turn, exponent, interleave, stopwatch
from hebblm.errors import UserError

EPS = 1e-3
ETA, BETA = 0.7, 0.6  # of the paper's Penn Treebank column; the cost does not depend on them
THETA, GAMMA = 1.0, 0.1  # published for the cache behind an AWD-LSTM on Penn Treebank
WINDOWS = (500, 3785)  # published for Penn Treebank and WikiText-2


class Descent(TypedDict):
    """What MbPA is told."""

    lr: float
    steps: int
    eps: float


@dataclass(frozen=True)
class AdaptConfig(StatesConfig):
    """Cost and error of adaptation.

    Args:
        dim: width of the synthetic states, D.
        vocabulary: classes of the synthetic heads, V.
        steps: gradient steps S.
        lr: learning rate for each number of steps; by default the paper's: 2 for one step, 0.1 for more.
        neighbors: further K whose cost is measured.
        windows: of the cache, one for each vocabulary.
        entries: of the memory that is searched.
        naive_tokens: tokens of the plain form in a round.
        exact_tokens: tokens of the exact form in a round.
        error_tokens: tokens on which the fast form is compared with the exact one.
    """

    dim: int = 400
    vocabulary: list[int] = field(default_factory=lambda: [10_000, 33_278], metadata={"nargs": "+"})
    steps: list[int] = field(default_factory=lambda: [1, 5], metadata={"nargs": "+"})
    lr: list[float] = field(default_factory=list, metadata={"nargs": "+"})
    neighbors: list[int] = field(default_factory=lambda: [50, 100, 400], metadata={"nargs": "+"})
    windows: list[int] = field(default_factory=lambda: list(WINDOWS), metadata={"nargs": "+"})
    entries: int = 20_000
    naive_tokens: int = 2
    exact_tokens: int = 10
    error_tokens: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = {name: getattr(self, name) for name in ("naive_tokens", "exact_tokens", "error_tokens")}
        each_at_least(1, dim=self.dim, vocabulary=self.vocabulary, steps=self.steps, **tokens)
        each_at_least(1, neighbors=self.neighbors, windows=self.windows, entries=self.entries)
        for name, count in tokens.items():
            if name != "error_tokens" and count > self.batch:
                raise UserError(f"{name} = {count} exceeds batch = {self.batch}")
        if self.lr and len(self.lr) != len(self.steps):
            raise UserError(
                f"lr has {len(self.lr)} values for {len(self.steps)} numbers of steps; give one each"
            )
        if len(self.windows) != len(self.vocabulary):
            raise UserError(
                f"windows has {len(self.windows)} values for {len(self.vocabulary)} vocabularies; give one each"
            )

    def rates(self) -> list[float]:
        """Return the learning rate for each number of steps."""
        return self.lr or [2.0 if steps == 1 else 0.1 for steps in self.steps]


def case_count(config: AdaptConfig) -> int:
    """Return the number of rows that :func:`measure` yields."""
    sources = len(config.vocabulary) + (config.checkpoint is not None)
    return sources * (len(config.steps) + 1) + 1


def measure(config: AdaptConfig, device: torch.device, tick: Tick) -> Iterator[Row]:
    """Return one row a source and number of steps, one a source for the cache, and one over K.

    Args:
        config: sizes and settings.
        device: where to compute.
        tick: called after every round.
    """
    sources = _sources(config, device)  # now, not with the first row: a corpus may have to be prepared
    return _rows(config, sources, device, tick)


def _rows(
    config: AdaptConfig, sources: list[tuple[Source, int]], device: torch.device, tick: Tick
) -> Iterator[Row]:
    """Yield the rows of all sources."""
    for source, window in sources:
        batch = make_batch(
            source, entries=config.entries, queries=max(config.batch, config.error_tokens), k=config.k
        )
        for steps, lr in zip(config.steps, config.rates(), strict=True):
            yield _adaptation(config, source, batch, steps=steps, lr=lr, tick=tick)
        yield _cache(config, source, window, tick)
    yield _neighbors(config, device, tick)


def _sources(config: AdaptConfig, device: torch.device) -> list[tuple[Source, int]]:
    """Return each source with the window of its cache."""
    sources: list[tuple[Source, int]] = []
    if config.checkpoint is not None:
        sources.append((open_source(config.checkpoint, config.corpus, device), config.windows[0]))
    for classes, window in zip(config.vocabulary, config.windows, strict=True):
        sources.append((SyntheticSource(config.dim, classes, seed=config.seed, device=device), window))
    return sources


def _case(config: AdaptConfig, source: Source, **more: Any) -> dict[str, Any]:
    """Return what a row records about its case."""
    classes, dim = source.head.weight.shape
    return {
        "vocabulary": classes,
        "dim": dim,
        "k": config.k,
        "batch": config.batch,
        **more,
        "source": source.describe(),
    }


def _adaptation(
    config: AdaptConfig, source: Source, batch: Batch, *, steps: int, lr: float, tick: Tick
) -> Row:
    """Time the forms of MbPA and Hebb in turn, then compare what they return.

    Hebb's fast form is compared with naive MbPA too, which is less work than naive Hebb however that is written.
    ``hebbian`` is what Hebb does once MbPA's change is known, in place of the ``addition`` that MbPA does with it: the
    difference of two whole times would bury that in their noise. ``products`` is the floor under the fast form: the
    two matrix products that no form of it can do without.
    """
    descent: Descent = {"lr": lr, "steps": steps, "eps": EPS}
    hebbian = {**descent, "eta": ETA, "beta": BETA, "counts": batch.counts}
    device = batch.hidden.device

    def run(function: Callable[..., Tensor], rows: int, **options: Any) -> Turn:
        part = batch.first(rows)
        return stopwatch(partial(function, part.hidden, part.neighbors, part.head, **options), rows, device)

    timings = interleave(
        {
            "naive_mbpa": run(naive.mbpa_logits, config.naive_tokens, **descent),
            "fast_mbpa": run(F.mbpa_logits, config.batch, method="fast", **descent),
            "naive_hebb": run(naive.hebb_logits, config.naive_tokens, **hebbian),
            "fast_hebb": run(F.hebb_logits, config.batch, method="fast", **hebbian),
            "exact_mbpa": run(F.mbpa_logits, config.exact_tokens, method="exact", **descent),
            **_hebbian(batch.first(config.batch), lr=lr, steps=steps),
            "products": _products(batch.first(config.batch)),
        },
        config.repeats,
        tick,
    )
    costs = (timings[name].a_token() for name in ("hebbian", "addition", "fast_mbpa"))
    overhead = Spread.of([(mine - plain) / whole for mine, plain, whole in zip(*costs, strict=True)])
    return Row(
        "adapt",
        _case(config, source, steps=steps, lr=lr, eps=EPS, error_tokens=config.error_tokens),
        timings,
        dict.fromkeys(("fast_mbpa", "fast_hebb", "exact_mbpa"), "naive_mbpa"),
        {
            "hebb_over_mbpa": overhead.median,
            "hebb_over_mbpa_min": overhead.low,
            "hebb_over_mbpa_max": overhead.high,
            **errors(batch.first(config.error_tokens), lr=lr, steps=steps),
            "exact_from_naive_max": _naive_difference(batch.first(config.naive_tokens), lr=lr, steps=steps),
        },
    )


@torch.no_grad()
def _hebbian(batch: Batch, *, lr: float, steps: int) -> dict[str, Turn]:
    """Time the Hebbian term and its combination with a change by MbPA, and MbPA's plain sum; all else is given."""
    head = batch.head
    base = head.logits(batch.hidden)
    products = F.key_products(batch.hidden, batch.neighbors.keys)
    given = (batch.hidden, batch.neighbors, head, base)
    delta = F.mbpa_delta(*given, lr=lr, steps=steps, eps=EPS, method="fast", products=products).delta

    def hebbian() -> Tensor:
        term = F.hebbian_term(batch.neighbors, batch.hidden, eps=EPS, products=products)
        return F.hebb_combine(base, delta, term, F.hebb_weights(batch.counts, BETA), eta=ETA)

    return {
        name: stopwatch(call, len(batch.hidden), batch.hidden.device)
        for name, call in (("hebbian", hebbian), ("addition", lambda: base + delta))
    }


@torch.no_grad()
def _products(batch: Batch) -> Turn:
    """Time the base's logits of the queries, and those of their keys on as few classes as the fast form follows."""
    head, count = batch.head, len(batch.hidden)
    classes = head.logits(batch.hidden).topk(min(NARROW, head.weight.shape[0])).indices  # (N, A)
    rows = head.weight[classes].transpose(1, 2)  # (N, D, A)

    def products() -> tuple[Tensor, Tensor]:
        return head.logits(batch.hidden), batch.neighbors.keys @ rows

    return stopwatch(products, count, batch.hidden.device)


@torch.no_grad()
def errors(batch: Batch, *, lr: float, steps: int) -> dict[str, float]:
    """Compare the fast form of MbPA, as it runs, with the exact form in double precision.

    Args:
        batch: the queries.
        lr: learning rate.
        steps: number of steps.

    Returns:
        Mean and largest absolute error of the target's loss (nats), the mean Kullback-Leibler divergence of the fast
        from the exact distribution (nats), the bias of the perplexity in per cent, and the shares of queries that were
        run at a stable rate, on a wider active set, and in the exact form.
    """
    descent: Descent = {"lr": lr, "steps": steps, "eps": EPS}
    wide = batch.double()
    base, wide_base = batch.head.logits(batch.hidden), wide.head.logits(wide.hidden)
    fast = F.mbpa_delta(batch.hidden, batch.neighbors, batch.head, base, method="fast", **descent)
    exact = F.mbpa_delta(wide.hidden, wide.neighbors, wide.head, wide_base, method="exact", **descent)
    q = (base + fast.delta).double().log_softmax(1)
    p = (wide_base + exact.delta).log_softmax(1)
    error = (p - q).gather(1, batch.targets[:, None]).squeeze(1)  # (N,) loss of fast minus loss of exact
    return {
        "error_mean": float(error.abs().mean()),
        "error_max": float(error.abs().max()),
        "kl": float((p.exp() * (p - q)).sum(1).mean()),
        "perplexity_bias_percent": 100 * math.expm1(float(error.mean())),
        "stabilized_share": float(fast.stabilized.double().mean()),
        "widened_share": float(fast.widened.double().mean()),
        "exact_share": float(fast.exact_fallbacks.double().mean()),
    }


def _naive_difference(batch: Batch, *, lr: float, steps: int) -> float:
    """Return the largest difference of a log-probability between the exact and the plain form, both unguarded."""
    descent: Descent = {"lr": lr, "steps": steps, "eps": EPS}
    wide = batch.double()
    plain = naive.mbpa_logits(wide.hidden, wide.neighbors, wide.head, **descent).log_softmax(1)
    exact = F.mbpa_logits(wide.hidden, wide.neighbors, wide.head, guard=False, **descent).log_softmax(1)
    return float((plain - exact).abs().max())


@torch.no_grad()
def _cache(config: AdaptConfig, source: Source, window: int, tick: Tick) -> Row:
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
    timings = interleave(
        {
            "classic": stopwatch(partial(classic, few), few, device),
            "cache": stopwatch(losses, count, device),
            "cache_distribution": stopwatch(distribution, count, device),
        },
        config.repeats,
        tick,
    )
    difference = float((losses()[:some] - classic(some)).abs().max())
    return Row(
        "cache",
        _case(config, source, window=window, theta=THETA, gamma=GAMMA),
        timings,
        {"cache": "classic", "cache_distribution": "classic"},
        {"difference_max": difference},
    )


def _neighbors(config: AdaptConfig, device: torch.device, tick: Tick) -> Row:
    """Time the fast form at several K, on the first synthetic head and with the most steps."""
    source = SyntheticSource(config.dim, config.vocabulary[0], seed=config.seed, device=device)
    steps, lr = max(zip(config.steps, config.rates(), strict=True))
    sizes = sorted({*config.neighbors, config.k})
    turns = {}
    most = make_batch(source, entries=config.entries, queries=config.batch, k=sizes[-1])
    for k in sizes:
        batch = most.first(config.batch, k)
        call = partial(
            F.mbpa_logits,
            batch.hidden,
            batch.neighbors,
            batch.head,
            method="fast",
            lr=lr,
            steps=steps,
            eps=EPS,
        )
        turns[str(k)] = stopwatch(call, config.batch, device)
    timings = interleave(turns, config.repeats, tick)
    cost = {float(name): timing.milliseconds().median for name, timing in timings.items()}
    grows = {"exponent": exponent(cost)} if len(cost) > 1 else {}
    return Row("neighbors", _case(config, source, steps=steps, lr=lr), timings, {}, grows)
