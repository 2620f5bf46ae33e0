from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hebblm.errors import UserError
from hebblm.files import sha256
from hebblm.vision.data import load_mnist

from .samples import idx, mnist_files


def test_reads_the_four_files(tmp_path: Path) -> None:
    place = mnist_files(tmp_path)
    found = load_mnist([tmp_path / "elsewhere", tmp_path])
    assert found.train.pixels.shape == (6, 1, 28, 28)
    assert found.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(found.test) == 4
    assert found.train.pixels[0, 0, 1, 2] == 30  # row 1, column 2: the last index is the fastest
    name = "train-images-idx3-ubyte.gz"
    assert found.sha256[name] == sha256(place / name)
    assert len(found.sha256) == 4


def test_unpacked_files_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = mnist_files(tmp_path)
    packed = load_mnist([tmp_path])
    assert "is not the original file" in capsys.readouterr().err
    for path in list(place.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    unpacked = load_mnist([tmp_path])
    assert torch.equal(packed.train.pixels, unpacked.train.pixels)
    assert torch.equal(packed.test.labels, unpacked.test.labels)
    assert "is not the original file" not in capsys.readouterr().err  # its hash is not known


def test_rows_are_shares_of_white(tmp_path: Path) -> None:
    mnist_files(tmp_path)
    rows = load_mnist([tmp_path]).train.flat(torch.tensor([2, 0]))
    assert rows.shape == (2, 784)
    assert rows[1, 255] == 1
    assert rows[1, 51] == pytest.approx(0.2)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def repack(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: gzip.compress(change(gzip.decompress(data)))


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("train-images-idx3-ubyte.gz", cut, "truncated or damaged"),
        ("train-images-idx3-ubyte.gz", repack(cut), "bytes by its header but has only"),
        ("train-images-idx3-ubyte.gz", repack(lambda data: data + b"x"), "has more"),
        ("train-images-idx3-ubyte.gz", repack(lambda data: data[:7]), "within its header"),
        ("train-images-idx3-ubyte.gz", lambda data: b"<html>not found</html>", "truncated or damaged"),
        ("train-images-idx3-ubyte.gz", lambda data: b"", "begins with nothing"),
        ("train-images-idx3-ubyte.gz", repack(lambda data: idx((6,), bytes(6))), "begins with 00000801"),
        ("train-labels-idx1-ubyte.gz", repack(lambda data: idx((6,), bytes(6), kind=0x0D)), "00000d01"),
        ("train-images-idx3-ubyte.gz", repack(lambda data: idx((6, 8, 8), bytes(384))), "8x8 pixels"),
        ("train-images-idx3-ubyte.gz", repack(lambda data: idx((0, 28, 28), b"")), "empty by its header"),
        ("train-labels-idx1-ubyte.gz", repack(lambda data: idx((5,), bytes(5))), "6 pictures"),
        ("t10k-labels-idx1-ubyte.gz", repack(lambda data: idx((4,), b"\0\1\12\2")), "label 10 at 2"),
    ],
)
def test_refuses_in_one_line(name: str, damage: Callable[[bytes], bytes], told: str, tmp_path: Path) -> None:
    path = mnist_files(tmp_path) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as caught:
        load_mnist([tmp_path])
    assert told in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no train-images-idx3-ubyte.gz in .*put it at mnist/train-.*HEBBLM_DATA"):
        load_mnist([tmp_path])


@pytest.mark.real_data
@pytest.mark.skipif("HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA is not set")
def test_the_real_files() -> None:
    found = load_mnist([Path(os.environ["HEBBLM_DATA"])])
    assert found.train.labels.bincount().tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert len(found.test) == 10_000
    pixels = found.train.pixels.double() / 255
    assert float(pixels.mean()) == pytest.approx(0.1307, abs=5e-5)
    assert float(pixels.std()) == pytest.approx(0.3081, abs=5e-5)
    expected = "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    assert found.sha256["train-images-idx3-ubyte.gz"] == expected
