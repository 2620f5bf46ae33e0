"""Buckets of a stream's tokens, by training count and by occurrence of new words, and their
losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hebblm.errors import UserError
from hebblm.io.files import Count
from hebblm.report.numbers import perplexity

DEFAULT_EDGES = (50, 100, 500)
OCCURRENCES = ("1st", "2nd", "3rd", "4th-7th", "8th+")
_EDGES = (1, 2, 3, 7)  # earlier occurrences from which on the next name holds
_ROUNDING = 1e-9
ALL, OOV, KNOWN, PIECES = "All", "OOV", "Known", "Pieces"
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
        return cls(bucket, tokens, nll, None if nll is None else perplexity(nll))


def validate_edges(edges: Sequence[int | str]) -> tuple[int, ...]:
    """The edges as they are; UserError unless they are strictly increasing positive whole
    numbers.
    """
    numbers = [
        int(edge)
        for edge in edges
        if isinstance(edge, int | np.integer) and not isinstance(edge, bool)
    ]
    rising = all(low < high for low, high in pairwise(numbers))
    if not numbers or len(numbers) < len(edges) or numbers[0] <= 0 or not rising:
        raise UserError(
            f"frequency edges {list(edges)} must be increasing positive whole numbers, such as "
            "50,100,500"
        )
    return tuple(numbers)


def parse_edges(words: Iterable[int | str]) -> tuple[int, ...]:
    """Edges that are written with commas or apart."""
    parts = ",".join(map(str, words)).split(",")
    return validate_edges([int(part) if part.strip().isdecimal() else part for part in parts])


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
        mean = float(chosen.sum(dtype=np.float64)) / chosen.size if chosen.size else None
        buckets.append(FrequencyBucket.from_nll(label, int(chosen.size), mean))
    return buckets


def recombine(buckets: Sequence[FrequencyBucket]) -> float | None:
    """sum(tokens * nll) / sum(tokens) in nats per token, or None where there is no token."""
    tokens = sum(bucket.tokens for bucket in buckets)
    if tokens == 0:
        return None
    losses = [bucket.tokens * bucket.nll for bucket in buckets if bucket.nll is not None]
    return math.fsum(losses) / tokens


def gap_notes(totals: Iterable[tuple[Sequence[FrequencyBucket], float | None]]) -> list[str]:
    """Return a note on the largest error of the buckets' total loss; empty if they add up."""
    known = [(recombine(buckets), loss) for buckets, loss in totals]
    pairs = [(total, loss) for total, loss in known if total is not None and loss is not None]
    gaps = [
        abs(total - loss)
        for total, loss in pairs
        if not math.isclose(total, loss, rel_tol=_ROUNDING)
    ]
    return [f"Token-weighted, the buckets miss All by up to {max(gaps):.1e} nats."] if gaps else []


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
        parts |= {OOV: oov, KNOWN: ~oov}
    if train_counts is not None:
        indices = bucket_indices(train_counts, edges)  # (T,)
        parts |= {label: indices == at for at, label in enumerate(bucket_labels(edges))}
    if oov.any():
        parts |= dict(zip(OOV_BY_OCCURRENCE, occurrence_masks(seen, oov), strict=True))
    return parts
