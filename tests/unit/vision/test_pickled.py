from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hebblm.errors import UserError
from hebblm.files import sha256
from hebblm.vision import data as cifar
from hebblm.vision.data import load_cifar100, parse_records

from .samples import archive, cifar_record

RECORDS = parse_records(cifar_record(7) + cifar_record(99, red=50), "here")


def content(**changes: Any) -> dict[bytes, Any]:
    found = {
        b"filenames": [b"a.png", b"b.png"],
        b"batch_label": b"training batch 1 of 1",
        b"fine_labels": [7, 99],
        b"coarse_labels": [3, 3],
        b"data": RECORDS.pixels.flatten(1).numpy(),
    }
    return found | {name.encode(): value for name, value in changes.items()}


def write(folder: Path, train: bytes, name: str = "train") -> Path:
    members = {
        "cifar-100-python/meta": b"not read",
        f"cifar-100-python/{name}": train,
        "cifar-100-python/test": pickle.dumps(content(), protocol=2),
    }
    path = archive(folder / "cifar-100" / "cifar-100-python.tar.gz", members)
    cifar.ARCHIVES[path.name] = (cifar.PICKLED, sha256(path))
    return path


@pytest.fixture(autouse=True)
def original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test writes pass for the official archive."""
    monkeypatch.setattr(cifar, "ARCHIVES", dict(cifar.ARCHIVES))


def test_another_archive_of_pickles_is_never_opened(tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content(), protocol=2))
    cifar.ARCHIVES["cifar-100-python.tar.gz"] = (cifar.PICKLED, "0" * 64)
    with pytest.raises(UserError, match=r"python\.tar\.gz has sha256 .*put the original file there"):
        load_cifar100([tmp_path])


@pytest.mark.parametrize("protocol", [2, 4])
def test_holds_the_pictures_of_the_binary_version(protocol: int, tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content(), protocol=protocol))
    found = load_cifar100([tmp_path])
    for part in (found.train, found.test):
        assert torch.equal(part.pixels, RECORDS.pixels)
        assert torch.equal(part.labels, RECORDS.labels)


def test_reads_what_python_2_wrote(tmp_path: Path) -> None:
    # Python 2 wrote byte strings with the opcode for short strings, and the old name of NumPy's module.
    plain = b"".join(
        (
            b"\x80\x02}(U\x04data",
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
            b"J\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00",
            bytes(range(256)) * 12,
            b"tbU\x0bfine_labels](K\x05eU\x0dcoarse_labels](K\x02eu.",
        )
    )
    write(tmp_path, plain)
    found = load_cifar100([tmp_path]).train
    assert found.labels.tolist() == [5]
    assert found.pixels[0, 0, 0, :3].tolist() == [0, 1, 2]


class Foreign:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_runs_nothing(tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content(fine_labels=Foreign(tmp_path / "made")), protocol=2))
    with pytest.raises(UserError, match=r"train is no pickle of CIFAR-100 \(it asks for posix.mkdir"):
        load_cifar100([tmp_path])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no pickle of CIFAR-100"),
        (b"<html>", "no pickle of CIFAR-100"),
        (pickle.dumps(content())[:-40], "no pickle of CIFAR-100"),
        (pickle.dumps([1]), "has no data, fine_labels, coarse_labels"),
        (pickle.dumps({b"data": b""}), "has no data, fine_labels, coarse_labels"),
        (pickle.dumps(content(data=np.zeros((2, 3071), np.uint8))), "no pictures of 3,072 bytes"),
        (pickle.dumps(content(data=np.zeros((2, 3072)))), "no pictures of 3,072 bytes"),
        (pickle.dumps(content(fine_labels=[1])), "2 pictures and 1 fine_labels"),
        (pickle.dumps(content(fine_labels=[1, 100])), "label 100 at 1"),
        (pickle.dumps(content(fine_labels=[1, 1.5])), "fine_labels is no list of whole numbers"),
        (pickle.dumps(content(coarse_labels=[1, 20])), "label 20 at 1"),
    ],
)
def test_refuses_in_one_line(data: bytes, told: str, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UserError) as caught:
        load_cifar100([tmp_path])
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refuses_an_archive_without_a_part(tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content()), name="training")
    with pytest.raises(UserError, match="has no cifar-100-python/train"):
        load_cifar100([tmp_path])
