"""Labelled pictures in memory, and what a data set is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.errors import UserError


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures and their classes.

    Args:
        pixels: (N, C, H, W) uint8 brightness.
        labels: (N,) int64.
        white: the largest brightness there can be.
    """

    pixels: Tensor
    labels: Tensor
    white: int = 255

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        """Pixels of a picture, C H W."""
        return self.pixels[0].numel()

    def flat(self, index: Tensor) -> Tensor:
        """Return the pictures at ``index`` (n,) as rows (n, C H W) float32 within [0, 1]."""
        return self.pixels[index].flatten(1).to(torch.float32) / self.white


@dataclass(frozen=True, slots=True)
class ImageDataset:
    """A data set in its two parts.

    Args:
        name: as tables write it.
        train: the training part.
        test: the test part.
        classes: V, the number of classes.
        sha256: by file, or by part where there is no file, of the bytes that were read.
    """

    name: str
    train: Images
    test: Images
    classes: int
    sha256: Mapping[str, str]


def check_labels(labels: Tensor, classes: int, source: object) -> None:
    """Refuse labels (N,) outside of [0, classes).

    Raises:
        UserError: naming the source and the first offender.
    """
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise UserError(
            f"{source} has label {int(labels[at])} at {at}, but there are {classes} classes; get the file again"
        )
