"""Parts of a stream, by training count and by occurrence of new words: their mean losses, and
gains over the base with bootstrap intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hebblm.errors import UserError
from hebblm.io.files import Count
from hebblm.report.result.methods import BASE, without_base
from hebblm.report.result.numbers import Interval, perplexity

DEFAULT_EDGES = (50, 100, 500)
OCCURRENCES = ("1st", "2nd", "3rd", "4th-7th", "8th+")
_EDGES = (1, 2, 3, 7)  # earlier occurrences from which on the next name holds
_ROUNDING = 1e-9
ALL = "All"
OOV = "OOV"
KNOWN = "Known"
PIECES = "Pieces"
OOV_BY_OCCURRENCE = tuple(f"{OOV} {name}" for name in OCCURRENCES)


def part_label(part: str) -> str:
    """Return the printed name of a part of a stream."""
    return part.replace(OOV, "New words")


@dataclass(frozen=True, slots=True)
class FrequencyBucket:
    """The tokens whose training count falls into one range."""

    bucket: str  # the range as text, such as ``"50-100"``
    tokens: Count  # how many tokens of the stream fall into it
    nll: float | None  # their mean loss in nats per token; None for an empty bucket
    perplexity: float | None  # exp(nll); None for an empty bucket

    @classmethod
    def from_nll(cls, bucket: str, tokens: int, nll: float | None) -> FrequencyBucket:
        """Build a bucket whose perplexity follows from its loss."""
        if nll is None:
            return cls(bucket, tokens, None, None)
        return cls(bucket, tokens, nll, perplexity(nll))


def validate_edges(edges: Sequence[int | str]) -> tuple[int, ...]:
    """The edges as they are; UserError unless they are strictly increasing positive whole
    numbers.
    """
    numbers = []
    for edge in edges:
        if isinstance(edge, int | np.integer) and not isinstance(edge, bool):
            numbers.append(int(edge))
    rising = all(low < high for low, high in pairwise(numbers))
    if not numbers or len(numbers) < len(edges) or numbers[0] <= 0 or not rising:
        raise UserError(
            f"frequency edges {list(edges)} must be increasing positive whole numbers, such as "
            "50,100,500"
        )
    return tuple(numbers)


def parse_edges(words: Iterable[int | str]) -> tuple[int, ...]:
    """Edges that are written with commas or apart."""
    edges: list[int | str] = []
    for part in ",".join(map(str, words)).split(","):
        edges.append(int(part) if part.strip().isdecimal() else part)
    return validate_edges(edges)


def bucket_labels(edges: Sequence[int]) -> list[str]:
    """Names of the ranges that ``edges`` cut, such as ``<50``, ``50-100``, ``100-500``, ``>500``.

    A count equal to an edge belongs to the range above it, so that ``>500`` stands for 500 and
    more.
    """
    middle = [f"{low}-{high}" for low, high in pairwise(edges)]
    return [f"<{edges[0]}", *middle, f">{edges[-1]}"]


def frequency_report(
    nll: NDArray[np.floating],
    train_counts: NDArray[np.integer],
    edges: Sequence[int] = DEFAULT_EDGES,
) -> list[FrequencyBucket]:
    """Mean losses (T,) in nats by ranges of training count (T,), the paper's Table "frequency".

    With edges e_1 < ... < e_m the ranges are c < e_1, e_i <= c < e_{i+1}, and c >= e_m. Sums are
    taken in float64, so that :func:`recombine` gives back the mean over all tokens.
    """
    cuts = validate_edges(edges)
    if nll.ndim != 1 or nll.shape != train_counts.shape:
        raise UserError(
            f"losses {nll.shape} and training counts {train_counts.shape} must be two equal lists"
        )
    if np.isnan(nll).any():
        raise UserError(f"{int(np.isnan(nll).sum())} losses are nan; lower the learning rate")
    if train_counts.size and int(train_counts.min()) < 0:
        raise UserError(f"training count {int(train_counts.min())} is negative; counts start at 0")
    return bucket_means(nll, bucket_indices(train_counts, cuts), bucket_labels(cuts))


def bucket_indices(counts: NDArray[np.integer], edges: Sequence[int]) -> NDArray[np.intp]:
    """(T,) which of the ranges that ``edges`` cut each count (T,) belongs to, from 0."""
    return np.searchsorted(np.asarray(edges), counts, side="right")


def bucket_means(
    nll: NDArray[np.floating], indices: NDArray[np.integer], labels: Sequence[str]
) -> list[FrequencyBucket]:
    """Mean losses (T,) in nats by the bucket of each token (T,), from 0; an empty bucket has no
    loss.
    """
    buckets = []
    for index, label in enumerate(labels):
        chosen = nll[indices == index]
        mean = None
        if chosen.size:
            mean = float(chosen.sum(dtype=np.float64)) / chosen.size
        buckets.append(FrequencyBucket.from_nll(label, int(chosen.size), mean))
    return buckets


def sizes(buckets: Sequence[FrequencyBucket]) -> list[tuple[str, int]]:
    """Return the name of each bucket and the number of its tokens."""
    return [(bucket.bucket, bucket.tokens) for bucket in buckets]


def recombine(buckets: Sequence[FrequencyBucket]) -> float | None:
    """sum(tokens * nll) / sum(tokens) in nats per token, or None where there is no token."""
    tokens = sum(bucket.tokens for bucket in buckets)
    if tokens == 0:
        return None
    losses = []
    for bucket in buckets:
        if bucket.nll is not None:
            losses.append(bucket.tokens * bucket.nll)
    return math.fsum(losses) / tokens


def gap_notes(totals: Iterable[tuple[Sequence[FrequencyBucket], float | None]]) -> list[str]:
    """Return a note on the largest error of the buckets' total loss; empty if they add up."""
    largest = 0.0
    for buckets, loss in totals:
        total = recombine(buckets)
        if total is None or loss is None or math.isclose(total, loss, rel_tol=_ROUNDING):
            continue
        largest = max(largest, abs(total - loss))
    if not largest:
        return []
    return [f"Token-weighted, the buckets miss All by up to {largest:.1e} nats."]


