"""MNIST in its original idx files, packed or not."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hebblm.download import checked, find
from hebblm.errors import UserError, unreadable
from hebblm.vision.data.images import ImageDataset, Images, check_labels

FOLDER = "mnist"
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
SERVERS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""Of the packed files."""
SIDE = 28
CLASSES = 10
LARGEST = 1 << 28  # bytes of values, five times MNIST's
UNSIGNED_BYTES = 0x08


def load_mnist(folders: Sequence[Path], downloads: Path | None = None) -> ImageDataset:
    """Read MNIST from the first folder that has ``mnist/``'s files, each ``.gz`` or unpacked.

    Args:
        folders: where to look.
        downloads: where to put a file that no folder has; None downloads nothing.

    Raises:
        UserError: a file is missing, truncated, not of its kind, or does not match the other.
    """
    parts: dict[str, Images] = {}
    hashes: dict[str, str] = {}
    for part, stems in FILES.items():
        pictures, classes = (_found(folders, stem, downloads) for stem in stems)
        pixels, labels = read_idx(pictures, 3), read_idx(classes, 1)
        if pixels.shape[1:] != (SIDE, SIDE):
            size = "x".join(map(str, pixels.shape[1:]))
            raise UserError(f"{pictures} has pictures of {size} pixels, not {SIDE}x{SIDE}; get MNIST's own")
        if len(pixels) != len(labels):
            raise UserError(
                f"{pictures} has {len(pixels):,} pictures and {classes} {len(labels):,} labels; get both again"
            )
        labels = labels.to(torch.int64)
        check_labels(labels, CLASSES, classes)
        parts[part] = Images(pixels.unsqueeze(1), labels)
        for path in (pictures, classes):
            hashes[path.name] = checked(path, SHA256.get(path.stem) if path.suffix == ".gz" else None)
    return ImageDataset("MNIST", parts["train"], parts["test"], CLASSES, hashes)


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an idx file of unsigned bytes.

    The format: two zero bytes, 8 for unsigned bytes, the number of dimensions; each size as four bytes, most
    significant first; then the values, last index fastest.

    Args:
        path: the file; one that ends in ``.gz`` is unpacked on the way.
        dimensions: how many the file has to have.

    Returns:
        uint8 of the sizes in the header.

    Raises:
        UserError: truncated, damaged, longer than its header says, empty, or of another kind.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            sizes = _header(stream, path, dimensions)
            expected = math.prod(sizes)
            values = stream.read(expected + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is truncated or damaged ({error}); get the file again") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if len(values) != expected:
        found = "more" if len(values) > expected else f"only {len(values):,}"
        raise UserError(f"{path} should hold {expected:,} bytes by its header but has {found}; get the file again")
    return torch.from_numpy(np.frombuffer(values, np.uint8).reshape(sizes).copy())


def _header(stream: BufferedIOBase, path: Path, dimensions: int) -> list[int]:
    """Read the sizes at the beginning of an idx file."""
    head = stream.read(4 + 4 * dimensions)
    magic = bytes((0, 0, UNSIGNED_BYTES, dimensions))
    if head[:4] != magic[: len(head[:4])] or not head:
        raise UserError(
            f"{path} begins with {head[:4].hex() or 'nothing'}, not {magic.hex()}: no idx file of {dimensions} "
            "dimensions; get MNIST's own"
        )
    if len(head) < 4 + 4 * dimensions:
        raise UserError(f"{path} is truncated within its header; get the file again")
    sizes = [int.from_bytes(head[at : at + 4], "big") for at in range(4, len(head), 4)]
    if math.prod(sizes) > LARGEST:  # to be read at once
        raise UserError(f"{path} says it holds {math.prod(sizes):,} bytes, MNIST has fewer; get MNIST's own")
    if 0 in sizes:
        raise UserError(f"{path} is empty by its header (sizes {sizes}); get the file again")
    return sizes


def _found(folders: Sequence[Path], stem: str, downloads: Path | None) -> Path:
    """Return ``STEM.gz`` or ``STEM``, downloaded where there is none."""
    paths, urls = (f"{FOLDER}/{stem}.gz", f"{FOLDER}/{stem}"), [f"{server}/{stem}.gz" for server in SERVERS]
    return find(folders, paths, downloads, name=f"{stem}.gz", urls=urls, known=SHA256[stem])
