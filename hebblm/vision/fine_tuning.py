"""How a pre-trained network goes on learning: from a small set of all classes, or from a stream of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from hebblm.vision.backbones import Classifier
from hebblm.vision.learning import (
    Training,
    batches,
    begin_new_rows,
    features,
    features_of,
    learn,
    one_cycle,
    optimizer_of,
    set_rate,
    warmed,
)
from hebblm.vision.pretraining import Pretrained
from hebblm.vision.reading import PictureBlock, Remembered, Snapshot
from hebblm.vision.settings import IncrementSettings, LearningSettings, OnlineSettings
from hebblm.vision.split import increment
from hebblm.vision.state import DivergedError, generator, stage
from hebblm.vision.tuning import ClassSetup

QUERIES = 100  # adapted at a time after an epoch
DRIFT = 1_000  # pictures whose keys are computed again in the end, at most


def learner(
    start: Pretrained, settings: LearningSettings, point: Mapping[str, float]
) -> tuple[Classifier, torch.optim.Optimizer]:
    """Return a copy of the pre-trained network, and what it goes on learning by."""
    network = start.copy()
    begin_new_rows(network, start.parts.new.to(start.device), settings.new_rows)
    return network, optimizer_of(network, settings, head=point["head"])


class FineTuning:
    """A copy of a network that learns an increment; the seed draws that and the order of its
    pictures.
    """

    def __init__(
        self,
        setup: ClassSetup,
        start: Pretrained,
        seed: int,
        *,
        ratio: int,
        point: Mapping[str, float],
    ) -> None:
        self._settings = setup.settings.increment
        self._point = point
        self.samples, self.fewer = increment(
            setup.dataset, start.parts, samples=self._settings.samples, ratio=ratio, seed=seed
        )
        network, optimizer = learner(start, self._settings, point)
        self.training = Training(
            network,
            optimizer,
            start.pictures("train"),
            setup.settings.pretraining,
            self._settings.norms == "frozen",
        )
        self._start = start
        self._seed = seed

    def learn(self, epoch: int, title: str) -> None:
        order = generator(self._seed, f"epoch {epoch} of the increment")
        size = self._settings
        steps = len(list(batches(self.samples, size.batch_size)))
        with stage(f"{title}, epoch {epoch + 1}: learn", len(self.samples)) as progress:
            self.training.epoch(
                self.samples,
                batch_size=size.batch_size,
                generator=order,
                lr=partial(increment_rate, size, self._point["lr"], epoch, steps=steps),
                progress=progress,
            )

    def snapshot(self, part: str, order: Tensor) -> Snapshot:
        """What the network makes of the pictures to predict, and of those it remembers."""
        network = self.training.classifier
        train = self.training.pictures
        tested = self._start.pictures(part)
        device = self._start.device
        parts = self._start.parts
        head = network.frozen_head()
        hidden = features_of(network, tested, order)
        blocks = []
        parts_of_order = torch.split(order, QUERIES)
        for rows, index in zip(torch.split(hidden, QUERIES), parts_of_order, strict=True):
            blocks.append(PictureBlock(head, rows, tested.labels[index.to(device)]))
        # Each picture counts once: the increment's pictures of old classes are among those of
        # pre-training.
        seen = torch.unique(torch.cat([parts.train, self.samples]))
        counts = torch.bincount(train.labels[seen.to(device)], minlength=len(parts.new))
        keys = features_of(network, train, self.samples)
        labels = train.labels[self.samples.to(device)]
        return Snapshot(blocks, Remembered(keys, labels, counts, parts.new.to(device)))


def increment_rate(
    settings: IncrementSettings, lr: float, epoch: int, step: int, steps: int
) -> float:
    """The backbone's rate at a step of an epoch of so many steps, all counted from 0."""
    done = epoch * steps + step
    if settings.schedule == "onecycle":
        return one_cycle(lr, done / (settings.epochs * steps))
    return warmed(lr, done, settings.warm_up)


