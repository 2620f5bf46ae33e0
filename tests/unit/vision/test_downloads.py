from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hebblm.download import find
from hebblm.errors import UserError
from hebblm.vision import data as sets

from .samples import mnist_files, tiny_cifar


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    thread = Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()
    thread.join()


def fetch(data: bytes, folder: Path, *urls: str) -> Path:
    known = hashlib.sha256(data).hexdigest()
    return find([], ("set/file.bin",), folder, name="file.bin", urls=urls, known=known)


def test_takes_the_first_address_that_answers(server: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    (tmp_path / "served" / "there.bin").write_bytes(data)
    urls = (f"{server}/missing.bin", "http://127.0.0.1:9/x", f"{server}/there.bin")
    path = fetch(data, tmp_path / "cache", *urls)
    assert path == tmp_path / "cache" / "set" / "file.bin"
    assert path.read_bytes() == data


def test_keeps_nothing_of_another_file(server: str, tmp_path: Path) -> None:
    (tmp_path / "served" / "there.bin").write_bytes(b"another")
    with pytest.raises(UserError, match=r"there\.bin does not hold file\.bin \(wrong sha256\)"):
        fetch(b"wanted", tmp_path / "cache", f"{server}/there.bin")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_says_where_to_put_a_file_that_cannot_be_had(server: str, tmp_path: Path) -> None:
    urls = (f"{server}/missing.bin", "not an address")
    with pytest.raises(UserError) as caught:
        fetch(b"wanted", tmp_path / "cache", *urls)
    for told in (
        "cannot download file.bin",
        "404",
        "not an address",
        "put it at set/file.bin",
        "HEBBLM_DATA",
    ):
        assert told in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_mirror_takes_the_place_of_every_address(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served" / "set").mkdir()
    (tmp_path / "served" / "set" / "file.bin").write_bytes(b"wanted")
    monkeypatch.setenv("HEBBLM_MIRROR", f"{server}/")
    assert fetch(b"wanted", tmp_path / "cache").read_bytes() == b"wanted"


def test_both_data_sets_are_downloaded_where_no_folder_has_them(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_MIRROR", server)
    files = mnist_files(tmp_path / "served")
    archive = tiny_cifar(tmp_path / "served")
    hashes = {path.name.removesuffix(".gz"): hashlib.sha256(path.read_bytes()).hexdigest() for path in files.iterdir()}
    monkeypatch.setattr(sets, "MNIST_SHA256", hashes)
    known = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(sets.ARCHIVES, archive.name, (sets.BINARY, known))
    cache = tmp_path / "cache"
    for _ in range(2):  # the second time from the cache
        assert len(sets.load_mnist([cache], cache).train) == 6
        assert len(sets.load_cifar100([cache], cache).train) == 300
        monkeypatch.setenv("HEBBLM_MIRROR", "http://127.0.0.1:9")


def test_the_known_hashes_are_hashes() -> None:
    for value in (*sets.MNIST_SHA256.values(), *(known for _, known in sets.ARCHIVES.values())):
        assert len(bytes.fromhex(value)) == 32
    assert set(sets.MNIST_SHA256) == {stem for stems in sets.MNIST_FILES.values() for stem in stems}
