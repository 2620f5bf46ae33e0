"""Convolutional networks for 32x32 pictures: features for the same memory and the same adapters as hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily

if TYPE_CHECKING:
    from hebblm.vision.backbones.catalogue import BACKBONES, build_classifier
    from hebblm.vision.backbones.classifier import Backbone, Classifier
    from hebblm.vision.backbones.names import check_backbone

__all__ = ["BACKBONES", "Backbone", "Classifier", "build_classifier", "check_backbone"]

if not TYPE_CHECKING:  # a name that is none stays an error for the type checker
    __getattr__ = lazily(__name__, "names", "catalogue", "classifier")
