"""A backbone and its output head."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from hebblm.types import OutputHead


class Backbone(nn.Module):
    """Network from pictures to features.

    Args:
        layers: from pictures (N, 3, H, W) to maps (N, D, h, w).
        width: D.
    """

    def __init__(self, layers: nn.Module, width: int) -> None:
        super().__init__()
        self.layers = layers
        self.width = width

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the maps of pictures (N, 3, H, W), averaged over their places, as (N, D) float32."""
        return cast(Tensor, self.layers(pictures)).mean((2, 3), dtype=torch.float32)


class Classifier(nn.Module):
    """Features and a softmax layer over all classes, also those that are yet to come.

    Args:
        backbone: pictures to features.
        classes: C.

    ``reduced`` says whether the backbone computes in bfloat16 where that is safe; weights, features and head stay
    float32.
    """

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.output = nn.Linear(backbone.width, classes)
        self.reduced = False

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits (N, C) for pictures (N, 3, H, W)."""
        return cast(Tensor, self.output(self.features(pictures)))

    def features(self, pictures: Tensor) -> Tensor:
        """Return what the head multiplies (N, D) and the memory keeps as keys, for pictures (N, 3, H, W)."""
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16, enabled=self.reduced):
            return cast(Tensor, self.backbone(pictures))

    def head(self) -> OutputHead:
        """Return the softmax layer as every adapter takes it; it shares the module's storage."""
        return OutputHead(self.output.weight.detach(), self.output.bias.detach())


class BranchEnd(nn.BatchNorm2d):
    """The norm that ends a residual branch: zero at first, so that a block begins as its shortcut (Goyal 2017)."""


def convolution(
    maps_in: int,
    maps_out: int,
    size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.ReLU] | type[nn.ReLU6] = nn.ReLU,
) -> list[nn.Module]:
    """Return a convolution that keeps height and width but for its stride, its norm and its activation."""
    return [
        nn.Conv2d(maps_in, maps_out, size, stride=stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(maps_out),
        activation(inplace=True),
    ]


def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draw every weight anew: convolutions as He et al. 2015 (fan-out), norms the identity, a linear layer uniform.

    The norm at the end of a residual branch is zero instead.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.weight, 0.0 if isinstance(layer, BranchEnd) else 1.0)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
