"""Labelled pictures: MNIST and CIFAR-100 from their files or the Hugging Face hub, and the digits
of scikit-learn.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import math
import pickle
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hebblm.errors import UserError, unreadable
from hebblm.io.download import checked, find, load_dataset

DIGITS_WHITE = 16
DIGITS_TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures and their classes."""

    pixels: Tensor  # (N, C, H, W) uint8 brightness
    labels: Tensor  # (N,) int64
    white: int = 255  # the largest brightness there can be

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        """Pixels of a picture, C H W."""
        return self.pixels[0].numel()

    def flat(self, index: Tensor) -> Tensor:
        """The pictures at ``index`` (n,) as rows (n, C H W) float32 within [0, 1]."""
        return self.pixels[index].flatten(1).to(torch.float32) / self.white


@dataclass(frozen=True, slots=True)
class ImageDataset:
    """A data set in its two parts."""

    name: str
    train: Images
    test: Images
    classes: int
    # by file, or by part where there is not a file, of the bytes that were read
    sha256: Mapping[str, str]


def _check_labels(labels: Tensor, classes: int, source: object) -> None:
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        known = f"but there are {classes} classes"
        raise UserError(
            f"{source} has label {int(labels[at])} at {at}, {known}; get the file again"
        )


MNIST_FOLDER = "mnist"
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
MNIST_SERVERS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
MNIST_SHA256 = {  # of the packed files
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SIDE = 28
LARGEST = 1 << 28  # bytes that are read, five times MNIST's
UNSIGNED_BYTES = 0x08


def load_mnist(folders: Sequence[Path], downloads: Path | None = None) -> ImageDataset:
    """Read MNIST from the first folder that has ``mnist/``'s files, each ``.gz`` or unpacked, or
    download it.
    """
    parts: dict[str, Images] = {}
    hashes: dict[str, str] = {}
    for part, stems in MNIST_FILES.items():
        pictures, classes = (_found(folders, stem, downloads) for stem in stems)
        pixels, labels = _read_idx(pictures, 3), _read_idx(classes, 1)
        if pixels.shape[1:] != (SIDE, SIDE):
            size = "x".join(map(str, pixels.shape[1:]))
            raise UserError(
                f"{pictures} has pictures of {size} pixels, not {SIDE}x{SIDE}; get MNIST's own"
            )
        if len(pixels) != len(labels):
            raise UserError(
                f"{pictures} has {len(pixels):,} pictures and {classes} {len(labels):,} labels; "
                "get both again"
            )
        labels = labels.to(torch.int64)
        _check_labels(labels, MNIST.classes, classes)
        parts[part] = Images(pixels.unsqueeze(1), labels)
        for path in (pictures, classes):
            hashes[path.name] = checked(
                path, MNIST_SHA256.get(path.stem) if path.suffix == ".gz" else None
            )
    return ImageDataset(MNIST.name, parts["train"], parts["test"], MNIST.classes, hashes)


def _found(folders: Sequence[Path], stem: str, downloads: Path | None) -> Path:
    paths = (f"{MNIST_FOLDER}/{stem}.gz", f"{MNIST_FOLDER}/{stem}")
    urls = [f"{server}/{stem}.gz" for server in MNIST_SERVERS]
    return find(folders, paths, downloads, name=f"{stem}.gz", urls=urls, known=MNIST_SHA256[stem])


def _read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an idx file, packed where its name ends in ``.gz``.

    It has two zero bytes, 8 for unsigned bytes, the number of dimensions, each size as four bytes,
    and the values.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(LARGEST)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is truncated or damaged ({error}); get the file again") from error
    except OSError as error:
        raise unreadable(path, error) from error
    magic = bytes((0, 0, UNSIGNED_BYTES, dimensions))
    begin = 4 + 4 * dimensions
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, begin, 4)]
    expected = begin + math.prod(sizes)
    if data[:4] != magic or 0 in sizes:
        raise UserError(
            f"{path} is not an idx file of bytes in {dimensions} dimensions; get MNIST's own"
        )
    if len(data) != expected:
        raise UserError(
            f"{path} should hold {expected:,} bytes by its header, not {len(data):,}; get the file "
            "again"
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=begin).reshape(sizes).copy())


