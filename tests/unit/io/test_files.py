from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.io import files
from hebblm.io.files import (
    atomic_path,
    check_writable,
    hash_of,
    read_json,
    read_record,
    sha256,
    write_json,
    write_text,
)
from hebblm.io.provenance import command_line, provenance


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old\n")
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old\n"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
    write_text(path, "néw\n")
    assert path.read_bytes() == "néw\n".encode()


def test_an_interrupted_folder_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("a", "b"):
        with atomic_path(path, directory=True) as temporary:
            (temporary / content).write_text(content)
    assert [p.name for p in path.iterdir()] == ["b"]
    with pytest.raises(KeyboardInterrupt), atomic_path(path, directory=True) as temporary:  # noqa: PT012
        (temporary / "c").write_text("c")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert [p.name for p in path.iterdir()] == ["b"]


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "atomic", "x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_no_space_and_no_place_are_a_users_mistake(tmp_path: Path) -> None:
    def full() -> None:
        with atomic_path(tmp_path / "x"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"cannot write .*x: No space left on device"):
        full()
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        write_text(tmp_path / "file" / "below", "x")
    with pytest.raises(UserError, match="cannot write"):
        check_writable(tmp_path / "file" / "below")
    check_writable(tmp_path / "made")
    assert [path.name for path in tmp_path.rglob("*") if path.name != "made"] == ["file"]


def test_an_error_about_another_file_is_not_blamed_on_the_place(tmp_path: Path) -> None:
    def reads_what_is_missing() -> None:
        with atomic_path(tmp_path / "out" / "x"):
            Path("/no/such/input").read_text()

    with pytest.raises(FileNotFoundError, match="/no/such/input"):
        reads_what_is_missing()
    assert list((tmp_path / "out").iterdir()) == []


def test_json_round_trips_and_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": [1, 2.5, None, "é"]})
    assert read_json(path) == {"a": [1, 2.5, None, "é"]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": [1, 2.5, None, "é"]}
    path.write_text("{")
    with pytest.raises(UserError, match=r"x.json is not valid JSON"):
        read_json(path)
    with pytest.raises(UserError, match="does not exist"):
        read_json(tmp_path / "y.json")


def test_hashes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256(tmp_path / "x") == hashlib.sha256(b"abc").hexdigest()
    assert hash_of({"a": 1, "b": [2]}) == hash_of({"b": [2], "a": 1}) != hash_of({"a": 1, "b": [3]})
    assert len(hash_of(None)) == 16


def test_a_result_says_where_it_came_from() -> None:
    record = provenance("hebblm-eval --set 'a b'", device="cpu", seed=3)
    assert (record["command"], record["device"], record["seed"]) == (
        "hebblm-eval --set 'a b'",
        "cpu",
        3,
    )
    assert {"python", "hebblm", "torch", "numpy"} <= set(record["versions"])
    assert record["commit"] is None or len(record["commit"].rstrip("+")) == 40
    assert command_line("hebblm-eval", ["--text", "a b.txt"]) == "hebblm-eval --text 'a b.txt'"


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    path, killed = tmp_path / "x.json", 2**22 + 1  # beyond the largest number of a process
    with atomic_path(path) as temporary:
        mine = temporary.name.replace(str(os.getpid()), str(killed))
        other = temporary.name.replace(f"-{os.getpid()}.", f"-{os.getppid()}.")
        temporary.write_text("1")
    for left in (mine, other):
        (tmp_path / left).write_text("half")
    write_json(path, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([other, "x.json"])


def test_a_folder_that_a_killed_process_had_put_aside_comes_back(tmp_path: Path) -> None:
    path, killed = tmp_path / "folder", 2**22 + 1
    with atomic_path(path, directory=True) as temporary:
        (temporary / "old").write_text("x")
    left = temporary.name.replace(f"-{os.getpid()}.", f"-{killed}.")
    path.rename(tmp_path / f"{left}.former")  # as between the two renames
    (tmp_path / left).mkdir()
    with pytest.raises(ZeroDivisionError), atomic_path(path, directory=True):
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert [p.name for p in path.iterdir()] == ["old"]


def test_a_folder_that_cannot_be_replaced_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "folder", os.replace
    with atomic_path(path, directory=True) as temporary:
        (temporary / "old").write_text("x")

    def interrupted(source: Path, target: Path) -> None:
        if target == path and not source.name.endswith(".former"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_path(path, directory=True):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert [p.name for p in path.iterdir()] == ["old"]


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    for name, directory in (("real", True), ("real.json", False)):
        link = tmp_path / name
        link.symlink_to(tmp_path / "disk" / name)
        with atomic_path(link, directory=directory) as temporary:
            (temporary / "new" if directory else temporary).write_text("x")
        assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "real", "real.json"]
    assert sorted(p.name for p in (tmp_path / "disk").rglob("*")) == ["new", "real", "real.json"]


def test_a_document_too_long_to_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LONGEST", 20)
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(
        UserError,
        match=r"x.json would have 30 bytes, more than the 20 that can be read; "
        "leave some of it out",
    ):
        write_json(tmp_path / "x.json", {"a": "1234567890123456"})
    assert read_json(tmp_path / "x.json") == {"a": 1}


def test_a_sealed_document_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"b": 1.5, "a": {"2": [1, "é"]}}, seal=True)
    assert read_json(path) == {"b": 1.5, "a": {"2": [1, "é"]}}
    path.write_text(path.read_text().replace("1.5", "1.6"))
    with pytest.raises(UserError, match="was changed since it was written"):
        read_json(path)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.mkdir(), "is a folder; name a file"),
        (os.mkfifo, "is not a plain file"),
        (lambda path: path.symlink_to(path.name), "cannot read .*levels of symbolic links"),
        (lambda path: path.write_text("[" * 100_000), "not valid JSON"),
        (lambda path: path.write_text("1" * 10_000), "not valid JSON"),
        (lambda path: path.write_bytes(b"\xff"), "not valid JSON"),
        (lambda path: path.write_text('{"a": "x"}'), "does not fit .*remedy"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    make(tmp_path / "x.json")
    with pytest.raises(UserError, match=told):
        read_record(dict[str, int], tmp_path / "x.json", "remedy")


def test_a_long_name_is_cut() -> None:
    assert len(str(UserError(f"cannot read {'x' * 5000}"))) < 400
