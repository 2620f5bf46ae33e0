"""The tasks of a seed: permutations of the pixels, and which samples each task gets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.vision.data.images import ImageDataset, Images
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.seeds import generator


@dataclass(frozen=True)
class Draw:
    """Permutations and samples that a seed decides about the tasks.

    Args:
        permutations: (T, D) int64; task t shows pixel ``permutations[t, j]`` of a picture at place j.
        train: (T, n) int64 samples of each task among the training part; the first ones are those stored.
        held_out: (m,) int64 samples of the training part that are in no task.
        test: (n,) int64 samples of the test part.
    """

    permutations: Tensor
    train: Tensor
    held_out: Tensor
    test: Tensor


def draw(dataset: ImageDataset, settings: PermutedSettings, seed: int) -> Draw:
    """Draw the tasks of a seed; the first tasks are the same whatever their number.

    Raises:
        UserError: more samples asked for than there are.
    """
    rest = len(dataset.train) - settings.held_out
    if settings.train_samples > rest:
        raise UserError(
            f"train_samples = {settings.train_samples} and held_out = {settings.held_out} are more than the "
            f"{len(dataset.train):,} samples of {dataset.name}; lower one"
        )
    if settings.test_samples > len(dataset.test):
        raise UserError(
            f"test_samples = {settings.test_samples} is more than the {len(dataset.test):,} test samples of "
            f"{dataset.name}; lower it"
        )
    order = torch.randperm(len(dataset.train), generator=generator(seed, "held out"))
    held_out, pool = order[: settings.held_out], order[settings.held_out :]
    pixels, samples = generator(seed, "permutations"), generator(seed, "samples")
    width, tasks = dataset.train.width, range(settings.tasks)
    chosen = [pool[torch.randperm(len(pool), generator=samples)[: settings.train_samples]] for _ in tasks]
    test = torch.randperm(len(dataset.test), generator=generator(seed, "test"))[: settings.test_samples]
    return Draw(
        permutations=torch.stack([torch.randperm(width, generator=pixels) for _ in tasks]),
        train=torch.stack(chosen),
        held_out=held_out,
        test=test,
    )


class TaskStream:
    """A seed's tasks as tensors on a device; each method returns pixels (n, D) and labels (n,).

    Args:
        dataset: the pictures.
        settings: of the run.
        seed: draws the tasks.
        device: where the samples go.

    Raises:
        UserError: more samples asked for than there are.
    """

    def __init__(self, dataset: ImageDataset, settings: PermutedSettings, seed: int, device: torch.device) -> None:
        self.dataset, self.settings, self.seed, self.device = dataset, settings, seed, device
        self.drawn = draw(dataset, settings, seed)

    def train(self, task: int) -> tuple[Tensor, Tensor]:
        """Return the training samples of a task."""
        return self._take(self.dataset.train, self.drawn.train[task], task)

    def stored(self, task: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the ``size`` samples of a task that go to the memory."""
        return self._take(self.dataset.train, self.drawn.train[task, :size], task)

    def held_out(self, task: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the first ``size`` held-out samples as the task shows them."""
        return self._take(self.dataset.train, self.drawn.held_out[:size], task)

    def test(self, task: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the first ``size`` test samples as the task shows them."""
        return self._take(self.dataset.test, self.drawn.test[:size], task)

    @property
    def test_labels(self) -> Tensor:
        """Labels (n,) int64 of the test samples, on the CPU."""
        return self.dataset.test.labels[self.drawn.test]

    def counts(self, tasks: int) -> Tensor:
        """Return how many training samples of each class the first ``tasks`` tasks have (C,) int64."""
        labels = self.dataset.train.labels[self.drawn.train[:tasks].flatten()]
        return torch.bincount(labels, minlength=self.dataset.classes).to(self.device)

    def _take(self, images: Images, index: Tensor, task: int) -> tuple[Tensor, Tensor]:
        pixels = images.flat(index)[:, self.drawn.permutations[task]]
        return pixels.to(self.device), images.labels[index].to(self.device)
