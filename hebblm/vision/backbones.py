"""Convolutional networks for 32x32 pictures: the paper's three, narrow variants for CPUs, and a
plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from hebblm.types import OutputHead
from hebblm.vision.settings import Backbone as Name
from hebblm.vision.state import generator

EXPANSION = 4  # a block of ResNet gives four times the maps it convolves
BOTTLENECK = 4  # maps after DenseNet's 1x1 convolution, in growths
COMPRESSION = 0.5  # of a transition of DenseNet
STAGES = (  # of MobileNetV2: expansion, maps, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, LAST = 32, 1280  # maps of MobileNetV2
DIVISOR = 8


class Backbone(nn.Module):
    """Network from pictures (N, 3, H, W) to features: ``layers`` gives maps (N, D, h, w), and
    ``width`` is D.
    """

    def __init__(self, layers: nn.Module, width: int) -> None:
        super().__init__()
        self.layers = layers
        self.width = width

    def forward(self, pictures: Tensor) -> Tensor:
        """The maps of pictures (N, 3, H, W), averaged over their places, as (N, D) float32."""
        return cast(Tensor, self.layers(pictures)).mean((2, 3), dtype=torch.float32)


class Classifier(nn.Module):
    """Features and a softmax layer over all classes, also those that are yet to come.

    ``reduced`` says whether the backbone computes in bfloat16 where that is safe; weights, features
    and head stay float32.
    """

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.output = nn.Linear(backbone.width, classes)
        self.reduced = False

    def forward(self, pictures: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.features(pictures)))

    def features(self, pictures: Tensor) -> Tensor:
        """What the head multiplies (N, D) and the memory keeps as keys, for pictures (N, 3, H,
        W).
        """
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16, enabled=self.reduced):
            return cast(Tensor, self.backbone(pictures))

    def head(self) -> OutputHead:
        return OutputHead(self.output.weight.detach(), self.output.bias.detach())

    def frozen_head(self) -> OutputHead:
        """The head as it is now, whatever is learnt later."""
        return OutputHead(self.output.weight.detach().clone(), self.output.bias.detach().clone())


class _BranchEnd(nn.BatchNorm2d):
    """The norm that ends a residual branch: zero at first, so that a block begins as its shortcut
    (Goyal 2017).
    """


def _convolution(
    maps_in: int,
    maps_out: int,
    size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.ReLU] | type[nn.ReLU6] = nn.ReLU,
) -> list[nn.Module]:
    """A convolution that keeps height and width but for its stride, its norm and its activation."""
    return [
        nn.Conv2d(
            maps_in, maps_out, size, stride=stride, padding=size // 2, groups=groups, bias=False
        ),
        nn.BatchNorm2d(maps_out),
        activation(inplace=True),
    ]


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the middle one has the stride, and the block
    gives 4 ``inner``.

    Of ResNet-50 (He et al. 2016).
    """

    def __init__(self, maps_in: int, inner: int, stride: int) -> None:
        super().__init__()
        maps_out = EXPANSION * inner
        self.residual = nn.Sequential(
            *_convolution(maps_in, inner, 1),
            *_convolution(inner, inner, 3, stride=stride),
            nn.Conv2d(inner, maps_out, 1, bias=False),
            _BranchEnd(maps_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or maps_in != maps_out:
            self.shortcut = nn.Sequential(*_convolution(maps_in, maps_out, 1, stride=stride)[:-1])

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.residual(maps) + self.shortcut(maps)).relu()


def _resnet50(*, width: int = 64) -> Backbone:
    """ResNet-50's features with a 3x3 stem of stride 1 and no pooling after it; D = 32 width."""
    layers = _convolution(3, width, 3)
    maps = width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for block in range(blocks):
            layers.append(_Bottleneck(maps, inner, stride=2 if stage > 0 and block == 0 else 1))
            maps = EXPANSION * inner
    return Backbone(nn.Sequential(*layers), maps)


class _DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution whose ``growth`` maps are joined to the input (Huang et al.
    2017).
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
        return torch.cat([maps, cast(Tensor, self.added(maps))], dim=1)


def _densenet(blocks: Sequence[int], growth: int) -> Backbone:
    """The features of DenseNet-BC with so many layers in each dense block, and transitions that
    halve.
    """
    maps = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, maps, 3, padding=1, bias=False)]
    for at, count in enumerate(blocks):
        for _ in range(count):
            layers.append(_DenseLayer(maps, growth))
            maps += growth
        if at + 1 < len(blocks):
            fewer = int(COMPRESSION * maps)
            layers += [
                nn.BatchNorm2d(maps),
                nn.ReLU(inplace=True),
                nn.Conv2d(maps, fewer, 1, bias=False),
            ]
            layers.append(nn.AvgPool2d(2))
            maps = fewer
    return Backbone(nn.Sequential(*layers, nn.BatchNorm2d(maps), nn.ReLU(inplace=True)), maps)


