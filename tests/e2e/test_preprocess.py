"""``hebblm-preprocess`` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hebblm.cli.preprocess import main
from hebblm.text.prepared import load_prepared

TEXT = "the river carried a small boat past old houses, green gardens and quiet towers"
WORDS = TEXT.split(" ")
LINES = [f"On day {n} {' '.join(WORDS[n % 5 :])} until {WORDS[n % 13]} came." for n in range(60)]


@pytest.fixture
def novel(tmp_path: Path) -> Path:
    path = tmp_path / "novel.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.mark.parametrize("tokenizer", ["whitespace", "moses", "sentencepiece"])
def test_text_to_ids(novel: Path, tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["--text", str(novel), "--tokenizer", tokenizer, "--output-path", str(out), "--normalization", "lower"]
    assert main([*arguments, "--vocab-size", "45"]) == 0
    prepared = load_prepared(out)
    assert "train: " in capsys.readouterr().out
    assert prepared.meta.tokenizer["name"] == tokenizer
    assert prepared.meta.splits["train"].lines == 48
    ids = prepared.tokens("train").tolist()
    first = [prepared.dictionary[index] for index in ids[: ids.index(prepared.dictionary.eos_index)]]
    assert prepared.tokenizer().detokenize(first) == LINES[0].lower()
    written = (out / "corpus.json").stat().st_ino
    assert main([*arguments, "--vocab-size", "45"]) == 0
    assert (out / "corpus.json").stat().st_ino == written


def test_names_of_splits_and_rare_words(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    for name, text in (("a.tok", "x x y\n"), ("b.tok", "x z\n"), ("c.tok", "y\n")):
        (folder / name).write_text(text)
    out = tmp_path / "out"
    names = ["--train", "a.tok", "--valid", "b.tok", "--test", "c.tok"]
    assert main(["--text", str(folder), "--output-path", str(out), *names, "--min-count", "2"]) == 0
    assert set(load_prepared(out).dictionary.symbols) == {"x", "<unk>", "<eos>"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--text", "absent.txt"], "absent.txt does not exist"),
        (["--text", "empty.txt"], "empty.txt is empty"),
        (["--text", "latin.txt"], "latin.txt is not UTF-8: byte 3"),
        (["--text", "latin.txt", "--tokenizer", "sentencepiece"], "latin.txt is not UTF-8: byte 3"),
        (["--text", "novel.txt", "--tokenizer", "spacy"], "spacy"),
        (["--text", "novel.txt", "--normalization", "title"], "title"),
        (["--text", "novel.txt", "--min-count", "0"], "at least 1"),
        (["--text", "novel.txt", "--vocab-size", "0"], "at least 1"),
        (["--text", "novel.txt", "--tokenizer", "sentencepiece"], "cannot learn 8000 pieces"),
        (["--text", "novel.txt", "--tokenizer", "moses", "--lang", "xx"], "xx"),
        (["--text", "novel.txt", "--unheard-of", "1"], "unheard-of"),
    ],
)
def test_mistakes_end_with_status_2_and_leave_nothing(
    novel: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n" * 20)
    before = sorted(tmp_path.iterdir())
    assert main([*arguments, "--output-path", "out"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert told in errors[0]
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_of_other_things_is_not_replaced(
    novel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--text", str(novel), "--output-path", str(tmp_path)]) == 2
    assert "holds other files (novel.txt)" in capsys.readouterr().err
    assert novel.read_text().startswith("On day 0")


def test_help_shows_defaults_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "default: whitespace" in shown
    assert "hebblm-preprocess --text" in shown
