"""Step of every reading: predict, score, then learn. No method sees a label before it is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context, Observation

Observed = Sequence[tuple[Context, Observation]]
"""Observations of scored mini-batches, each with the context that learns from it."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A mini-batch and its labels."""

    batch: EvalBatch
    labels: Tensor  # (N,)
    places: npt.NDArray[np.int64] | None = None  # (N,) places of its tokens in a text, for scoring


def take(observed: Observed, *, write: bool = True) -> None:
    """Take observations into counts, windows, shares and, with ``write``, memories."""
    for context, observation in observed:
        context.take(observation, write=write)
        context.count(observation)


def step(
    batches: Iterable[Labelled],
    score: Callable[[Labelled], None],
    learn: Callable[[Sequence[Tensor]], None] | None = None,
    *,
    observe: Callable[[EvalBatch, Tensor], Observation] = EvalBatch.observation,
    take: Callable[[Observed], None] = take,
) -> Observed:
    """Predict, score, then learn mini-batches that are read together: all are scored before any is
    learned from.

    Args:
        batches: made one by one; each is predicted from the state before all of them.
        score: records the losses of one.
        learn: trains the base on the labels (N,) of all, and gives the contexts its head; None if
            neither the base nor a method learns.
        observe: returns the observation of a mini-batch and its labels, with the head that scored
            it.
        take: gives the observations to the contexts, after the base has learned.
    """
    observed: list[tuple[Context, Observation]] = []
    for item in batches:
        score(item)
        if learn is not None:
            observed.append((item.batch.context, observe(item.batch, item.labels)))
    if learn is not None:
        learn([observation.labels for _, observation in observed])
        take(observed)
    return observed
