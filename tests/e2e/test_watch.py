"""hebblm-read --watch keeps up with a folder, answers at a prompt, and survives a kill but for the
last text.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hebblm
from hebblm.cli.read import main
from hebblm.cli.watch import Watch, default_folder

ASK = [
    "tiny-pydoc-raw",
    "--watch",
    "notes",
    "--save",
    "known",
    "--method",
    "mixture",
    "--device",
    "cpu",
]
WAIT = 240.0


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()


def write(*names: str, word: str = "quux") -> None:
    for name in names:
        Path("notes", name).write_text(
            f"The function frobnitz returns a {word} .\nCall {name} with it .\n" * 3
        )


def watch(monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    """Read what is new, answer some lines, and end."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return main([*ASK, "--interactive"])


def read_by(folder: str) -> list[tuple[str, int | None]]:
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader(memory=folder)
    return [(document.name, document.tokens) for document in reader.documents()]


def looking(folder: str = "notes") -> tuple[hebblm.Reader, Watch]:
    """Return a reader and its watch; each call of ``_read_changed`` is one look at the folder."""
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("mixture")
    return reader, Watch(reader, Path(folder), Path("known"), None, print)


def file_lock(reader: hebblm.Reader) -> list[str]:
    names = [document.name for document in reader.documents()]
    assert [name for name, _ in read_by("known")] == names
    return names


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hebblm.cli.read", *ASK, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_new_and_changed_files_are_read_and_lines_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(monkeypatch) == 0
    assert "notes holds no file of text" in capsys.readouterr().err
    write("a.txt", "b.txt")
    Path("notes", "c.txt").write_bytes(b"\xff\xfe\x00")
    assert watch(monkeypatch, "Call ", "The function ", "?") == 0
    told = capsys.readouterr()
    assert "notes/a.txt: 42 tokens read\nnotes/b.txt: 42 tokens read\n" in told.out
    assert told.out.index("Call ...") < told.out.index("The function ...")
    assert "frobnitz" in told.out.split("The function ...")[1]
    assert "c.txt" in told.err
    assert told.out.endswith("all that was read is in known; run the same command to continue\n")
    write("a.txt", word="wug")
    assert watch(monkeypatch) == 0
    told = capsys.readouterr()
    assert "notes/a.txt: 42 tokens read\n" in told.out
    assert "b.txt" not in told.out
    assert read_by("known") == [("notes/b.txt", 42), ("notes/a.txt", 42)]
    other = hebblm.load("tiny-pydoc-raw", device="cpu").reader("mixture")
    for name in ("b.txt", "a.txt"):
        other.read(Path("notes", name).read_text(), name=f"notes/{name}")
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader(memory="known")
    assert reader.vocabulary.words == other.vocabulary.words
    for arguments, said in (
        (["--watch", "nowhere"], "--watch nowhere does not exist; name a folder of texts"),
        (["--save", "notes/known"], "--save notes/known is in notes, and would be read as a text"),
        (["--max-tokens", "9"], "--watch notes reads whole files; leave --max-tokens 9 out"),
    ):
        assert main([*ASK, *arguments]) == 2
        assert said in capsys.readouterr().err
    assert main([*ASK[:3], "--read-only"]) == 2
    assert "--read-only learns nothing that --watch notes could keep" in capsys.readouterr().err
    assert main(["tiny-pydoc-raw", "--interactive"]) == 2
    assert "--interactive works only with --watch FOLDER" in capsys.readouterr().err


def test_without_save_the_reader_is_kept_in_the_cache_by_model_and_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(Path("cache").absolute()))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    write("a.txt")
    ask = [word for word in ASK if word not in ("--save", "known")]
    assert main([*ask, "--interactive"]) == 0
    told = capsys.readouterr().out
    [folder] = Path("cache", "readers").absolute().iterdir()
    assert told.startswith(f"what is read is kept in {folder}; --save names another folder\n")
    assert told.endswith(f"all that was read is in {folder}; run the same command to continue\n")
    assert read_by(str(folder)) == [("notes/a.txt", 42)]
    model = Path("tiny-pydoc-raw")
    assert folder == default_folder(model, Path("notes").absolute())
    assert folder not in (
        default_folder(model, Path(".")),
        default_folder(Path("llama-wt2-small"), Path("notes")),
    )
    monkeypatch.setenv("HEBBLM_CACHE", str(Path("notes", "cache").absolute()))
    assert main([*ask, "--interactive"]) == 2
    assert (
        "is in notes, and would be read as a text; name a folder outside it"
        in capsys.readouterr().err
    )


def test_ctrl_c_keeps_all_and_a_second_reader_of_the_folder_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("a.txt", "b.txt")
    with started() as first:
        assert first.stdout is not None
        assert [first.stdout.readline() for _ in range(2)][1] == "notes/b.txt: 42 tokens read\n"
        assert main(ASK) == 2
        assert f"(process {first.pid}) is at work on this memory (known)" in capsys.readouterr().err
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=WAIT)
    assert first.returncode == 0, err
    assert out == "all that was read is in known; run the same command to continue\n"
    assert read_by("known") == [("notes/a.txt", 42), ("notes/b.txt", 42)]


