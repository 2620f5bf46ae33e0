"""MobileNetV2 for small pictures (Sandler et al. 2018): the stem and the second stage keep the resolution."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from hebblm.vision.backbones.classifier import Backbone, convolution

STAGES = (  # expansion, maps, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, LAST = 32, 1280
DIVISOR = 8
_convolution = partial(convolution, activation=nn.ReLU6)


class InvertedResidual(nn.Module):
    """Inverted residual: widen, filter each map by itself, narrow; what came in is added where the shape allows.

    Args:
        maps_in: C_in.
        maps_out: C_out.
        expansion: how much wider it is within.
        stride: of the filter.
    """

    def __init__(self, maps_in: int, maps_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = expansion * maps_in
        layers = _convolution(maps_in, inner, 1) if expansion > 1 else []
        layers += _convolution(inner, inner, 3, stride=stride, groups=inner)
        layers += _convolution(inner, maps_out, 1)[:-1]  # a linear end
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and maps_in == maps_out

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C_out, H / stride, W / stride)."""
        made = cast(Tensor, self.layers(maps))
        return maps + made if self.adds else made


def mobilenet_v2(*, multiplier: float = 1.0) -> Backbone:
    """Return MobileNetV2's features; D = 1280 up to multiplier 1.

    Args:
        multiplier: scales the number of maps everywhere but at the end; 1 is the published network.
    """
    maps = _scaled(STEM, multiplier)
    layers = _convolution(3, maps, 3)
    for expansion, maps_out, blocks, stride in STAGES:
        wide = _scaled(maps_out, multiplier)
        for block in range(blocks):
            layers.append(InvertedResidual(maps, wide, expansion, stride if block == 0 else 1))
            maps = wide
    last = _scaled(LAST, max(1.0, multiplier))
    return Backbone(nn.Sequential(*layers, *_convolution(maps, last, 1)), last)


def _scaled(maps: int, multiplier: float) -> int:
    """Return a number of maps that 8 divides, at most a tenth below the scaled one."""
    wished = maps * multiplier
    rounded = max(DIVISOR, int(wished + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded + DIVISOR if rounded < 0.9 * wished else rounded
