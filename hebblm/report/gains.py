"""Gains of a method over the unadapted model on parts of a stream, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hebblm.io.files import Count
from hebblm.report.methods import BASE

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
        return cls(
            **{field.name: values[field.name] for field in fields(cls) if field.name in values}
        )


def leaves_out_zero(low: float | None, high: float | None) -> bool:
    """Whether an interval leaves out 0; one that is not known does not."""
    return low is not None and high is not None and (low > 0 or high < 0)


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
    def certain(self) -> bool:
        return leaves_out_zero(self.low, self.high)


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
    methods = [name for name in nll if name != BASE]
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
            ours, theirs = base[mask], nll[name][mask].astype(np.float64)
            infinite[index, at] = not (np.isfinite(ours).all() and np.isfinite(theirs).all())
            if not infinite[index, at]:
                sums[:, index, at] = np.bincount(
                    block[mask], weights=ours - theirs, minlength=blocks
                )
    low, high = _intervals(sums, counts, config)  # (M, P)
    enough = (counts > 0).sum(0) >= LEAST_BLOCKS  # (P,)
    tokens = counts.sum(0)
    return {
        name: tuple(
            Gain(
                part,
                int(tokens[at]),
                float(sums[:, index, at].sum() / tokens[at])
                if tokens[at] and not infinite[index, at]
                else None,
                float(low[index, at]) if enough[at] and not infinite[index, at] else None,
                float(high[index, at]) if enough[at] and not infinite[index, at] else None,
            )
            for at, part in enumerate(parts)
        )
        for index, name in enumerate(methods)
    }


def paired_gains(
    nll: Mapping[str, Losses], parts: Mapping[str, NDArray[np.bool_]], config: Bootstrap
) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """Compute what methods gain over each other, as JSON: by the method, one after it in ``nll``,
    and part.

    Each has its tokens, the mean loss of the first minus that of the second, nats per token, and
    both ends of its interval.
    """
    names = [name for name in nll if name != BASE]
    paired: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for at, first in enumerate(names[:-1]):
        gains = bootstrap_gains(
            {BASE: nll[first], **{n: nll[n] for n in names[at + 1 :]}}, parts, config
        )
        paired[first] = {
            second: {gain.part: [gain.tokens, gain.gain, gain.low, gain.high] for gain in theirs}
            for second, theirs in gains.items()
        }
    return paired


def lead(nll: Mapping[str, Losses], config: Bootstrap) -> dict[str, Any] | None:
    """Return how far the method with the lowest loss is ahead of the next, without the unadapted
    one, as JSON.

    None if fewer than two have a finite loss (T,).
    """
    means = {
        name: float(losses.mean(dtype=np.float64)) for name, losses in nll.items() if name != BASE
    }
    finite = sorted((mean, name) for name, mean in means.items() if np.isfinite(mean))
    if len(finite) < 2:
        return None
    best, following = finite[0][1], finite[1][1]
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
