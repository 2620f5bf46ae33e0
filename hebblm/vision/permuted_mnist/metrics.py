"""Metrics of an accuracy matrix: average accuracy, forgetting and transfer from task to task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

MISSING = 255
"""Stands for no prediction: the task had not been learnt yet, or the sample was not tested."""


@dataclass(frozen=True, slots=True)
class ContinualResult:
    """Accuracies of one method with one seed, as shares within [0, 1].

    Args:
        accuracy: (T, T) rows; ``accuracy[t][i]`` is that on task i <= t after task t was learnt.
    """

    accuracy: tuple[tuple[float, ...], ...]

    @property
    def curve(self) -> tuple[float, ...]:
        """Return the mean over the tasks learnt so far, after each task (the paper's Fig. mnist)."""
        return tuple(sum(row) / len(row) for row in self.accuracy)

    @property
    def average_accuracy(self) -> float:
        """Return the mean over all tasks after the last one."""
        return self.curve[-1]

    @property
    def forgetting(self) -> float | None:
        """Return how far each task but the last fell from its best so far, on average (Chaudhry et al. 2018)."""
        last = len(self.accuracy) - 1
        drops = [
            max(self.accuracy[t][i] for t in range(i, last)) - self.accuracy[last][i] for i in range(last)
        ]
        return sum(drops) / len(drops) if drops else None

    @property
    def backward_transfer(self) -> float | None:
        """Return how far each task but the last rose since it was learnt, on average (Lopez-Paz and Ranzato 2017)."""
        last = len(self.accuracy) - 1
        rises = [self.accuracy[last][i] - self.accuracy[i][i] for i in range(last)]
        return sum(rises) / len(rises) if rises else None


def continual_result(predictions: Tensor, labels: Tensor) -> ContinualResult:
    """Return the accuracies of predictions.

    Args:
        predictions: (T, T, n) uint8; [t, i] are those on task i after task t, ``MISSING`` where none was made.
        labels: (n,) int64, the same for all tasks.
    """
    made = (predictions != MISSING).sum(2)  # (T, T)
    shares = (predictions == labels).sum(2).double() / made
    return ContinualResult(tuple(tuple(shares[t, : t + 1].tolist()) for t in range(len(shares))))
