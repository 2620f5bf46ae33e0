"""Points of a grid, and the best of them by their losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import torch

from hebblm.adapt.block import learning_places
from hebblm.adapt.functional.mixture_weights import OnlineMixtureWeights
from hebblm.adapt.grid import near
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import current

Losses = npt.NDArray[np.float64]
Point = dict[str, float | str]  # hyper-parameters by dotted name


def points(section: str, **axes: Iterable[float | str]) -> list[Point]:
    """Return every combination of some values of a section, the last axis fastest."""
    names = [f"{section}.{name}" for name in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*axes.values())]


def next_to(tried: Sequence[Point], point: Point) -> list[Point]:
    """Return those of some points, all combinations of some values, that are next to a point along
    every axis.
    """
    left = list(tried)
    for name, value in point.items():
        kept = near([other[name] for other in tried], [value])
        left = [other for other in left if other[name] in kept]
    return left


def divided(count: int, compute: Callable[[Sequence[int]], Mapping[int, Losses]]) -> list[Losses]:
    """Losses (T,) of some points, each computed by one of the ranks; every rank gets all."""
    ranks = current()
    indices = ranks.tasks(count)
    losses = compute(indices)
    if ranks.size == 1 or not count:
        return [losses[index] for index in indices]
    # the bar is the first process's own, and a reading of the others may cost more
    if len(indices) < count:
        log(f"{len(indices)} of {count} points are done here; waiting for the other processes")
    tokens = max((len(values) for values in losses.values()), default=0)
    rows = np.zeros((0, max(ranks.all_gather_object(tokens))))
    if len(indices):
        rows = np.stack([losses[index] for index in indices])
    # by rank (n, T)
    by_rank = [part.numpy() for part in ranks.all_gather_rows(torch.from_numpy(rows))]
    return [by_rank[index % ranks.size][index // ranks.size] for index in range(count)]


@dataclass(slots=True)
class BestPoint:
    """The best point of a grid so far."""

    loss: float = float("inf")  # mean loss, nats
    values: Point = field(default_factory=dict)  # by dotted name
    losses: Losses = field(default_factory=lambda: np.zeros(0))  # (T,) of that point
    tried: list[Point] = field(default_factory=list)  # every point's values and mean loss
    # values by dotted name that a point must have where it has that name
    fixed: Mapping[str, float | str] = field(default_factory=dict)

    def offer(self, values: Point, losses: Losses) -> None:
        """Keep a point if it is better; a loss that is not finite never is."""
        if self._improves(values, float(losses.mean())):
            self.losses = losses

    def offer_means(self, points: Sequence[Point], means: Losses) -> None:
        """Keep the best of some points by their mean losses (P,); its losses token by token are not
        known yet.
        """
        for values, mean in zip(points, means.tolist(), strict=True):
            self._improves(values, mean)

    def _improves(self, values: Point, mean: float) -> bool:
        """Record a point, and return whether it is the best so far among those with the fixed
        values.
        """
        if not np.isfinite(mean):
            mean = float("inf")
        self.tried.append({**values, "nll": mean})
        allowed = all(values.get(name, value) == value for name, value in self.fixed.items())
        if not allowed or not mean < self.loss:
            return False
        self.loss = mean
        self.values = values
        return True


def mixed(memory: Losses, base: Losses, weight: float | str, every: int) -> Losses:
    """Return the loss (T,) of memories with share ``weight`` and a base with the rest, from their
    losses, nats.

    The shares among the memories, with losses (C, T), are learned. ``weight`` is a number, or
    learned online as a context learns it, with intervals of so many tokens.
    """
    parts = np.stack([*np.atleast_2d(memory), base], 1)  # (T, C + 1)
    total = None if isinstance(weight, str) else weight
    learned = OnlineMixtureWeights((0.0,) * (parts.shape[1] - 1), total=total)
    mixture_weights = np.empty_like(parts)
    places = learning_places(range(0, len(base), every), len(base))
    for begin, end in pairwise([*places, len(base)]):
        mixture_weights[begin:end] = learned.value
        if total is None or len(learned.owned) > 1:
            learned = learned.after(parts[begin:end].tolist())
    with np.errstate(divide="ignore"):  # a share of 0
        losses: Losses = -np.logaddexp.reduce(np.log(mixture_weights) - parts, axis=1)
    return losses


def with_shares(
    tried: Iterable[tuple[Point, Losses]],
    base: Losses,
    name: str,
    mixture_weights: Iterable[float | str],
    every: int,
) -> Iterator[tuple[Point, Losses]]:
    """Yield each point with each share ``name`` of its memories, and the losses (T,) with the rest
    for the base.
    """
    for point, losses in tried:
        for share in mixture_weights:
            yield {**point, name: share}, mixed(losses, base, share, every)
