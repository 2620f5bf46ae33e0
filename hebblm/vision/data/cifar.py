"""CIFAR-100 in its binary or its pickled layout, straight out of the archive."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hebblm.download import checked, find
from hebblm.errors import UserError, unreadable
from hebblm.vision.data.images import ImageDataset, Images, check_labels
from hebblm.vision.data.pickled import parse_pickle

FOLDER = "cifar-100"
BINARY = {"cifar-100-binary/train.bin": "train", "cifar-100-binary/test.bin": "test"}
PICKLED = {"cifar-100-python/train": "train", "cifar-100-python/test": "test"}
ARCHIVES = {
    "cifar-100-binary.tar.gz": (BINARY, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    "cifar-100-binary-rebuilt.tar.xz": (BINARY, "c3012c370652f8ec7443d26c3fcb28ed3044e1700cb585588dcaf500a9aea76d"),
    "cifar-100-python.tar.gz": (PICKLED, "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"),
}
"""By file name, the members that are read with the part that each holds, and the sha256."""
OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
CLASSES = 100
SUPERCLASSES = 20
SHAPE = (3, 32, 32)
RECORD = 3_074  # superclass, class, and the three colour planes
LONGEST = 1 << 30  # bytes of a member; the real ones have 154 and 31 million


def load_cifar100(folders: Sequence[Path], downloads: Path | None = None) -> ImageDataset:
    """Read CIFAR-100 from the first folder that has its archive.

    Args:
        folders: where to look for ``cifar-100/cifar-100-binary.tar.gz``, the official archive,
            ``cifar-100-binary-rebuilt.tar.xz``, the same pictures in another order within each class, or
            ``cifar-100-python.tar.gz``, the official archive of pickles.
        downloads: where to put the official archive where no folder has any; None downloads nothing.

    Raises:
        UserError: no archive, or one that is truncated, lacks a member, has records of another size, or of pickles one
            that is not the official one.
    """
    paths, official = [f"{FOLDER}/{name}" for name in ARCHIVES], next(iter(ARCHIVES))
    path = find(folders, paths, downloads, name=official, urls=(OFFICIAL,), known=ARCHIVES[official][1])
    members, known = ARCHIVES[path.name]
    found = checked(path, known, required=members is PICKLED)
    parts: dict[str, Images] = {}
    try:
        # The members are met in one pass, and nothing is written to disk.
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                part = members.get(member.name)
                if part is None or not member.isreg():
                    continue
                if member.size > LONGEST:
                    raise UserError(f"{path}: {member.name} has {member.size:,} bytes, which is no CIFAR-100")
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                data, source = stream.read(), f"{path}: {member.name}"
                if members is PICKLED:
                    parts[part] = parse_pickle(data, source, SHAPE, (CLASSES, SUPERCLASSES))
                else:
                    parts[part] = parse_records(data, source)
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # to the end, where the checksum of the archive is compared
    except (tarfile.TarError, lzma.LZMAError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is truncated or no archive ({error}); get the file again") from error
    except OSError as error:
        raise unreadable(path, error) from error
    for name, part in members.items():
        if part not in parts:
            raise UserError(f"{path} has no {name}; get CIFAR-100's own")
    return ImageDataset("CIFAR-100", parts["train"], parts["test"], CLASSES, {path.name: found})


def parse_records(data: bytes, source: str) -> Images:
    """Take records of 3,074 bytes apart: superclass, class, 1,024 red, green and blue values, row by row.

    Args:
        data: the bytes of one ``.bin`` file.
        source: what to call it in an error.

    Returns:
        The pictures (N, 3, 32, 32) with their fine labels.

    Raises:
        UserError: nothing, a part of a record, or a label out of range.
    """
    if not data or len(data) % RECORD:
        raise UserError(
            f"{source} has {len(data):,} bytes, not a multiple of {RECORD:,}; get the binary version of CIFAR-100"
        )
    records = torch.from_numpy(np.frombuffer(data, np.uint8).reshape(-1, RECORD).copy())
    labels = records[:, 1].to(torch.int64)
    check_labels(records[:, 0].to(torch.int64), SUPERCLASSES, source)
    check_labels(labels, CLASSES, source)
    return Images(records[:, 2:].reshape(-1, *SHAPE), labels)
