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
def test_text_to_ids(
    novel: Path, tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = [
        "--text",
        str(novel),
        "--tokenizer",
        tokenizer,
        "--output-path",
        str(out),
        "--normalization",
        "lower",
    ]
    assert main([*arguments, "--vocab-size", "45"]) == 0
    prepared = load_prepared(out)
    assert "train: " in capsys.readouterr().out
    assert prepared.meta.tokenizer["name"] == tokenizer
    assert prepared.meta.splits["train"].lines == 48
    ids = prepared.tokens("train").tolist()
    first = [
        prepared.dictionary[index] for index in ids[: ids.index(prepared.dictionary.eos_index)]
    ]
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


def test_help_shows_defaults_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "default: whitespace" in shown
    assert "hebblm-preprocess --text" in shown
