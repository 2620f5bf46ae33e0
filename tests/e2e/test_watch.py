"""hebblm-read --watch keeps up with a folder, answers at a prompt, and survives a kill but for the last text."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hebblm
from hebblm.cli.read import main
from hebblm.cli.watch import default_folder

ASK = ["tiny-pydoc-raw", "--watch", "notes", "--save", "known", "--method", "mixture", "--device", "cpu"]
WAIT = 240.0


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()


def write(*names: str, word: str = "quux") -> None:
    for name in names:
        Path("notes", name).write_text(f"The function frobnitz returns a {word} .\nCall {name} with it .\n" * 3)


def watch(monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    """Read what is new, answer some lines, and end."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return main([*ASK, "--interactive"])


def read_by(folder: str) -> list[tuple[str, int | None]]:
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader(memory=folder)
    return [(document.name, document.tokens) for document in reader.documents()]


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
    assert watch(monkeypatch, "Call", "The function", "?") == 0
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
    assert folder not in (default_folder(model, Path(".")), default_folder(Path("llama-wt2-small"), Path("notes")))
    monkeypatch.setenv("HEBBLM_CACHE", str(Path("notes", "cache").absolute()))
    assert main([*ask, "--interactive"]) == 2
    assert "is in notes, and would be read as a text; name a folder outside it" in capsys.readouterr().err


def test_ctrl_c_keeps_all_and_a_second_reader_of_the_folder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("kills", [3])
def test_what_was_told_to_be_read_outlives_a_kill(kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    for number in range(kills):
        write(*(f"{number:02d}{letter}.txt" for letter in "abc"))
        with started() as process:
            assert process.stdout is not None
            for _ in range(1 + number % 3):
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
