"""What the ranks of a command exchange in an interval when their streams share one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context, Observation
from hebblm.runtime.ranks import ALONE, Ranks

Observed = Sequence[tuple[Context, Observation]]
"""Observations of scored mini-batches, each with the context that learns from it."""


@dataclass(frozen=True, slots=True)
class MemoryRanks:
    """The ranks that share a memory: all of them write to it before any goes on.

    A process that is alone exchanges nothing.

    Args:
        ranks: ranks of the command.
    """

    ranks: Ranks = ALONE

    @property
    def is_parallel(self) -> bool:
        return self.ranks.size > 1

    def search(self, batch: EvalBatch) -> None:
        """Find the neighbours of a mini-batch, which may be empty: all ranks search together."""
        if self.is_parallel:
            _ = batch.found

    def gather_labels(self, labels: Tensor) -> list[Tensor]:
        """Return the labels (M,) of every rank, by rank, given those of this one."""
        return self.ranks.all_gather_rows(labels) if self.is_parallel else [labels]

    def observe(
        self, context: Context, observed: Observed, labels: Sequence[Tensor], *, write: bool
    ) -> None:
        """Give contexts their observations, and the shared context the labels of the others.

        Args:
            context: the shared one; with a single rank it may be any.
            observed: observations of this rank.
            labels: labels (M,) of every rank, by rank.
            write: whether observed pairs go to the memory.
        """
        for owner, observation in observed:
            owner.observe(observation, write=write)
        if self.is_parallel:
            context.observe_ranks(labels, self.ranks.rank, write=write)

    def count_ngrams(self, context: Context, observed: Observed) -> None:
        """Count the n-grams of observations; every rank counts those of all, in the same order."""
        if not self.is_parallel or context.ngrams is None:
            for owner, observation in observed:
                owner.count_ngrams(observation)
            return
        rows = [context.observed.new_zeros(0, context.ngrams.order + 1)]
        for owner, observation in observed:
            contexts, labels = owner.pass_on(observation)
            rows.append(torch.from_numpy(np.c_[contexts, labels]).to(rows[0].device))
        for gathered in self.ranks.all_gather_rows(torch.cat(rows)):
            counted = gathered.cpu().numpy()
            context.ngrams.add(counted[:, :-1], counted[:, -1])