def occurrences_so_far(tokens: NDArray[Any]) -> NDArray[np.int64]:
    """Return how often each token (T,) of a stream occurred before its own place, (T,): 0 for a
    first occurrence.
    """
    # (T,) equal tokens side by side, each in the order of the stream
    order = np.argsort(tokens, kind="stable")
    together = tokens[order]
    starts = np.flatnonzero(np.append(True, together[1:] != together[:-1]))
    lengths = np.diff(np.append(starts, tokens.size))
    seen = np.empty(tokens.size, dtype=np.int64)
    seen[order] = np.arange(tokens.size) - np.repeat(starts, lengths)
    return seen


def occurrence_masks(seen: NDArray[np.integer], oov: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Return which tokens are that occurrence of a new word, (T,) bool for each of
    :data:`OCCURRENCES`.

    Arguments are each token's occurrences so far, and whether it is outside the source vocabulary,
    (T,) each.
    """
    index = bucket_indices(seen, _EDGES)  # (T,)
    return [oov & (index == at) for at in range(len(OCCURRENCES))]


def occurrence_report(
    nll: NDArray[np.floating], seen: NDArray[np.integer], oov: NDArray[np.bool_]
) -> list[FrequencyBucket]:
    """Return the mean loss of new words by the number of the occurrence, all (T,).

    The buckets recombine to the loss over all such tokens; without such tokens there are no
    buckets.
    """
    if not oov.any():
        return []
    return bucket_means(nll[oov], bucket_indices(seen[oov], _EDGES), OCCURRENCES)


def stream_parts(
    train_counts: NDArray[np.integer] | None,
    seen: NDArray[np.integer],
    oov: NDArray[np.bool_],
    edges: Sequence[int],
) -> dict[str, NDArray[np.bool_]]:
    """Return the parts of a stream by name, (T,) bool each; those of new words only if there are
    any.

    Arguments are the counts of each token's word in training (None if not known) and in the stream
    so far, and whether it is outside the source vocabulary, (T,) each.
    """
    parts = {ALL: np.ones(oov.size, dtype=np.bool_)}
    if oov.any():
        parts[OOV] = oov
        parts[KNOWN] = ~oov
    if train_counts is not None:
        indices = bucket_indices(train_counts, edges)  # (T,)
        for at, label in enumerate(bucket_labels(edges)):
            parts[label] = indices == at
    if oov.any():
        parts |= dict(zip(OOV_BY_OCCURRENCE, occurrence_masks(seen, oov), strict=True))
    return parts


Losses = NDArray[np.floating]
LEAST_BLOCKS = 10  # a part that fewer blocks hold has no interval: resampling so few says little
_CELLS = 1 << 22  # of a matrix of draws that is held at once


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Options of bootstrap intervals."""

    # consecutive tokens that are drawn together, as their losses depend on each other
    block: int = 200
    resamples: int = 1000  # streams drawn, with replacement
    level: float = 0.95  # share of the resamples within an interval
    seed: int = 1111  # of the draws

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Bootstrap:
        """Return the options that a result describes; missing ones take their defaults."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of a method over the unadapted model on one part of a stream."""

    part: str
    tokens: Count
    # mean loss of the unadapted model minus that of the method, in nats per token; None for an
    # empty part, and where a loss is infinite
    gain: float | None
    low: float | None  # lower end of the interval; None where the part is too small for one
    high: float | None

    @property
    def interval(self) -> Interval:
        """The gain with both ends of its interval."""
        return Interval(self.gain, self.low, self.high)

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0; one that is not known does not."""
        return self.interval.certain


def bootstrap_gains(
    nll: Mapping[str, Losses],
    parts: Mapping[str, NDArray[np.bool_]],
    config: Bootstrap,
    weights: NDArray[np.floating] | None = None,
) -> dict[str, tuple[Gain, ...]]:
    """Compute what every method gains over the unadapted one, part by part, with percentile
    intervals.

    Losses (T,) are in nats, parts (T,) bool; without the unadapted method or without tokens there
    is nothing.

    The stream is cut into blocks of consecutive tokens; a resample draws as many with replacement.
    The gain of a resample is the sum of its differences over the number of its tokens, or over the
    sum of their ``weights`` (T,). All methods and parts share the draws.
    """
    methods = without_base(nll)
    if BASE not in nll or not methods or not nll[BASE].size:
        return {}
    base = nll[BASE].astype(np.float64)
    total = base.size
    block = np.arange(total) // config.block  # (T,)
    blocks = -(-total // config.block)
    counts = np.zeros((blocks, len(parts)))  # (B, P)
    sums = np.zeros((blocks, len(methods), len(parts)))  # (B, M, P)
    infinite = np.zeros((len(methods), len(parts)), dtype=bool)
    for at, mask in enumerate(parts.values()):
        counts[:, at] = np.bincount(
            block[mask], None if weights is None else weights[mask], minlength=blocks
        )
        for index, name in enumerate(methods):
            ours = base[mask]
            theirs = nll[name][mask].astype(np.float64)
            infinite[index, at] = not (np.isfinite(ours).all() and np.isfinite(theirs).all())
            if not infinite[index, at]:
                sums[:, index, at] = np.bincount(
                    block[mask], weights=ours - theirs, minlength=blocks
                )
    low, high = _intervals(sums, counts, config)  # (M, P)
    enough = (counts > 0).sum(0) >= LEAST_BLOCKS  # (P,)
    tokens = counts.sum(0)
    by_method: dict[str, tuple[Gain, ...]] = {}
    for index, name in enumerate(methods):
        gains = []
        for at, part in enumerate(parts):
            gain = Interval(None, None, None)
            if tokens[at] and not infinite[index, at]:
                value = float(sums[:, index, at].sum() / tokens[at])
                gain = Interval(value, None, None)
                if enough[at]:
                    gain = Interval(value, float(low[index, at]), float(high[index, at]))
            gains.append(Gain(part, int(tokens[at]), gain.value, gain.low, gain.high))
        by_method[name] = tuple(gains)
    return by_method


def paired_gains(
    nll: Mapping[str, Losses], parts: Mapping[str, NDArray[np.bool_]], config: Bootstrap
) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """Compute what methods gain over each other, as JSON: by the method, one after it in ``nll``,
    and part.

    Each has its tokens, the mean loss of the first minus that of the second, nats per token, and
    both ends of its interval.
    """
    names = without_base(nll)
    paired: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for at, first in enumerate(names[:-1]):
        compared = {BASE: nll[first]}
        for second in names[at + 1 :]:
            compared[second] = nll[second]
        paired[first] = {}
        for second, gains in bootstrap_gains(compared, parts, config).items():
            paired[first][second] = {}
            for gain in gains:
                numbers = [gain.tokens, gain.gain, gain.low, gain.high]
                paired[first][second][gain.part] = numbers
    return paired


def lead(nll: Mapping[str, Losses], config: Bootstrap) -> dict[str, Any] | None:
    """Return how far the method with the lowest loss is ahead of the next, without the unadapted
    one, as JSON.

    None if fewer than two have a finite loss (T,).
    """
    finite = []
    for name, losses in nll.items():
        mean = float(losses.mean(dtype=np.float64))
        if name != BASE and math.isfinite(mean):
            finite.append((mean, name))
    finite.sort()
    if len(finite) < 2:
        return None
    (_, best), (_, following) = finite[:2]
    every = {"All": np.ones(nll[best].size, dtype=np.bool_)}
    gain = bootstrap_gains({BASE: nll[following], best: nll[best]}, every, config)[best][0]
    return {"best": best, "next": following, "gain": gain.gain, "low": gain.low, "high": gain.high}


def _intervals(
    sums: NDArray[np.float64], counts: NDArray[np.float64], config: Bootstrap
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends (M, P) of the interval from sums (B, M, P) and counts (B, P) by block.

    A draw without a token of a part says nothing about it and is left out for that part.
    """
    blocks, methods, parts = sums.shape
    generator = np.random.default_rng(config.seed)
    share = np.full(blocks, 1 / blocks)
    resampled = np.full((config.resamples, methods, parts), np.nan)
    step = max(1, _CELLS // blocks)
    for start in range(0, config.resamples, step):
        stop = min(start + step, config.resamples)
        draws = generator.multinomial(blocks, share, stop - start).astype(np.float64)  # (R, B)
        tokens = draws @ counts  # (R, P)
        drawn = (draws @ sums.reshape(blocks, -1)).reshape(-1, methods, parts)  # (R, M, P)
        np.divide(drawn, tokens[:, None], out=resampled[start:stop], where=tokens[:, None] > 0)
    tail = (1 - config.level) / 2
    nonempty = counts.any(0)  # (P,)
    ends = np.full((2, methods, parts), np.nan)
    if nonempty.any():
        ends[:, :, nonempty] = np.nanquantile(resampled[:, :, nonempty], (tail, 1 - tail), axis=0)
    return ends[0], ends[1]