class Stream:
    """A copy of a network that learns from a stream of pictures; the seed draws what it replays."""

    def __init__(
        self,
        setup: ClassSetup,
        start: Pretrained,
        part: str,
        order: Tensor,
        seed: int,
        point: Mapping[str, float],
    ) -> None:
        self._start = start
        self._part = part
        self._order = order
        self._settings: OnlineSettings = setup.settings.online
        self._crops = setup.settings.pretraining
        self._point = point
        self._network, self._optimizer = learner(start, self._settings, point)
        self._pictures = start.pictures(part)
        self._generator = generator(seed, "replay of the stream")
        self._taken = 0  # steps

    def __iter__(self) -> Iterator[PictureBlock]:
        """Yield the pictures block by block as the network sees them; it learns from a block when
        the next is asked for.
        """
        pictures = self._pictures
        seen = 0
        keys = None
        for number, index in enumerate(batches(self._order, self._settings.interval), 1):
            batch = pictures.batch(index)
            labels = self._labels(index)
            hidden = features(self._network, batch)
            yield PictureBlock(self._network.frozen_head(), hidden, labels, keys)
            seen += len(index)
            self._step(batch, labels)
            for _ in range(int(self._point["steps"]) - 1):
                self._replay(self._order[:seen])
            every = self._settings.rebuilt
            keys = self._keys(seen) if every and number % every == 0 else None

    def _labels(self, index: Tensor) -> Tensor:
        return self._pictures.labels[index.to(self._pictures.labels.device)]

    def _replay(self, scored: Tensor) -> None:
        """Take a step on pictures drawn from those at ``scored`` (n,), cropped and mirrored
        anew.
        """
        drawn = torch.randperm(len(scored), generator=self._generator)
        index = scored[drawn[: self._settings.batch_size]]
        crops = self._crops
        varied = self._pictures.varied(
            index, self._generator, padding=crops.padding, flip=crops.flip
        )
        self._step(varied, self._labels(index))

    def _step(self, pictures: Tensor, labels: Tensor) -> None:
        set_rate(self._optimizer, warmed(self._point["lr"], self._taken, self._settings.warm_up))
        loss = learn(
            self._network,
            self._optimizer,
            pictures,
            labels,
            frozen_norms=self._settings.norms == "frozen",
        )
        self._taken += 1
        if not bool(loss.isfinite()):
            raise DivergedError(f"training diverged with lr = {self._point['lr']:g}; lower it")

    def _keys(self, seen: int) -> Tensor:
        """All keys (m + n, D), of pre-training and of the stream so far, by the network as it
        is.
        """
        old = features_of(self._network, self._start.pictures("train"), self._start.parts.train)
        read = features_of(self._network, self._pictures, self._order[:seen])
        return torch.cat([old, read])

    def drift(self, old: Remembered, blocks: list[PictureBlock]) -> dict[str, float]:
        """How far keys of pre-training and of the stream are from what the network gives in the
        end.

        Each is the mean of |key now - key stored| / |key stored| over pictures drawn at random.
        """
        draw = generator(self._start.pretraining.seed, "pictures whose drift is measured")
        samples = self._start.parts.train
        drawn = torch.randperm(len(samples), generator=draw)[:DRIFT]
        now = features_of(self._network, self._start.pictures("train"), samples[drawn])
        stored = torch.cat([block.hidden for block in blocks])
        drawn_stored = torch.randperm(len(stored), generator=draw)[:DRIFT]
        own_now = features_of(self._network, self._pictures, self._order[drawn_stored])
        return {
            "drift_of_pretraining_keys": _moved(old.keys[drawn.to(now.device)], now),
            "drift_of_stream_keys": _moved(stored[drawn_stored.to(now.device)], own_now),
        }


def _moved(stored: Tensor, now: Tensor) -> float:
    size = stored.norm(dim=1).clamp_min(torch.finfo(stored.dtype).tiny)
    return float(((now - stored).norm(dim=1) / size).double().mean())