@pytest.mark.parametrize("kills", [2])
def test_what_was_told_to_be_read_outlives_a_kill(
    kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for number in range(kills):
        write(*(f"{number:02d}{letter}.txt" for letter in "abc"))
        with started() as process:
            assert process.stdout is not None
            for _ in range(1 + 2 * number):
                told.append(process.stdout.readline().partition(":")[0])
            process.kill()
        known = [name for name, _ in read_by("known")]
        assert set(told) <= set(known)
        assert len(known) == len(set(known))
    assert watch(monkeypatch) == 0
    assert sorted(read_by("known")) == [
        (f"notes/{number:02d}{letter}.txt", 42) for number in range(kills) for letter in "abc"
    ]
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []


def test_files_that_are_deleted_or_emptied_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.txt", "b.txt", "c.txt", "d.txt")
    reader, watch_folder = looking()
    watch_folder._read_changed()
    Path("notes", "a.txt").unlink()
    Path("notes", "b.txt").write_text(" \n")
    watch_folder._read_changed()
    assert file_lock(reader) == ["notes/c.txt", "notes/d.txt"]
    told = capsys.readouterr().out
    assert "notes/a.txt: forgotten\n" in told
    assert "notes/b.txt: forgotten\n" in told
    other = hebblm.load("tiny-pydoc-raw", device="cpu").reader("mixture")
    for name in ("c.txt", "d.txt"):
        other.read(Path("notes", name).read_text(), name=f"notes/{name}")
        other.begin()
    assert reader.suggest("The function", 5) == other.suggest("The function", 5)
    Path("notes", "c.txt").unlink()  # while nobody looks
    assert watch(monkeypatch) == 0
    assert read_by("known") == [("notes/d.txt", 42)]
    watch_folder._read_changed()
    Path("notes", "d.txt").unlink()
    watch_folder._read_changed()
    assert file_lock(reader) == [], "the folder is the same, so its last file is deleted"
    write("d.txt")
    watch_folder._read_changed()
    assert file_lock(reader) == ["notes/d.txt"]


def test_a_folder_that_is_unmounted_or_cannot_be_read_is_no_deletion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Path("notes", "disk")
    disk.mkdir()
    write("a.txt", "disk/b.txt", "disk/c.txt")
    reader, watch_folder = looking()
    watch_folder._read_changed()
    names = file_lock(reader)
    assert len(names) == 3

    shutil.move("notes/disk", "mounted")
    disk.mkdir()  # the folder below the disk
    watch_folder._read_changed()
    (disk / "stray.txt").write_text("Call it .\n")
    watch_folder._read_changed()
    watch_folder._read_changed()
    assert file_lock(reader) == [*names, "notes/disk/stray.txt"]
    said = capsys.readouterr().err
    assert (
        said.count(
            "notes/disk/b.txt is not there, but its folder may be unmounted or cannot be read, so"
        )
        == 1
    )
    shutil.move("notes/disk", "below")
    shutil.move("mounted", "notes/disk")
    watch_folder._read_changed()
    names.append("notes/disk/stray.txt")
    assert file_lock(reader) == names, "the disk is back, and hides the stray file"

    (disk / "b.txt").unlink()
    listed = Path.iterdir

    def unreadable(self: Path) -> Iterator[Path]:
        if self == disk:
            raise PermissionError(13, "Permission denied", str(self))
        return listed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", unreadable)
        watch_folder._read_changed()
    assert file_lock(reader) == names
    watch_folder._read_changed()
    names.remove("notes/disk/b.txt")
    assert file_lock(reader) == names

    shutil.move("notes", "elsewhere")
    watch_folder._read_changed()
    Path("notes").mkdir()
    watch_folder._read_changed()
    assert file_lock(reader) == names
    assert watch(monkeypatch) == 0, (
        "at the start nobody knows whether an empty folder was always the same"
    )
    assert file_lock(reader) == names
    Path("notes").rmdir()
    shutil.move("elsewhere", "notes")
    shutil.rmtree(disk)
    watch_folder._read_changed()
    assert file_lock(reader) == ["notes/a.txt"], "a folder that is deleted takes its files with it"


def test_a_renamed_file_is_held_once_and_not_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.txt", "b.txt", "c.txt")
    reader, watch_folder = looking()
    watch_folder._read_changed()
    (Path("notes") / "sub").mkdir()
    Path("notes", "a.txt").rename("notes/sub/z.txt")
    with monkeypatch.context() as patch:
        patch.setattr(reader, "read_pieces", None)
        patch.setattr(reader, "forget", None)
        watch_folder._read_changed()
    assert file_lock(reader) == ["notes/sub/z.txt", "notes/b.txt", "notes/c.txt"]
    assert capsys.readouterr().out.endswith("notes/a.txt is notes/sub/z.txt now\n")
    Path("notes", "b.txt").rename("notes/y.txt")  # while nobody looks, and another changes
    write("c.txt", word="wug")
    assert watch(monkeypatch) == 0
    assert [name for name, _ in read_by("known")] == [
        "notes/sub/z.txt",
        "notes/y.txt",
        "notes/c.txt",
    ]
    write("copy.txt")
    shutil.copy("notes/copy.txt", "notes/copy2.txt")
    assert watch(monkeypatch) == 0
    assert len(read_by("known")) == 5, "a copy is a file of its own"


def test_blanks_and_joiners_of_all_kinds_may_stand_in_a_file_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"a{mark}b.txt" for mark in "\u202f\u00a0\u3000\u200d\u200c\U0001f469"]
    write(*names)
    for name in ("a\nb.txt", "a\u2028b.txt", "a\x1fb.txt", os.fsdecode(b"a\xffb.txt")):
        Path("notes", name).write_text("Call it .\n")
    assert watch(monkeypatch) == 0
    assert sorted(name for name, _ in read_by("known")) == sorted(f"notes/{name}" for name in names)
    said = capsys.readouterr().err
    assert (
        said.count(
            "has a line break, a control character or half a surrogate pair; leave these out; it "
            "will be"
        )
        == 4
    )
