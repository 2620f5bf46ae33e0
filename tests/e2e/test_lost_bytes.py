"""Bytes that a model of words does not code, such as indentation and capitals, are counted and told
of.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hebblm
from hebblm.cli.report import main as report
from hebblm.io.files import CHECKSUM
from hebblm.text.binarize import prepare
from hebblm.text.corpora import Corpus, resolve
from hebblm.text.dictionary import Dictionary
from hebblm.text.sources import FileLines
from hebblm.text.tokenizers import WhitespaceTokenizer
from hebblm.text.vocabulary import GrowingVocabulary

PLAIN = "Return the list .\nIf x is a list , return it .\n" * 30
INDENTED = "".join(f"\t{' ' * 9}{line}\n" for line in PLAIN.splitlines())
LOST = 10 * PLAIN.count("\n")


def written(folder: Path) -> dict[str, Path]:
    paths = {"plain": folder / "plain.txt", "indented": folder / "indented.txt"}
    paths["plain"].write_text(PLAIN)
    paths["indented"].write_text(INDENTED)
    return paths


def test_texts_that_differ_by_indentation_are_not_compared_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, path in written(tmp_path).items():
        result = hebblm.evaluate("tiny-pydoc-raw", path, ["base"], output_path=tmp_path / name)
        told, lost = capsys.readouterr().err, result.scenario.extra.get("lost_bytes", 0)
        assert lost == (LOST if name == "indented" else 0)
        share = (
            f"{100 * LOST / len(INDENTED):.3g} % of the bytes of {path}: do not compare its bits a "
            "byte"
        )
        assert (f"the tokenizer loses at least {share}" in told) == (name == "indented")
        report(
            [str(tmp_path / name / "result.json"), "--output-path", str(tmp_path / f"{name}-again")]
        )
        for folder in (name, f"{name}-again"):
            page = (tmp_path / folder / "report.md").read_text()
            assert ("Do not compare them with those of another model." in page) == (
                name == "indented"
            )


@pytest.mark.parametrize("read", [1, 3, 4, 16])
def test_the_first_tokens_count_what_their_lines_lose(tmp_path: Path, read: int) -> None:
    path = written(tmp_path)["indented"]
    result = hebblm.evaluate("tiny-pydoc-raw", path, ["base"], max_tokens=read)
    scores = [
        *hebblm.load("tiny-pydoc-raw").reader("lstm").read_pieces([INDENTED], max_tokens=read)
    ]
    # of 10 each line of 5 or 10 tokens, ends of line included
    expected = {1: 2, 3: 6, 4: 8, 16: 22}[read]
    assert result.scenario.extra["lost_bytes"] in (expected, expected - 1)
    assert expected - 2 <= sum(part.lost for part in scores) <= expected


def test_a_reader_of_words_tells_once(capsys: pytest.CaptureFixture[str]) -> None:
    reader = hebblm.load("tiny-pydoc-raw").reader("lstm")
    assert reader.read(PLAIN).lost == 0
    for _ in range(2):
        assert reader.read(INDENTED).lost == LOST
    assert capsys.readouterr().err.count("of the bytes of this text") == 1
    together = hebblm.load("tiny-pydoc-raw").reader("lstm").read([PLAIN, INDENTED])
    assert [scores.lost for scores in together] == [0, LOST]
    share = 100 * LOST / len(PLAIN + INDENTED)
    assert f"loses at least {share:.3g} % of the bytes of this text" in capsys.readouterr().err
    assert hebblm.load("tiny-pydoc-raw").reader("lstm").read("A list\r\nof\ttabs").lost == 2
    whole = [
        *hebblm.load("tiny-pydoc-raw")
        .reader("lstm")
        .read_pieces(["Return the", " list .\n", "It ."])
    ]
    assert sum(part.lost for part in whole) == 0, "no space between two parts counts as lost"


def test_capitals_that_a_dictionary_lacks_are_lost() -> None:
    dictionary = Dictionary.vocabulary({"a": 1, "of": 1, "The": 1}, min_count=1)
    vocabulary = GrowingVocabulary(dictionary, WhitespaceTokenizer(), lower=True)
    assert vocabulary.encode("The a of XYZ\nOF", include=False).lost == len("XYZ") + len("OF")


def corpus(path: Path, kind: str) -> Corpus:
    return Corpus("own", {"train": FileLines.of(path)}, WhitespaceTokenizer(), {"kind": kind})


def test_a_corpus_that_is_tokenised_loses_no_blanks_at_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(" the cat <unk> \n \n = A Title = \n")
    made = prepare(corpus(path, "files"), normalization="raw", destdir=tmp_path / "files")
    assert made.split("train").lost == 0
    made = prepare(corpus(path, "files"), normalization="lower", destdir=tmp_path / "lower")
    assert made.split("train").lost == 2
    made = prepare(corpus(path, "text"), normalization="raw", destdir=tmp_path / "text")
    assert made.split("train").lost == 5


def test_ids_of_an_earlier_version_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("\tthe cat\n")
    folder = tmp_path / "ids"
    prepare(corpus(path, "text"), normalization="raw", destdir=folder)
    stored = folder / "corpus.json"
    document = json.loads(stored.read_text())
    del document["splits"]["train"]["lost"], document[CHECKSUM]
    stored.write_text(json.dumps(document))
    assert (
        prepare(corpus(path, "text"), normalization="raw", destdir=folder).split("train").lost == 1
    )
    assert json.loads(stored.read_text())["splits"]["train"]["lost"] == 1


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["ptb", "wt2"])
def test_the_corpora_lose_nothing(name: str, tmp_path: Path) -> None:
    whole = resolve(name)
    read = replace(
        whole, sources={"test": whole.sources["test"]}, expected_tokens={}, expected_types=None
    )
    assert prepare(read, normalization="raw", destdir=tmp_path / name).split("test").lost == 0
