"""DenseNet-BC for small pictures (Huang et al. 2017): bottlenecks, and transitions that halve the maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from hebblm.vision.backbones.classifier import Backbone

BOTTLENECK = 4  # maps after the 1x1 convolution, in growths
COMPRESSION = 0.5


class DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution whose maps are put beside those that came in.

    Args:
        maps_in: C_in.
        growth: k, how many maps are added.
    """

    def __init__(self, maps_in: int, growth: int) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        self.added = nn.Sequential(
            nn.BatchNorm2d(maps_in),
            nn.ReLU(inplace=True),
            nn.Conv2d(maps_in, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, growth, 3, padding=1, bias=False),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C_in + k, H, W)."""
        return torch.cat([maps, cast(Tensor, self.added(maps))], dim=1)


def densenet(blocks: Sequence[int], growth: int) -> Backbone:
    """Return DenseNet-BC's features.

    Args:
        blocks: layers of each dense block; (6, 12, 24, 16) is DenseNet-121, (6, 6, 6) is L = 40.
        growth: k; the stem has 2 k maps.
    """
    maps = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, maps, 3, padding=1, bias=False)]
    for at, count in enumerate(blocks):
        for _ in range(count):
            layers.append(DenseLayer(maps, growth))
            maps += growth
        if at + 1 < len(blocks):
            fewer = int(COMPRESSION * maps)
            layers += [
                nn.BatchNorm2d(maps),
                nn.ReLU(inplace=True),
                nn.Conv2d(maps, fewer, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            maps = fewer
    layers += [nn.BatchNorm2d(maps), nn.ReLU(inplace=True)]
    return Backbone(nn.Sequential(*layers), maps)
