"""Setup of the experiments on new classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch

from hebblm.files import hash_of
from hebblm.vision.errors import DivergedError
from hebblm.vision.new_classes.learning import features_of
from hebblm.vision.new_classes.methods import ImageMethod
from hebblm.vision.new_classes.pretraining import Pretrained, Pretraining, pretrained
from hebblm.vision.new_classes.reading import Predicted, Remembered, Snapshot, read
from hebblm.vision.new_classes.settings import ClassSettings
from hebblm.vision.setup import NUMBERS, Setup, program, stage
from hebblm.vision.state import Step


class ClassSetup(Setup[ClassSettings]):
    """An experiment on new classes before it is run."""

    __slots__ = ()

    def check(self, *old_classes: int) -> None:
        """Raise UserError for sizes that the data set does not have, before anything is trained."""
        for count in old_classes:
            for seed in self.seeds:
                Pretraining.of(self.dataset, self.settings, count, seed)

    def start(self, seed: int, old_classes: int) -> Pretrained:
        """Return the network that a seed starts from, trained first where the cache does not have it."""
        wanted = Pretraining.of(self.dataset, self.settings, old_classes, seed)
        return pretrained(wanted, self.cache, self.device)

    def read(
        self, snapshot: Snapshot, methods: Mapping[str, ImageMethod], title: str, *, observes: bool
    ) -> dict[str, Predicted]:
        """Let methods predict the pictures of a snapshot; see :func:`hebblm.vision.new_classes.reading.read`.

        Raises:
            DivergedError: the network's own predictions are no numbers.
        """
        if not all(bool(block.head.logits(block.hidden).isfinite().all()) for block in snapshot.blocks):
            raise DivergedError(f"{title}: training diverged; lower the learning rate")
        with stage(f"{title}: adapt", len(snapshot.labels)) as progress:
            return read(
                snapshot.blocks,
                snapshot.remembered,
                methods,
                k=self.settings.adaptation.k,
                observes=observes,
                progress=progress,
            )

    def run_of(self, start: Pretrained, seed: int, **further: Any) -> str:
        """Return a hash of everything that decides about the numbers of a stage."""
        settings = asdict(self.settings)
        # The grid of the heat map and the size of the timing decide about no prediction.
        decides = {name: settings[name] for name in ("increment", "online", "adaptation")}
        return hash_of(
            {
                **decides,
                "pretraining": start.pretraining.run,
                "held_out": self.settings.held_out,
                "seed": seed,
                "device": self.device.type,
                "program": program(*NUMBERS, "vision/backbones", "vision/new_classes"),
                **further,
            }
        )


@lru_cache(maxsize=1)  # read once for all rates of a tuning
def old_memory(start: Pretrained) -> Remembered:
    """Return the pairs of pre-training, keys as the pre-trained network gives them."""
    samples, pictures = start.pretraining.parts.train, start.pictures("train")
    with stage("keys of the pre-training pictures", len(samples)) as progress:
        keys = features_of(start.copy(), pictures, samples, progress)
    labels = pictures.labels[samples.to(start.device)]
    new = start.pretraining.parts.new.to(start.device)
    return Remembered(keys, labels, torch.bincount(labels, minlength=len(new)), new)


def as_step(predicted: Mapping[str, Predicted]) -> Step:
    """Return predictions, and how many queries had to be adapted at a smaller rate, as the state of a run has them."""
    made = {name: each.classes for name, each in predicted.items()}
    return made, {name: {"stabilized": each.stabilized} for name, each in predicted.items()}
