"""Small data sets with their settings, and archives, made up or cut from the real ones' layout."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hebblm.vision.data import ImageDataset, Images
from hebblm.vision.settings import (
    AdaptationSettings,
    ClassSettings,
    IncrementSettings,
    OnlineSettings,
    PermutedSettings,
    PretrainingSettings,
    SensitivitySettings,
    TimingSettings,
)  # fmt: skip
from hebblm.vision.state import Setup
from hebblm.vision.tuning import ClassSetup

CPU = torch.device("cpu")


def after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, interrupted at a later call."""
    count = itertools.count()

    def interrupted(*args: object, **options: object) -> Any:
        if next(count) >= calls:
            raise KeyboardInterrupt
        return function(*args, **options)

    return interrupted


def idx(sizes: tuple[int, ...], values: bytes, *, kind: int = 8) -> bytes:
    """Return an idx file."""
    header = bytes((0, 0, kind, len(sizes))) + b"".join(size.to_bytes(4, "big") for size in sizes)
    return header + values


def mnist_files(folder: Path, *, train: int = 6, test: int = 4) -> Path:
    """Write the four files of MNIST with few pictures; picture i is of class i mod 10, its pixels
    count on.
    """
    place = folder / "mnist"
    place.mkdir()
    for stem, count in (("train", train), ("t10k", test)):
        pixels = bytes(at % 256 for at in range(count * 784))
        labels = bytes(at % 10 for at in range(count))
        images = gzip.compress(idx((count, 28, 28), pixels))
        (place / f"{stem}-images-idx3-ubyte.gz").write_bytes(images)
        (place / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((count,), labels)))
    return place


def cifar_record(
    fine: int, *, coarse: int = 3, red: int = 10, green: int = 20, blue: int = 30
) -> bytes:
    """Return one record whose first pixel of each plane is one brighter than the others."""
    planes = b"".join(
        bytes([min(255, value + 1)]) + bytes([value]) * 1023 for value in (red, green, blue)
    )
    return bytes([coarse, fine]) + planes


def tiny_cifar(folder: Path) -> Path:
    """Write CIFAR-100's archive with three pictures of each class to train on and one to test
    with.
    """
    members = {
        f"cifar-100-binary/{part}.bin": b"".join(
            cifar_record(
                fine, coarse=fine % 20, red=fine + at, green=2 * fine, blue=255 - 2 * fine - at
            )
            for at in range(count)
            for fine in range(100)
        )
        for part, count in (("train", 3), ("test", 1))
    }
    return archive(folder / "cifar-100" / "cifar-100-binary.tar.gz", members)


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    """Write a tar file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def patterns(seed: int = 0, *, train: int = 200, test: int = 40, side: int = 4) -> ImageDataset:
    """Return pictures of three classes, each a pattern of its own under noise."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = torch.randint(0, 200, (3, 1, side, side), generator=generator)

    def part(count: int) -> Images:
        labels = torch.randint(3, (count,), generator=generator)
        noise = torch.randint(0, 56, (count, 1, side, side), generator=generator)
        return Images((prototypes[labels] + noise).to(torch.uint8), labels)

    return ImageDataset("patterns", part(train), part(test), 3, {"seed": str(seed)})


TINY = PermutedSettings(
    tasks=3, train_samples=60, test_samples=20, curve_samples=8, held_out=20, hidden=16, epochs=3,
    batch_size=16,
    lr=1e-2, stored=(5, 10), k=6, steps=2, ewc_lambda=(10.0, 100.0), mbpa_lambda=(0.05, 0.5),
    hebb_beta=(0.5,),
    hebb_eta=(0.2, 1.0), tune_tasks=2, tune_samples=10,
)  # fmt: skip


def classes(
    seed: int = 0, *, count: int = 6, train: int = 24, test: int = 8, side: int = 8
) -> ImageDataset:
    """Return pictures of ``count`` classes in three planes, each class a pattern of its own under
    noise.
    """
    generator = torch.Generator().manual_seed(seed)
    prototypes = torch.randint(0, 200, (count, 3, side, side), generator=generator)

    def part(each: int) -> Images:
        labels = torch.arange(count).repeat(each)
        noise = torch.randint(0, 56, (len(labels), 3, side, side), generator=generator)
        return Images((prototypes[labels] + noise).to(torch.uint8), labels)

    return ImageDataset("classes", part(train), part(test), count, {"seed": str(seed)})


TINY_CLASSES = ClassSettings(
    backbone="cnn2-w16",
    old_classes=3,
    varied=(2, 3),
    held_out=4,
    pretraining=PretrainingSettings(
        epochs=(2, 1), lr=(0.1, 0.01), batch_size=16, padding=1, flip=False
    ),
    increment=IncrementSettings(
        samples=6,
        ratios=(1, 3),
        epochs=2,
        reported=(1, 2),
        batch_size=16,
        lr=(1e-3, 1e-2),
        tested=24,
        curve_tested=12,
    ),
    online=OnlineSettings(interval=8, lr=(1e-4, 1e-3), steps=(2,), batch_size=6, streamed=40),
    adaptation=AdaptationSettings(
        k=6,
        mixture_theta=(0.1,),
        mixture_gamma=(0.1, 0.3),
        mbpa_lambda=(1e-2,),
        mbpa_steps=(2,),
        mbpa_l2_to_base=(1e-3,),
        hebb_beta=(0.5,),
        hebb_eta=(0.1, 1.0),
        hebb_constant=(0.5,),
        best_lr=(0.15,),
        rings=(4, 9),
    ),
    sensitivity=SensitivitySettings(beta=(0.5, 0.8), eta=(0.2, 1.0)),
    timing=TimingSettings(rounds=2, samples=16),
)


def setup(
    folder: Path, settings: ClassSettings = TINY_CLASSES, seeds: tuple[int, ...] = (1,)
) -> ClassSetup:
    """Return an experiment on the small data set; its cache is ``folder``/cache."""
    return Setup(
        classes(), settings, seeds, device=CPU, cache=folder / "cache", folder=folder / "out"
    )
