"""Convolutional networks for 32x32 pictures: features for the same memory and the same adapters as hidden states."""

from __future__ import annotations

from hebblm.vision.backbones.catalogue import BACKBONES, build_classifier, check_backbone
from hebblm.vision.backbones.classifier import Backbone, Classifier

__all__ = ["BACKBONES", "Backbone", "Classifier", "build_classifier", "check_backbone"]
