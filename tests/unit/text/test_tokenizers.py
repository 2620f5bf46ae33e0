"""Tokenisers: what goes in comes out, and what was saved loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacremoses
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text.sources import FileLines
from hebblm.text.tokenizers import (
    MosesTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    load_tokenizer,
    normalize,
)

LINES = [
    f"the {colour} {thing} number {n} stood by the river ."
    for n, (colour, thing) in enumerate(
        [
            (c, t)
            for c in ("red", "green", "blue", "yellow")
            for t in ("house", "boat", "tower", "garden")
        ]
        * 3
    )
]


def test_moses_parts_punctuation_and_puts_it_back() -> None:
    tokenizer = MosesTokenizer()
    line = "It's cheap & good (isn't it?), she said."
    tokens = tokenizer.tokenize(line)
    assert tokens == [
        "It",
        "'s",
        "cheap",
        "&",
        "good",
        "(",
        "isn",
        "'t",
        "it",
        "?",
        ")",
        ",",
        "she",
        "said",
        ".",
    ]
    assert tokenizer.detokenize(tokens) == line
    assert tokenizer.words(line) == 8


def test_moses_keeps_special_symbols_whole() -> None:
    assert MosesTokenizer().tokenize("the <unk>, again <eos>") == [
        "the",
        "<unk>",
        ",",
        "again",
        "<eos>",
    ]


def test_moses_keeps_control_characters_in_their_words() -> None:
    line = "a li\0st, \x1b[0m <unk>\x07"
    assert MosesTokenizer().tokenize(line) == ["a", "li\0st", ",", "\x1b", "[", "0m", "<unk>\x07"]
    assert WhitespaceTokenizer().tokenize("li\0st") == MosesTokenizer().tokenize("li\0st"), (
        "either keeps them"
    )


def test_moses_takes_a_line_of_any_length() -> None:
    tokenizer = MosesTokenizer()
    part = "the <unk>, again <eos> isn't THISISPROTECTED000 and so on "
    once = tokenizer.tokenize(part)
    assert once[:6] == ["the", "<unk>", ",", "again", "<eos>", "isn"]
    assert tokenizer.tokenize(part * 1_500) == once * 1_500, (
        "sacremoses protects 1,000 symbols at most"
    )


@given(
    st.lists(
        st.sampled_from([*"aB5é .,'-/", "<unk>", "<eos>", "...", "Mr.", "e.g.", "don't"]),
        max_size=40,
    )
)
def test_moses_splits_as_sacremoses_does(parts: list[str]) -> None:
    line = "".join(parts)
    protected = [symbol for symbol in ("<unk>", "<eos>") if symbol in line]
    expected = sacremoses.MosesTokenizer("en").tokenize(
        line, escape=False, protected_patterns=protected or None
    )
    assert MosesTokenizer().tokenize(line) == expected


@given(st.lists(st.text("abc.,", min_size=1, max_size=4), max_size=8))
def test_whitespace_round_trip(tokens: list[str]) -> None:
    tokenizer = WhitespaceTokenizer()
    assert tokenizer.tokenize(tokenizer.detokenize(tokens)) == tokens
    assert tokenizer.words(tokenizer.detokenize(tokens)) == len(tokens)


def test_sentencepiece_learns_the_same_pieces_twice_and_restores_text(tmp_path: Path) -> None:
    one = SentencePieceTokenizer.train(iter(LINES), tmp_path / "one.model", vocab_size=40, seed=1)
    two = SentencePieceTokenizer.train(iter(LINES), tmp_path / "two.model", vocab_size=40, seed=1)
    assert one.symbols == two.symbols
    assert len(one.symbols) == 39
    pieces = one.tokenize("the red tower stood by the river .")
    assert set(pieces) <= set(one.symbols)
    assert one.detokenize(pieces) == "the red tower stood by the river ."
    assert one.words("the red tower") == 3


def test_sentencepiece_refuses_more_pieces_than_the_text_supports(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="cannot learn 5000 pieces from this text: Vocabulary size too high"
    ):
        SentencePieceTokenizer.train(iter(LINES), tmp_path / "m.model", vocab_size=5000)
    assert list(tmp_path.iterdir()) == []


def test_lines_that_cannot_be_read_are_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match=r"latin\.txt is not UTF-8"):
        SentencePieceTokenizer.train(
            FileLines.of(tmp_path / "latin.txt").lines(), tmp_path / "m", vocab_size=40
        )
    assert not (tmp_path / "m").exists()


def test_a_model_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        SentencePieceTokenizer(tmp_path / "bad.model")
    with pytest.raises(UserError, match="does not exist"):
        SentencePieceTokenizer(tmp_path / "absent.model")


@pytest.mark.parametrize("name", ["whitespace", "moses", "sentencepiece"])
def test_every_tokenizer_loads_from_what_it_saved(tmp_path: Path, name: str) -> None:
    tokenizer: Tokenizer
    if name == "sentencepiece":
        tokenizer = SentencePieceTokenizer.train(
            iter(LINES), tmp_path / "trained.model", vocab_size=40
        )
    else:
        tokenizer = MosesTokenizer() if name == "moses" else WhitespaceTokenizer()
    folder = tmp_path / "saved"
    folder.mkdir()
    tokenizer.save(folder)
    loaded = load_tokenizer(tokenizer.spec(), folder)
    assert loaded.name == name
    assert loaded.tokenize(LINES[0]) == tokenizer.tokenize(LINES[0])


def test_a_changed_model_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer.train(iter(LINES), tmp_path / "a.model", vocab_size=40)
    tokenizer.save(tmp_path)
    with pytest.raises(UserError, match="not the model"):
        load_tokenizer({**tokenizer.spec(), "sha256": "0" * 64}, tmp_path)
    with pytest.raises(UserError, match=r"'spacy'.*whitespace, moses, sentencepiece"):
        load_tokenizer({"name": "spacy"}, tmp_path)


def test_raw_changes_nothing_and_lower_keeps_the_special_symbols() -> None:
    line = "The <unk> of Ångström <eos>"
    assert normalize(line, "raw") == line
    assert normalize(line, "lower") == "the <unk> of ångström <eos>"


def test_another_policy_is_refused() -> None:
    with pytest.raises(UserError, match=r"'title'.*raw, lower"):
        normalize("x", "title")  # type: ignore[arg-type]
