from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from hebblm.errors import UserError
from hebblm.io import download
from hebblm.io.download import find
from hebblm.io.files import sha256
from hebblm.vision import data
from hebblm.vision.data import (
    CIFAR100,
    MNIST,
    HubDataset,
    load_cifar100,
    load_digits,
    load_hub,
    load_mnist,
    parse_records,
)

from ..io.test_download import server
from .samples import archive, cifar_record, idx, mnist_files, tiny_cifar


def test_real_pictures_without_a_download() -> None:
    found = load_digits()
    assert len(found.train) + len(found.test) == 1797
    assert found.train.pixels.shape == (1438, 1, 8, 8)
    assert set(found.test.labels.tolist()) == set(range(10))
    assert found.train.labels[:10].tolist() == list(range(10))
    rows = found.train.flat(torch.arange(len(found.train)))
    assert float(rows.max()) == 1
    assert float(rows.min()) == 0
    assert found.sha256 == load_digits().sha256


def rows(wanted: HubDataset, count: int, **changes: Any) -> datasets.Dataset:
    """Return pictures whose pixels count on, as the hub's files hold them: encoded and with rows
    before columns.
    """
    planes, height, width = wanted.shape
    pictures = (np.arange(count * height * width * planes) % 251).astype(np.uint8)
    arrays = list(pictures.reshape(count, height, width, planes))
    columns = {
        wanted.picture: changes.get("pictures", [array.squeeze() for array in arrays]),
        wanted.label: changes.get("labels", list(range(count))),
    }
    columns = {name: values for name, values in columns.items() if name != changes.get("without")}
    features = {wanted.picture: datasets.Image(), wanted.label: datasets.Value("int64")}
    own = datasets.Features({name: features[name] for name in columns})
    return datasets.Dataset.from_dict(columns, features=own)


def serve(monkeypatch: pytest.MonkeyPatch, wanted: HubDataset, parts: dict[str, Any]) -> None:
    def load(identifier: str, config: None) -> datasets.DatasetDict:
        assert identifier == wanted.identifier
        return datasets.DatasetDict(parts)

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(download, "_reachable", lambda url: True)


@pytest.mark.parametrize("wanted", [MNIST, CIFAR100])
def test_pictures_come_planes_first(wanted: HubDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, wanted, {"train": rows(wanted, 3), "test": rows(wanted, 2)})
    found = load_hub(wanted)
    assert found.name == wanted.name
    assert found.train.pixels.shape == (3, *wanted.shape)
    assert found.train.labels.tolist() == [0, 1, 2]
    assert len(found.test) == 2
    planes = wanted.shape[0]
    expected = torch.arange(planes) + planes  # of the second picture element of the first row
    assert torch.equal(found.train.pixels[0, :, 0, 1], expected.byte())
    assert len(found.sha256) == 2
    assert len(set(found.sha256.values())) == 2


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"train": rows(MNIST, 2)}, "has no part 'test'"),
        (
            {"train": rows(MNIST, 2, without="label"), "test": rows(MNIST, 2)},
            "has no column 'label'",
        ),
        ({"train": rows(MNIST, 2), "test": rows(MNIST, 1, labels=[10])}, "test has label 10 at 0"),
        (
            {
                "train": rows(MNIST, 1, pictures=[np.zeros((27, 28), np.uint8)]),
                "test": rows(MNIST, 2),
            },
            "train: picture 0 is not of 28x28 pixels",
        ),
    ],
)
def test_refuses(parts: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, MNIST, parts)
    with pytest.raises(UserError, match=told):
        load_hub(MNIST)


def test_says_that_the_hub_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(identifier: str, config: None) -> None:
        raise ConnectionError("no route\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(download, "_reachable", lambda url: True)
    with pytest.raises(
        UserError, match=r"cannot load ylecun/mnist from the hub \(no route\); check the network"
    ):
        load_hub(MNIST)


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


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def repack(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: gzip.compress(change(gzip.decompress(data)))


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("train-images-idx3-ubyte.gz", cut, "truncated or damaged"),
        (
            "train-images-idx3-ubyte.gz",
            repack(cut),
            "should hold 4,720 bytes by its header, not 2,360",
        ),
        (
            "train-images-idx3-ubyte.gz",
            lambda data: b"<html>not found</html>",
            "truncated or damaged",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            repack(lambda data: idx((6,), bytes(6), kind=0x0D)),
            "is not an idx file",
        ),
        (
            "train-images-idx3-ubyte.gz",
            repack(lambda data: idx((6, 8, 8), bytes(384))),
            "8x8 pixels",
        ),
        ("train-labels-idx1-ubyte.gz", repack(lambda data: idx((5,), bytes(5))), "6 pictures"),
        (
            "t10k-labels-idx1-ubyte.gz",
            repack(lambda data: idx((4,), b"\0\1\12\2")),
            "label 10 at 2",
        ),
    ],
)
def test_refuses_in_one_line(
    name: str, damage: Callable[[bytes], bytes], told: str, tmp_path: Path
) -> None:
    path = mnist_files(tmp_path) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as caught:
        load_mnist([tmp_path])
    assert told in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no train-images-idx3-ubyte.gz in .*put it at mnist/train-.*HEBBLM_DATA"
    ):
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


TRAIN, TEST = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"
GOOD = {TRAIN: cifar_record(7) + cifar_record(99, red=50), TEST: cifar_record(0)}