class _InvertedResidual(nn.Module):
    """Widen, filter each map by itself, narrow; what came in is added where the shape allows
    (Sandler et al. 2018).
    """

    def __init__(self, maps_in: int, maps_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = expansion * maps_in
        layers = _convolution6(maps_in, inner, 1) if expansion > 1 else []
        layers += _convolution6(inner, inner, 3, stride=stride, groups=inner)
        layers += _convolution6(inner, maps_out, 1)[:-1]  # a linear end
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and maps_in == maps_out

    def forward(self, maps: Tensor) -> Tensor:
        maps_after = cast(Tensor, self.layers(maps))
        return maps + maps_after if self.adds else maps_after


_convolution6 = partial(_convolution, activation=nn.ReLU6)


def _mobilenet_v2(*, multiplier: float = 1.0) -> Backbone:
    """MobileNetV2's features, of so many times the published maps everywhere but at the end.

    The stem and the second stage keep the resolution.
    """

    def scaled(maps: int, by: float = multiplier) -> int:
        """A number of maps that 8 divides, at most a tenth below the scaled one."""
        wished = maps * by
        rounded = max(DIVISOR, int(wished + DIVISOR / 2) // DIVISOR * DIVISOR)
        return rounded + DIVISOR if rounded < 0.9 * wished else rounded

    maps = scaled(STEM)
    layers = _convolution6(3, maps, 3)
    for expansion, published, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(
                _InvertedResidual(maps, scaled(published), expansion, stride if block == 0 else 1)
            )
            maps = scaled(published)
    last = scaled(LAST, max(1.0, multiplier))
    return Backbone(nn.Sequential(*layers, *_convolution6(maps, last, 1)), last)


def _plain(width: int) -> Backbone:
    """Two convolutions with a halving between them, for pictures of a few pixels; D = 4 width."""
    layers = [*_convolution(3, width, 3), nn.MaxPool2d(2), *_convolution(width, 4 * width, 3)]
    return Backbone(nn.Sequential(*layers), 4 * width)


MADE: dict[Name, Callable[[], Backbone]] = {
    "resnet50": _resnet50,
    "densenet121": partial(_densenet, (6, 12, 24, 16), 32),
    "mobilenetv2": _mobilenet_v2,
    "resnet50-w16": partial(_resnet50, width=16),
    "densenet40-k12": partial(_densenet, (6, 6, 6), 12),
    "mobilenetv2-x0.5": partial(_mobilenet_v2, multiplier=0.5),
    "cnn2-w16": partial(_plain, 16),
}


def build_classifier(name: Name, classes: int, seed: int) -> Classifier:
    """An untrained classifier, the same weights for the same seed.

    Convolutions are drawn as He et al. 2015 (fan-out), a linear layer uniformly; norms are the
    identity, and zero at the end of a residual branch.
    """
    classifier = Classifier(MADE[name](), classes)
    draws = generator(seed, f"weights of {name}")
    for layer in classifier.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(
                layer.weight, mode="fan_out", nonlinearity="relu", generator=draws
            )
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.weight, 0.0 if isinstance(layer, _BranchEnd) else 1.0)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=draws)
            nn.init.uniform_(layer.bias, -bound, bound, generator=draws)
    return classifier
