"""hebblm-read: what is expected before and after a text, and going on from what was saved."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hebblm
from hebblm.cli import read
from hebblm.cli.memory import main as memory
from hebblm.cli.read import main


def test_a_text_is_read_and_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(
        "The function frobnitz returns a list .\nCall frobnitz with two arguments .\n" * 3
    )
    known = str(tmp_path / "known")
    arguments = [
        "tiny-pydoc-raw",
        str(notes),
        "--suggest",
        "Call ",
        "--generate",
        "The",
        "--save",
        known,
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    before, after = printed.split("after reading", 1)
    assert "frobnitz" not in before.split(str(notes))[0]
    assert "1 new word" in printed
    assert "frobnitz" in after
    assert main(["tiny-pydoc-raw", "--memory", known, "--suggest", "Call ", "--words", "1"]) == 0
    captured = capsys.readouterr()
    assert "frobnitz" in captured.out
    assert "--save" not in captured.out, "nothing was read"
    assert main(["--memory", known, "--save", known, "tiny-pydoc-raw", str(notes)]) == 0
    assert "is replaced" not in capsys.readouterr().err
    assert main(["tiny-pydoc-raw", "--save", known, str(notes)]) == 0
    assert f"{known} holds another reader; it is replaced" in capsys.readouterr().err
    assert main(["tiny-pydoc-raw", str(notes)]) == 0
    assert "nothing is saved; add --save DIR to keep what was read" in capsys.readouterr().out


def test_a_text_is_the_same_in_any_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(
        "The function frobnitz returns a list .\r\nCall frobnitz with two arguments .\n" * 9
    )
    assert main(["tiny-pydoc-raw", str(notes)]) == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr(read, "PART_SIZE", 20)
    assert main(["tiny-pydoc-raw", str(notes)]) == 0
    assert capsys.readouterr().out == whole
    assert "135 tokens" in whole


NUMBER = r"\d+\.\d"
SAID = {
    "tiny-pydoc-raw": rf"240 tokens; perplexity {NUMBER} a token \(unadapted {NUMBER}\); ",
    "llama-wt2-small": (
        rf"\d+ pieces in 240 words; perplexity {NUMBER} a piece \(unadapted {NUMBER}\), {NUMBER} a "
        r"word; "
    ),
}


@pytest.mark.parametrize("model", SAID)
def test_every_number_has_a_unit_and_a_line_break_is_shown_as_one(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("Call it .\n" * 60)
    ask = [
        "--suggest",
        "Call it .",
        "--generate",
        "Call it .",
        "--temperature",
        "0",
        "--new-tokens",
        "8",
    ]
    assert main([model, str(tmp_path / "notes.txt"), *ask]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"{SAID[model]}{NUMBER}\d bits a byte \(unadapted {NUMBER}\d\)", printed)
    _, after = printed.split("after reading: Call it ....", 1)
    assert "⏎ (line break)" in after
    assert "<eos>" not in after
    assert "after reading: Call it . ⏎ Call it ." in after


def test_a_terminal_without_a_character_gets_another_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Call it .\n" * 9)
    words = ["tiny-pydoc-raw", str(tmp_path / "notes.txt"), "--suggest", "Call it ."]
    found = subprocess.run(
        [sys.executable, "-m", "hebblm.cli.read", *words],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "? (line break)" in found.stdout


@pytest.mark.parametrize("model", ["tiny-pydoc-raw", "llama-wt2-small"])
def test_only_the_first_tokens_are_read(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(
            "The function frobnitz returns a list .\n" * 20 + f"The {name}quux .\n"
        )
    files = [str(tmp_path / name) for name in ("a", "b")]
    assert main([model, *files, "--max-tokens", "60", "--save", str(tmp_path / "known")]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r": 60 (tokens|pieces in \d+ words);", said)) == 2
    reader = hebblm.load(model, device="cpu").reader(memory=tmp_path / "known")
    assert len(reader) == 120
    assert not any("quux" in word for word in reader.vocabulary.words), (
        "nothing is learned of what is not read"
    )
    assert memory(["info", str(tmp_path / "known")]) == 0
    told = capsys.readouterr().out
    assert f"model       {model}\n" in told
    assert "texts       2" in told
    for path in files:
        [size] = re.findall(rf"{re.escape(path)} \((\d+) bytes, 60 tokens, ", told)
        assert 60 < int(size) < 300


def test_a_saved_reader_is_gone_on_from_as_it_was_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("The function frobnitz returns a list .\n" * 20)
    known, notes = str(tmp_path / "known"), str(tmp_path / "notes.txt")
    how = ["--method", "knn", "--update-every", "7", "--k", "9", "--set", "knn.temperature=0.5"]
    assert main(["tiny-pydoc-raw", notes, *how, "--save", known]) == 0
    capsys.readouterr()
    assert main(["tiny-pydoc-raw", notes, "--memory", known]) == 0
    assert main(["tiny-pydoc-raw", notes, "--memory", known, *how]) == 0
    first, _, second, _ = capsys.readouterr().out.splitlines()
    assert first == second
    assert main(["tiny-pydoc-raw", notes, "--memory", known, "--method", "lstm"]) == 0
    assert first != capsys.readouterr().out.splitlines()[0]


def test_prose_is_split_at_punctuation_and_many_new_words_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text('The function returns a list, and "it" is called twice.\n')
    assert main(["tiny-pydoc-raw", str(prose), "--suggest", "a list,"]) == 0
    captured = capsys.readouterr()
    assert f"{prose} is split at punctuation as well: " in captured.err
    assert "warning" not in captured.err
    assert "15 tokens" in captured.out
    assert main(["tiny-pydoc-raw", str(prose), "--tokenizer", "whitespace"]) == 0
    captured = capsys.readouterr()
    assert "split at punctuation" not in captured.err
    assert (
        f"of the tokens of {prose} are outside the model's vocabulary, most often 'list,', "
        in captured.err
    )
    assert "11 tokens" in captured.out


def test_a_folder_of_something_else_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("mine")
    monkeypatch.setattr(
        "hebblm.api.language_model.load", lambda *args, **options: pytest.fail("a model was loaded")
    )
    assert (
        main(
            [
                "tiny-pydoc-raw",
                str(tmp_path / "letters" / "a.txt"),
                "--save",
                str(tmp_path / "letters"),
            ]
        )
        == 2
    )
    assert "does not hold a reader" in capsys.readouterr().err


def test_what_diverged_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes, out = tmp_path / "notes.txt", tmp_path / "out"
    notes.write_text(
        "The function returns a list .\nIf it fails , the method prints an error .\n" * 20
    )
    rate = ["--set", "mbpa_absolute.lr=1e15", "--method", "mbpa-absolute", "--update-every", "10"]
    assert main(["tiny-pydoc-raw", str(notes), *rate, "--save", str(out)]) == 2
    said = capsys.readouterr()
    assert (
        f"mbpa-absolute diverged on {notes}, and nothing is saved; lower mbpa_absolute.lr (--set)"
        in said.err
    )
    assert "--save" not in said.out
    assert not out.exists()
