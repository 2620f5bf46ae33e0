"""The backbones by name: the paper's three, a narrow variant of each for CPUs, and one for pictures of a few pixels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from hebblm.vision.backbones.classifier import Backbone, Classifier, convolution, initialize
from hebblm.vision.backbones.densenet import densenet
from hebblm.vision.backbones.mobilenet import mobilenet_v2
from hebblm.vision.backbones.names import check_backbone
from hebblm.vision.backbones.resnet import resnet50
from hebblm.vision.seeds import generator


def plain(width: int) -> Backbone:
    """Return two convolutions with a halving between them, for pictures of a few pixels; D = 4 width.

    Args:
        width: maps of the first one.
    """
    layers = [*convolution(3, width, 3), nn.MaxPool2d(2), *convolution(width, 4 * width, 3)]
    return Backbone(nn.Sequential(*layers), 4 * width)


BACKBONES: dict[str, Callable[[], Backbone]] = {
    "resnet50": resnet50,
    "densenet121": partial(densenet, (6, 12, 24, 16), 32),
    "mobilenetv2": mobilenet_v2,
    "resnet50-w16": partial(resnet50, width=16),
    "densenet40-k12": partial(densenet, (6, 6, 6), 12),
    "mobilenetv2-x0.5": partial(mobilenet_v2, multiplier=0.5),
    "cnn2-w16": partial(plain, 16),
}


def build_classifier(name: str, classes: int, seed: int) -> Classifier:
    """Return an untrained classifier, the same weights for the same seed.

    Args:
        name: of the backbone.
        classes: C.
        seed: of the weights.

    Raises:
        UserError: an unknown backbone.
    """
    check_backbone(name)
    classifier = Classifier(BACKBONES[name](), classes)
    initialize(classifier, generator(seed, f"weights of {name}"))
    return classifier
