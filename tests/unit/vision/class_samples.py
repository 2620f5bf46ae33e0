"""A small data set with more classes than a test pre-trains on, and settings to match."""

from __future__ import annotations

from pathlib import Path

import torch

from hebblm.vision.data import ImageDataset, Images
from hebblm.vision.settings import (
    AdaptationSettings,
    ClassSettings,
    IncrementSettings,
    OnlineSettings,
    PretrainingSettings,
    SensitivitySettings,
    TimingSettings,
)
from hebblm.vision.state import Setup
from hebblm.vision.tuning import ClassSetup

CPU = torch.device("cpu")


def classes(seed: int = 0, *, count: int = 6, train: int = 24, test: int = 8, side: int = 8) -> ImageDataset:
    """Return pictures of ``count`` classes in three planes, each class a pattern of its own under noise."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = torch.randint(0, 200, (count, 3, side, side), generator=generator)

    def part(each: int) -> Images:
        labels = torch.arange(count).repeat(each)
        noise = torch.randint(0, 56, (len(labels), 3, side, side), generator=generator)
        return Images((prototypes[labels] + noise).to(torch.uint8), labels)

    return ImageDataset("classes", part(train), part(test), count, {"seed": str(seed)})


TINY = ClassSettings(
    backbone="cnn2-w16",
    old_classes=3,
    varied=(2, 3),
    held_out=4,
    pretraining=PretrainingSettings(epochs=(2, 1), lr=(0.1, 0.01), batch_size=16, padding=1, flip=False),
    increment=IncrementSettings(
        samples=6, ratios=(1, 3), epochs=2, reported=(1, 2), batch_size=16, lr=(1e-3, 1e-2), tested=24
    ),
    online=OnlineSettings(interval=8, lr=(1e-4, 1e-3), streamed=40),
    adaptation=AdaptationSettings(
        k=6,
        mixture_theta=(0.1,),
        mixture_gamma=(0.1, 0.3),
        mbpa_lambda=(1e-2,),
        mbpa_steps=(2,),
        mbpa_pull=(1e-3,),
        hebb_beta=(0.5,),
        hebb_eta=(0.1, 1.0),
        hebb_constant=(0.5,),
        rings=(4, 9),
    ),
    sensitivity=SensitivitySettings(beta=(0.5, 0.8), eta=(0.2, 1.0)),
    timing=TimingSettings(rounds=2, samples=16),
)


def setup(folder: Path, settings: ClassSettings = TINY, seeds: tuple[int, ...] = (1,)) -> ClassSetup:
    """Return an experiment on the small data set; its cache is ``folder``/cache."""
    return Setup(classes(), settings, seeds, device=CPU, cache=folder / "cache", folder=folder / "out")
