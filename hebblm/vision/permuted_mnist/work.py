"""Progress of a whole experiment, in arithmetic done, so that its estimate holds across unlike stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, TaskID

from hebblm.progress import bar
from hebblm.vision.permuted_mnist.settings import PermutedSettings


class Work:
    """Count of a run's floating-point operations, in billions.

    Args:
        progress: the display.
        task: the bar in it.
        settings: sizes, from which the costs follow.
        width: D, pixels of a picture.
        classes: C.
    """

    def __init__(self, progress: Progress, task: TaskID, settings: PermutedSettings, width: int, classes: int) -> None:
        self._progress = progress
        self._task = task
        hidden, k, steps = settings.hidden, settings.k, settings.steps
        # Forward and backward of one sample: two operations a weight, three times.
        self._epoch = 6e-9 * settings.train_samples * hidden * (width + classes)
        # One adapted query: the Gram matrix, its product with D in each step, and the output layer.
        self._query = 2e-9 * k * (k * width + steps * hidden * (k + 3 * classes) + 2 * hidden)
        self._epochs = settings.epochs

    def plan(self, *, tasks: int, queries: int) -> None:
        """Lengthen the bar by tasks to be trained and queries to be adapted."""
        more = tasks * self._epochs * self._epoch + queries * self._query
        self._progress.update(self._task, total=(self._progress.tasks[self._task].total or 0.0) + more)

    def describe(self, stage: str) -> None:
        """Say what is being done."""
        self._progress.update(self._task, description=stage)

    def epochs(self, count: int) -> None:
        """Count epochs of training."""
        self._progress.advance(self._task, count * self._epoch)

    def queries(self, count: int) -> None:
        """Count adapted queries."""
        self._progress.advance(self._task, count * self._query)

    def skip(self, *, tasks: int, queries: int) -> None:
        """Shorten the bar by what an interrupted run had finished, which says nothing about the speed."""
        self.plan(tasks=-tasks, queries=-queries)


@contextmanager
def work(settings: PermutedSettings, width: int, classes: int) -> Iterator[Work]:
    """Show a bar while the block runs."""
    with bar() as progress:
        task = progress.add_task("permuted MNIST", total=None, unit="GFLOP")
        yield Work(progress, task, settings, width, classes)