CIFAR_FOLDER = "cifar-100"
BINARY = {"cifar-100-binary/train.bin": "train", "cifar-100-binary/test.bin": "test"}
PICKLED = {"cifar-100-python/train": "train", "cifar-100-python/test": "test"}
# by file name, the members that are read with the part that each holds, and the sha256
ARCHIVES = {
    "cifar-100-binary.tar.gz": (
        BINARY,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    # The same pictures in another order within each class.
    "cifar-100-binary-rebuilt.tar.xz": (
        BINARY,
        "c3012c370652f8ec7443d26c3fcb28ed3044e1700cb585588dcaf500a9aea76d",
    ),
    "cifar-100-python.tar.gz": (
        PICKLED,
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
}
OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
SUPERCLASSES = 20
RECORD = 3_074  # superclass, class, and the three colour planes
MAX_MEMBER_BYTES = 1 << 30  # bytes of a member; the real ones have 154 and 31 million
FIELDS = (b"data", b"fine_labels", b"coarse_labels")  # of a pickle


def load_cifar100(folders: Sequence[Path], downloads: Path | None = None) -> ImageDataset:
    """Read CIFAR-100 from the first folder that has one of its archives in ``cifar-100/``, or
    download it.
    """
    paths = [f"{CIFAR_FOLDER}/{name}" for name in ARCHIVES]
    official = next(iter(ARCHIVES))
    path = find(
        folders, paths, downloads, name=official, urls=(OFFICIAL,), known=ARCHIVES[official][1]
    )
    members, known = ARCHIVES[path.name]
    digest = checked(path, known, required=members is PICKLED)
    parts: dict[str, Images] = {}
    try:
        # The members are met in one pass, and nothing is written to disk.
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                part = members.get(member.name)
                if part is None or not member.isreg():
                    continue
                if member.size > MAX_MEMBER_BYTES:
                    raise UserError(
                        f"{path}: {member.name} has {member.size:,} bytes; CIFAR-100 has fewer, "
                        "download it again"
                    )
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                parse = _parse_pickle if members is PICKLED else parse_records
                parts[part] = parse(stream.read(), f"{path}: {member.name}")
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # to the end, where the checksum of the archive is compared
    except (tarfile.TarError, lzma.LZMAError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{path} is truncated or not an archive ({error}); get the file again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    for name, part in members.items():
        if part not in parts:
            raise UserError(f"{path} has no {name}; get CIFAR-100's own")
    return ImageDataset(
        CIFAR100.name, parts["train"], parts["test"], CIFAR100.classes, {path.name: digest}
    )


def parse_records(data: bytes, source: str) -> Images:
    """Take records apart: superclass, class, 1,024 red, green and blue values, row by row."""
    if not data or len(data) % RECORD:
        raise UserError(
            f"{source} has {len(data):,} bytes, not a multiple of {RECORD:,}; get the binary "
            "version of CIFAR-100"
        )
    records = torch.from_numpy(np.frombuffer(data, np.uint8).reshape(-1, RECORD).copy())
    labels = records[:, 1].to(torch.int64)
    _check_labels(records[:, 0].to(torch.int64), SUPERCLASSES, source)
    _check_labels(labels, CIFAR100.classes, source)
    return Images(records[:, 2:].reshape(-1, *CIFAR100.shape), labels)


def _latin1(text: str, encoding: str) -> bytes:
    """Bytes that a new Python wrote as text in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(
            f"it asks for the encoding {encoding!r}, which no picture needs"
        )
    return text.encode("latin1")


_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    # What an array of bytes and a dictionary need, by the names that old and new versions of NumPy
    # write.
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    """Knows the few names of the allow-list and refuses every other one, so that a pickle cannot
    run anything.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no picture needs")
        return _ALLOWED[module, name]


def _parse_pickle(data: bytes, source: str) -> Images:
    """Take the pictures and fine labels out of a pickled dictionary."""
    try:
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        raise UserError(
            f"{source} is not a pickle of CIFAR-100 ({error}); get the file again"
        ) from error
    if not isinstance(content, dict) or any(field not in content for field in FIELDS):
        raise UserError(
            f"{source} has no {', '.join(field.decode() for field in FIELDS)}; get CIFAR-100's own"
        )
    pixels = content[FIELDS[0]]
    width = RECORD - 2
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (width,)
    ):
        raise UserError(f"{source} holds no pictures of {width:,} bytes; get CIFAR-100's own")
    labels = []
    for field, classes in zip(FIELDS[1:], (CIFAR100.classes, SUPERCLASSES), strict=True):
        values = content[field]
        name = field.decode()
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise UserError(f"{source}: {name} is not a list of whole numbers; get CIFAR-100's own")
        if len(values) != len(pixels):
            raise UserError(
                f"{source} has {len(pixels):,} pictures and {len(values):,} {name}; get the file "
                "again"
            )
        labels.append(torch.tensor(values, dtype=torch.int64))
        _check_labels(labels[-1], classes, source)
    return Images(torch.from_numpy(pixels.copy()).reshape(-1, *CIFAR100.shape), labels[0])


class HubDataset(NamedTuple):
    """Data set on the hub, and how it has to look."""

    identifier: str
    name: str
    picture: str  # the column of pictures
    label: str  # the column of classes
    shape: tuple[int, int, int]  # planes, rows and columns of a picture
    classes: int


MNIST = HubDataset("ylecun/mnist", "MNIST", "image", "label", (1, SIDE, SIDE), 10)
CIFAR100 = HubDataset("uoft-cs/cifar100", "CIFAR-100", "img", "fine_label", (3, 32, 32), 100)


def load_hub(wanted: HubDataset) -> ImageDataset:
    """A data set from the hub, or from what ``datasets`` has of it in its cache."""
    name = f"{wanted.identifier} from the hub"
    loaded = load_dataset(
        wanted.identifier, None, name=name, remedy="check the network, or use data=files"
    )
    parts = {}
    hashes = {}
    for part in ("train", "test"):
        if part not in loaded:
            raise UserError(f"{wanted.identifier} has no part {part!r}; use data=files")
        parts[part] = _hub_images(loaded[part], wanted, part)
        read = (
            parts[part].pixels.numpy().tobytes()
            + parts[part].labels.numpy().astype("<i8").tobytes()
        )
        hashes[f"{wanted.identifier}: pixels and labels of {part}"] = hashlib.sha256(
            read
        ).hexdigest()
    return ImageDataset(wanted.name, parts["train"], parts["test"], wanted.classes, hashes)


def _hub_images(rows: Any, wanted: HubDataset, part: str) -> Images:
    source = f"{wanted.identifier}, {part}"
    for column in (wanted.picture, wanted.label):
        if column not in rows.column_names:
            raise UserError(f"{source} has no column {column!r}; use data=files")
    pixels = torch.empty(len(rows), *wanted.shape, dtype=torch.uint8)
    height, width = wanted.shape[1:]
    for at, row in enumerate(rows):
        picture = np.asarray(row[wanted.picture])
        if picture.dtype != np.uint8 or picture.size != pixels[0].numel():
            raise UserError(
                f"{source}: picture {at} is not of {height}x{width} pixels; use data=files"
            )
        pixels[at] = torch.from_numpy(picture.reshape(height, width, -1).copy()).permute(2, 0, 1)
    labels = torch.tensor(rows[wanted.label][:], dtype=torch.int64)
    _check_labels(labels, wanted.classes, source)
    return Images(pixels, labels)


def load_digits() -> ImageDataset:
    """The 1,797 digits of scikit-learn; the last fifth is for testing."""
    from sklearn import datasets  # takes a second to import, and no other scale needs it

    digits = datasets.load_digits()
    pixels = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)  # (N, 1, 8, 8)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    read = hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    begin = len(labels) - int(DIGITS_TEST_SHARE * len(labels))
    train = Images(pixels[:begin], labels[:begin], DIGITS_WHITE)
    test = Images(pixels[begin:], labels[begin:], DIGITS_WHITE)
    return ImageDataset("scikit-learn's digits", train, test, 10, {"pixels and labels": read})
