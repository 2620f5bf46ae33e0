"""ResNet-50 for small pictures (He et al. 2016): a 3x3 stem of stride 1 and no pooling after it."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from hebblm.vision.backbones.classifier import Backbone, BranchEnd, convolution

EXPANSION = 4  # a block gives four times the maps it convolves


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the middle one carries the stride.

    Args:
        maps_in: C_in.
        inner: maps within; the block gives ``4 inner``.
        stride: of the block.
    """

    def __init__(self, maps_in: int, inner: int, stride: int) -> None:
        super().__init__()
        maps_out = EXPANSION * inner
        self.residual = nn.Sequential(
            *convolution(maps_in, inner, 1),
            *convolution(inner, inner, 3, stride=stride),
            nn.Conv2d(inner, maps_out, 1, bias=False),
            BranchEnd(maps_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or maps_in != maps_out:
            self.shortcut = nn.Sequential(*convolution(maps_in, maps_out, 1, stride=stride)[:-1])

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, 4 inner, H / stride, W / stride)."""
        return cast(Tensor, self.residual(maps) + self.shortcut(maps)).relu()


def resnet50(*, width: int = 64) -> Backbone:
    """Return ResNet-50's features; D = 32 width.

    Args:
        width: maps of the stem and within the first blocks; 64 is the published network.
    """
    layers = convolution(3, width, 3)
    maps = width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for block in range(blocks):
            layers.append(Bottleneck(maps, inner, stride=2 if stage > 0 and block == 0 else 1))
            maps = EXPANSION * inner
    return Backbone(nn.Sequential(*layers), maps)