@pytest.mark.parametrize(
    ("name", "mode"),
    [("cifar-100-binary.tar.gz", "w:gz"), ("cifar-100-binary-rebuilt.tar.xz", "w:xz")],
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
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "cifar-100",
        "cifar-100-binary.tar.gz",
    ]


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({TRAIN: GOOD[TRAIN][:-1], TEST: GOOD[TEST]}, "6,147 bytes, not a multiple of 3,074"),
        ({TRAIN: GOOD[TRAIN]}, f"has no {TEST}"),
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
    ("name", "mode"),
    [("cifar-100-binary.tar.gz", "w:gz"), ("cifar-100-binary-rebuilt.tar.xz", "w:xz")],
)
@pytest.mark.parametrize("kept", [0, 150])
def test_refuses_a_truncated_archive(name: str, mode: str, kept: int, tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-100" / name, GOOD, mode)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match="truncated or not an archive"):
        load_cifar100([tmp_path])


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif("HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA is not set")
def test_the_real_archive() -> None:
    found = load_cifar100([Path(os.environ["HEBBLM_DATA"])])
    assert found.train.labels.bincount().tolist() == [500] * 100
    assert found.test.labels.bincount().tolist() == [100] * 100
    means = [float(plane.double().mean()) / 255 for plane in found.train.pixels.unbind(1)]
    assert means == pytest.approx([0.50707516, 0.48654887, 0.44091784], abs=1e-7)


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
    data.ARCHIVES[path.name] = (data.PICKLED, sha256(path))
    return path


@pytest.fixture(autouse=True)
def original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test writes pass for the official archive."""
    monkeypatch.setattr(data, "ARCHIVES", dict(data.ARCHIVES))


def test_another_archive_of_pickles_is_never_opened(tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content(), protocol=2))
    data.ARCHIVES["cifar-100-python.tar.gz"] = (data.PICKLED, "0" * 64)
    with pytest.raises(
        UserError, match=r"python\.tar\.gz has sha256 .*put the original file there"
    ):
        load_cifar100([tmp_path])


@pytest.mark.parametrize("protocol", [2, 4])
def test_holds_the_pictures_of_the_binary_version(protocol: int, tmp_path: Path) -> None:
    write(tmp_path, pickle.dumps(content(), protocol=protocol))
    found = load_cifar100([tmp_path])
    for part in (found.train, found.test):
        assert torch.equal(part.pixels, RECORDS.pixels)
        assert torch.equal(part.labels, RECORDS.labels)


def test_reads_what_python_2_wrote(tmp_path: Path) -> None:
    # Python 2 wrote byte strings with the opcode for short strings, and the old name of NumPy's
    # module.
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
    with pytest.raises(
        UserError, match=r"train is not a pickle of CIFAR-100 \(it asks for posix.mkdir"
    ):
        load_cifar100([tmp_path])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is not a pickle of CIFAR-100"),
        (pickle.dumps(content())[:-40], "is not a pickle of CIFAR-100"),
        (pickle.dumps([1]), "has no data, fine_labels, coarse_labels"),
        (pickle.dumps(content(data=np.zeros((2, 3071), np.uint8))), "no pictures of 3,072 bytes"),
        (pickle.dumps(content(fine_labels=[1])), "2 pictures and 1 fine_labels"),
        (pickle.dumps(content(fine_labels=[1, 100])), "label 100 at 1"),
        (pickle.dumps(content(fine_labels=[1, 1.5])), "fine_labels is not a list of whole numbers"),
    ],
)
def test_pickled_refuses_in_one_line(data: bytes, told: str, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UserError) as caught:
        load_cifar100([tmp_path])
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refuses_an_archive_without_a_part(tmp_path: Path) -> None:
    path = write(tmp_path, pickle.dumps(content()), name="training")
    with pytest.raises(UserError) as caught:
        load_cifar100([tmp_path])
    assert str(caught.value) == f"{path} has no cifar-100-python/train; get CIFAR-100's own"


def test_says_where_to_put_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    with server(tmp_path) as address:
        urls = (f"{address}/missing.bin", "not an address")
        with pytest.raises(UserError) as caught:
            find(
                [],
                ("set/file.bin",),
                tmp_path / "cache",
                name="file.bin",
                urls=urls,
                known="0" * 64,
            )
    for told in (
        "cannot download file.bin",
        "404",
        "not an address",
        "put it at set/file.bin",
        "HEBBLM_DATA",
    ):
        assert told in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_both_data_sets_are_downloaded_where_no_folder_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, packed = mnist_files(tmp_path), tiny_cifar(tmp_path)
    hashes = {path.name.removesuffix(".gz"): sha256(path) for path in files.iterdir()}
    monkeypatch.setattr(data, "MNIST_SHA256", hashes)
    monkeypatch.setitem(data.ARCHIVES, packed.name, (data.BINARY, sha256(packed)))
    cache = tmp_path / "cache"
    with server(tmp_path) as address:
        monkeypatch.setenv("HEBBLM_MIRROR", address)
        assert len(data.load_mnist([cache], cache).train) == 6
        assert len(data.load_cifar100([cache], cache).train) == 300
    assert len(data.load_mnist([cache], cache).train) == 6  # the second time from the cache
    assert len(data.load_cifar100([cache], cache).train) == 300
