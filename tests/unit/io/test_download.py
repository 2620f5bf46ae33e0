"""Local files first, then a verified download: against a server on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.io.download import cache_dir, data_dirs
from hebblm.text.corpora import CorpusEntry, FileEntry, locate

TEXT = b"one two\nthree\n" * 1000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()


def entry(*urls: str) -> CorpusEntry:
    file = FileEntry("toy/train.txt", urls, hashlib.sha256(TEXT).hexdigest(), 5000)
    return CorpusEntry("toy", "Toy", "files", "none", "nobody", {"train": file}, None)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEBBLM_MIRROR", raising=False)
    return tmp_path / "cache"


def publish(folder: Path, content: bytes) -> None:
    (folder / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "toy" / "train.txt").write_bytes(content)


def test_a_download_is_verified_kept_and_found_the_next_time(tmp_path: Path, cache: Path) -> None:
    publish(tmp_path / "web", TEXT)
    with server(tmp_path / "web") as url:
        path = locate(entry(f"{url}/absent.txt", f"{url}/toy/train.txt"), "train", data_dirs())
    assert path == cache / "data" / "toy" / "train.txt"
    assert path.read_bytes() == TEXT
    assert locate(entry(), "train", data_dirs()) == path


def test_a_mirror_replaces_the_published_addresses(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "web", TEXT)
    with server(tmp_path / "web") as url:
        monkeypatch.setenv("HEBBLM_MIRROR", url + "/")
        assert locate(entry("https://nowhere.invalid/x"), "train", data_dirs()).read_bytes() == TEXT


def test_a_wrong_hash_is_refused_and_nothing_is_kept(tmp_path: Path, cache: Path) -> None:
    publish(tmp_path / "web", TEXT[:-1])
    with (
        server(tmp_path / "web") as url,
        pytest.raises(UserError, match=r"train split of toy \(wrong sha256"),
    ):
        locate(entry(f"{url}/toy/train.txt"), "train", data_dirs())
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_no_network_is_one_line_with_a_remedy(tmp_path: Path, cache: Path) -> None:
    with server(tmp_path) as url:
        pass
    with pytest.raises(
        UserError, match=r"cannot download the train split of toy .*HEBBLM_DATA"
    ) as caught:
        locate(entry(f"{url}/toy/train.txt"), "train", data_dirs())
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_malformed_mirror_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_MIRROR", "http://")
    with pytest.raises(UserError, match="cannot download the train split"):
        locate(entry(), "train", data_dirs())


def test_a_local_file_is_preferred_in_order_and_a_wrong_one_is_an_error(
    tmp_path: Path, cache: Path
) -> None:
    publish(tmp_path / "first", TEXT)
    publish(tmp_path / "second", TEXT + b"more")
    folders = [tmp_path / "none", tmp_path / "first", tmp_path / "second"]
    assert locate(entry(), "train", folders) == tmp_path / "first" / "toy" / "train.txt"
    with pytest.raises(UserError, match=r"second/toy/train\.txt has sha256"):
        locate(entry(), "train", folders[2:])


def test_folders_are_searched_in_the_documented_order(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_DATA", "/somewhere")
    assert data_dirs() == (Path("/somewhere"), Path("data"), cache / "data")
    monkeypatch.delenv("HEBBLM_DATA")
    assert data_dirs() == (Path("data"), cache / "data")
    monkeypatch.delenv("HEBBLM_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "hebblm"


def test_without_a_home_folder_the_cache_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HEBBLM_CACHE")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match="set HEBBLM_CACHE"):
        cache_dir()
