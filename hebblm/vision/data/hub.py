"""Pictures that a library brings: MNIST and CIFAR-100 from the Hugging Face hub, the digits of scikit-learn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hebblm.download import load_dataset
from hebblm.errors import UserError
from hebblm.vision.data.images import ImageDataset, Images, check_labels

WHITE = 16  # of the digits
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Data set on the hub, and how it has to look.

    Args:
        identifier: on the hub.
        name: as tables write it.
        picture: the column of pictures.
        label: the column of classes.
        shape: planes, rows and columns of a picture.
        classes: how many.
    """

    identifier: str
    name: str
    picture: str
    label: str
    shape: tuple[int, int, int]
    classes: int


MNIST = HubDataset("ylecun/mnist", "MNIST", "image", "label", (1, 28, 28), 10)
CIFAR100 = HubDataset("uoft-cs/cifar100", "CIFAR-100", "img", "fine_label", (3, 32, 32), 100)


def load_hub(wanted: HubDataset) -> ImageDataset:
    """Return a data set from the hub, or from what ``datasets`` has of it in its cache.

    Raises:
        UserError: neither, a column or a part is missing, or a picture or a class is of another kind.
    """
    loaded = load_dataset(
        wanted.identifier,
        None,
        name=f"{wanted.identifier} from the hub",
        remedy="check the network, or use --data files",
    )
    parts, hashes = {}, {}
    for part in ("train", "test"):
        if part not in loaded:
            raise UserError(f"{wanted.identifier} has no part {part!r}; use --data files")
        parts[part] = _images(loaded[part], wanted, part)
        read = parts[part].pixels.numpy().tobytes() + parts[part].labels.numpy().astype("<i8").tobytes()
        hashes[f"{wanted.identifier}: pixels and labels of {part}"] = hashlib.sha256(read).hexdigest()
    return ImageDataset(wanted.name, parts["train"], parts["test"], wanted.classes, hashes)


def _images(rows: Any, wanted: HubDataset, part: str) -> Images:
    source = f"{wanted.identifier}, {part}"
    for column in (wanted.picture, wanted.label):
        if column not in rows.column_names:
            raise UserError(f"{source} has no column {column!r}; use --data files")
    pixels = torch.empty(len(rows), *wanted.shape, dtype=torch.uint8)
    height, width = wanted.shape[1:]
    for at, row in enumerate(rows):
        picture = np.asarray(row[wanted.picture])
        if picture.dtype != np.uint8 or picture.size != pixels[0].numel():
            raise UserError(f"{source}: picture {at} is not of {height}x{width} pixels; use --data files")
        pixels[at] = torch.from_numpy(picture.reshape(height, width, -1).copy()).permute(2, 0, 1)
    labels = torch.tensor(rows[wanted.label][:], dtype=torch.int64)
    check_labels(labels, wanted.classes, source)
    return Images(pixels, labels)


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
        10,
        {"pixels and labels": read},
    )
