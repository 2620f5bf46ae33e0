from __future__ import annotations

import os
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.files import sha256
from hebblm.vision.data import load_cifar100, parse_records

from .samples import archive, cifar_record

TRAIN, TEST = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"
GOOD = {TRAIN: cifar_record(7) + cifar_record(99, red=50), TEST: cifar_record(0)}


@pytest.mark.parametrize(
    ("name", "mode"), [("cifar-100-binary.tar.gz", "w:gz"), ("cifar-100-binary-rebuilt.tar.xz", "w:xz")]
)
def test_reads_both_archives(name: str, mode: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-100" / name, GOOD, mode)
    found = load_cifar100([tmp_path / "elsewhere", tmp_path])
    assert found.train.pixels.shape == (2, 3, 32, 32)
    assert found.train.labels.tolist() == [7, 99]
    assert found.train.pixels[1, :, 0, :2].tolist() == [[51, 50], [21, 20], [31, 30]]
    assert found.test.labels.tolist() == [0]
    assert found.sha256 == {name: sha256(path)}


def test_takes_only_the_two_members_by_their_exact_names(tmp_path: Path) -> None:
    members = {
        "../escape.txt": b"out",
        "elsewhere/cifar-100-binary/train.bin": b"no record",
        "cifar-100-binary/train.bin.bak": b"no record",
        **GOOD,
    }
    archive(tmp_path / "cifar-100" / "cifar-100-binary.tar.gz", members)
    assert len(load_cifar100([tmp_path]).train) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cifar-100", "cifar-100-binary.tar.gz"]


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({TRAIN: GOOD[TRAIN][:-1], TEST: GOOD[TEST]}, "6,147 bytes, not a multiple of 3,074"),
        ({TRAIN: b"", TEST: GOOD[TEST]}, "0 bytes, not a multiple"),
        ({TRAIN: GOOD[TRAIN]}, f"has no {TEST}"),
        ({"cifar-10-batches-bin/data_batch_1.bin": b"x"}, f"has no {TRAIN}"),
        ({TRAIN: cifar_record(100), TEST: GOOD[TEST]}, "label 100 at 0"),
        ({TRAIN: cifar_record(1, coarse=20), TEST: GOOD[TEST]}, "label 20 at 0"),
    ],
)
def test_refuses_wrong_members(members: dict[str, bytes], told: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-100" / "cifar-100-binary.tar.gz", members)
    with pytest.raises(UserError) as caught:
        load_cifar100([tmp_path])
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "mode"), [("cifar-100-binary.tar.gz", "w:gz"), ("cifar-100-binary-rebuilt.tar.xz", "w:xz")]
)
@pytest.mark.parametrize("kept", [0, 10, 150])
def test_refuses_a_truncated_archive(name: str, mode: str, kept: int, tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-100" / name, GOOD, mode)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match="truncated or no archive"):
        load_cifar100([tmp_path])


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "cifar-100" / "cifar-100-binary.tar.gz"
    path.parent.mkdir()
    path.write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(UserError, match="truncated or no archive"):
        load_cifar100([tmp_path])


def test_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no cifar-100-binary.tar.gz in .*cifar-100.*HEBBLM_DATA"):
        load_cifar100([tmp_path])


def test_planes_are_red_green_blue() -> None:
    pixels = parse_records(cifar_record(5), "here").pixels
    assert pixels[0, :, 31, 31].tolist() == [10, 20, 30]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif("HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA is not set")
def test_the_real_archive() -> None:
    found = load_cifar100([Path(os.environ["HEBBLM_DATA"])])
    assert found.train.labels.bincount().tolist() == [500] * 100
    assert found.test.labels.bincount().tolist() == [100] * 100
    means = [float(plane.double().mean()) / 255 for plane in found.train.pixels.unbind(1)]
    assert means == pytest.approx([0.50707516, 0.48654887, 0.44091784], abs=1e-7)
