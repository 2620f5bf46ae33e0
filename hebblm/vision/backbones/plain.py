"""Two convolutions for pictures of a few pixels, where a deep network has nothing left to look at."""

from __future__ import annotations

from torch import nn

from hebblm.vision.backbones.classifier import Backbone


def plain(width: int) -> Backbone:
    """Return two 3x3 convolutions with a norm each and a halving between them; D = 4 width.

    Args:
        width: maps of the first one.
    """
    layers = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 4 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(inplace=True),
    )
    return Backbone(layers, 4 * width)
