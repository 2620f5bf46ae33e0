"""CIFAR-100 in its binary layout, straight out of the archive."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hebblm.errors import UserError
from hebblm.files import sha256
from hebblm.vision.images import ImageDataset, Images, check_labels

FOLDER = "cifar-100"
ARCHIVES = ("cifar-100-binary.tar.gz", "cifar-100-binary-rebuilt.tar.xz")
MEMBERS = {"cifar-100-binary/train.bin": "train", "cifar-100-binary/test.bin": "test"}
CLASSES = 100
SUPERCLASSES = 20
SHAPE = (3, 32, 32)
RECORD = 3_074  # superclass, class, and the three colour planes
LONGEST = 1 << 30  # bytes of a member; the real ones have 154 and 31 million


def load_cifar100(folders: Sequence[Path]) -> ImageDataset:
    """Read CIFAR-100 from the first folder that has its archive.

    Args:
        folders: where to look for ``cifar-100/cifar-100-binary.tar.gz``, the official archive, or
            ``cifar-100-binary-rebuilt.tar.xz``, the same pictures in another order within each class.

    Raises:
        UserError: no archive, or one that is truncated, lacks a member or has records of another size.
    """
    path = _find(folders)
    parts: dict[str, Images] = {}
    try:
        # As a stream: the members are met in one pass, and nothing is written to disk.
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                part = MEMBERS.get(member.name)
                if part is None or not member.isreg():
                    continue
                if member.size > LONGEST:
                    raise UserError(f"{path}: {member.name} has {member.size:,} bytes, which is no CIFAR-100")
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                parts[part] = parse_records(stream.read(), f"{path}: {member.name}")
                if len(parts) == len(MEMBERS):
                    break
    except (tarfile.TarError, lzma.LZMAError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is truncated or no archive ({error}); get the file again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    for name, part in MEMBERS.items():
        if part not in parts:
            raise UserError(f"{path} has no {name}; get the binary version of CIFAR-100")
    return ImageDataset("CIFAR-100", parts["train"], parts["test"], CLASSES, {path.name: sha256(path)})


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


def _find(folders: Sequence[Path]) -> Path:
    """Return the first archive that there is."""
    for folder in folders:
        for name in ARCHIVES:
            if (folder / FOLDER / name).is_file():
                return folder / FOLDER / name
    places = ", ".join(str(folder / FOLDER) for folder in folders)
    raise UserError(
        f"no {ARCHIVES[0]} in {places}; put the archive into {FOLDER}/ below a folder named by HEBBLM_DATA"
    )
