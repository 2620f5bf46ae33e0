"""The 8x8 handwritten digits that come with scikit-learn: real pictures without a download."""

from __future__ import annotations

import hashlib

import torch

from hebblm.vision.data.images import ImageDataset, Images

CLASSES = 10
WHITE = 16
TEST_SHARE = 0.2


def load_digits() -> ImageDataset:
    """Return the 1,797 digits; the last fifth is for testing."""
    from sklearn import datasets  # takes a second to import, and no other scale needs it

    found = datasets.load_digits()
    pixels = torch.from_numpy(found.images).to(torch.uint8).unsqueeze(1)  # (N, 1, 8, 8)
    labels = torch.from_numpy(found.target).to(torch.int64)
    read = hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    begin = len(labels) - int(TEST_SHARE * len(labels))
    return ImageDataset(
        "scikit-learn's digits",
        Images(pixels[:begin], labels[:begin], WHITE),
        Images(pixels[begin:], labels[begin:], WHITE),
        CLASSES,
        {"pixels and labels": read},
    )
