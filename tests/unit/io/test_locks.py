"""Two at once: the second waits and says for whom; what a killed process held is free."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.io import locks
from hebblm.io.locks import file_lock, remove_left
from hebblm.text import prepare
from hebblm.text.corpora import text_corpus


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own, and return its number."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(1)
    return process


def wait_for(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What waiting threads say: capsys, read while another thread writes, loses lines."""
    lines: list[str] = []
    monkeypatch.setattr(locks, "log", lines.append)
    return lines


def test_the_second_waits_says_for_whom_and_leaves_nothing(tmp_path: Path, said: list[str]) -> None:
    place = tmp_path / "made"

    def first() -> None:
        with file_lock(place, "a thing"):
            (tmp_path / "begun").touch()
            wait_for((tmp_path / "go").exists)
            place.touch()

    def second() -> bool:
        with file_lock(place, "a thing") as waited:
            return waited and place.exists()

    process = in_a_child(first)
    wait_for((tmp_path / "begun").exists)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(second)
        wait_for(lambda: bool(said))
        assert not found.done()
        (tmp_path / "go").touch()
        assert found.result()
    os.waitpid(process, 0)
    (line,) = said
    assert f"(process {process}) is at work on a thing ({place}): waiting" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "go", "made"]


def test_what_a_killed_process_held_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "made"

    def first() -> None:
        with file_lock(place, "a thing"):
            (tmp_path / "begun").touch()
            time.sleep(60)

    process = in_a_child(first)
    wait_for((tmp_path / "begun").exists)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    lock = tmp_path / ".made.lock"
    left = lock.read_bytes()
    with file_lock(place, "a thing") as waited:
        assert not waited
        remove_left(place)
        assert lock.exists(), "only a lock that nobody holds is swept away"
    lock.write_bytes(left)
    remove_left(place)
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]
    assert not capsys.readouterr().err


def test_folders_made_for_a_lock_stay_only_if_something_stands_there(tmp_path: Path) -> None:
    with pytest.raises(KeyError), file_lock(tmp_path / "a" / "b" / "made", "a thing"):
        raise KeyError
    assert not list(tmp_path.iterdir())
    with file_lock(tmp_path / "a" / "b" / "made", "a thing"):
        (tmp_path / "a" / "kept").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept"]


def test_a_place_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*made: .*choose a place"):
        file_lock(tmp_path / "file" / "made", "a thing").__enter__()


def test_a_corpus_that_another_process_wrote_is_used(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "text.txt").write_text("a b c d\n" * 100)
    place = tmp_path / "corpus"

    def write() -> Path:
        return prepare(
            text_corpus(tmp_path / "text.txt"), normalization="raw", destdir=place
        ).folder

    write()
    place.rename(tmp_path / "kept")
    with ThreadPoolExecutor() as pool:
        with file_lock(place, "the ids"):
            second = pool.submit(write)
            wait_for(lambda: bool(said))
            (tmp_path / "kept").rename(place)
            inode = place.stat().st_ino
        assert second.result() == place
    assert place.stat().st_ino == inode


def test_the_folder_one_stands_in_has_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        file_lock(Path(), "this folder"),
        pytest.raises(UserError),
        file_lock(tmp_path, "this folder", wait=False),
    ):
        pass
