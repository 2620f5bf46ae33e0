from __future__ import annotations

from collections import Counter

import pytest

from hebblm.errors import UserError
from hebblm.text.dictionary import Dictionary
from hebblm.text.fitting import Splitting, fitting, warn_of_unknown
from hebblm.text.tokenizers import MosesTokenizer, Tokenizer, WhitespaceTokenizer
from hebblm.text.vocabulary import GrowingVocabulary

KNOWN = Dictionary.vocabulary(
    Counter(["no", "reason", ",", "he", "said", ".", "it", "was", "the", "end"])
)
PROSE = ["no reason, he said.", "it was, he said, the end."] * 20
TOKENISED = ["no reason , he said . it was another end ."] * 20


def chosen(lines: list[str], own: Tokenizer, asked: Splitting = "auto") -> Tokenizer:
    return fitting(lines, own, KNOWN.__contains__, asked, name="notes.txt")


def test_plain_prose_is_split_at_punctuation_for_a_model_of_tokenised_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = chosen(PROSE, WhitespaceTokenizer())
    assert found.tokenize("no reason, he said.") == ["no", "reason", ",", "he", "said", "."]
    told = capsys.readouterr().err
    assert told.startswith(
        "notes.txt is split at punctuation as well: 0.0 % of its tokens are unknown"
    )
    assert "50.0 % if it is split at spaces alone" in told


def test_prose_full_of_new_names_is_split_too() -> None:
    """Its names stay unknown however it is split; a third of what is unknown hangs on
    punctuation.
    """
    known = {"the", "of", "rose", "fell", ",", "."}
    lines = [
        "Frobnitz of Quuxland rose, the Blorp fell.",
        "the Zorg of Plugh rose. the Wibble fell,",
    ]
    assert fitting(lines, WhitespaceTokenizer(), known.__contains__, name="x").name == "moses"
    spaced = [line.replace(",", " ,").replace(".", " .") for line in lines]
    assert fitting(spaced, WhitespaceTokenizer(), known.__contains__, name="x").name == "whitespace"


def test_what_is_tokenised_or_asked_for_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen(PROSE, WhitespaceTokenizer(), "whitespace") == WhitespaceTokenizer()
    assert chosen(PROSE, WhitespaceTokenizer(), "moses") == MosesTokenizer()
    assert chosen(PROSE, MosesTokenizer()) == MosesTokenizer()
    assert chosen(TOKENISED, WhitespaceTokenizer()) == WhitespaceTokenizer()
    assert capsys.readouterr().err == ""


def test_a_vocabulary_chooses_on_the_first_text_with_words_and_keeps_to_it() -> None:
    one = GrowingVocabulary(KNOWN, WhitespaceTokenizer(), lower=True)
    one.fit("\n \n")
    assert one.splitting is None
    one.fit("No reason, He said.")
    assert one.splitting == "moses", "capital letters are as they are read: no new words"
    one.fit(TOKENISED[0])
    assert one.encode("the end.", include=False).tokens == ("the", "end", ".")
    other = one.fresh()
    other.fit(TOKENISED[0])
    other.fit(PROSE[0])
    assert (other.splitting, other.tokenizer) == ("own", WhitespaceTokenizer())
    assert one.fresh("whitespace").tokenizer == WhitespaceTokenizer()
    with pytest.raises(
        UserError, match=r"unknown tokenizer 'mose'; did you mean moses\? choose auto"
    ):
        one.fresh("mose")  # type: ignore[arg-type]


def test_many_words_beyond_the_vocabulary_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown("notes.txt", Counter({"said,": 10}), 100, 0, "--tokenizer")
    assert capsys.readouterr().err == ""
    warn_of_unknown("notes.txt", Counter({"reason,": 4, "said,": 7}), 100, 3, "--tokenizer")
    told = capsys.readouterr().err
    assert told.startswith("warning: 11.0 % of the tokens of notes.txt are outside")
    assert (
        "most often 'said,', 'reason,'; 3.0 % are <unk> in the text itself; if these words are "
        "common" in told
    )
    warn_of_unknown("notes.txt", Counter({"reason,": 4, "said,": 7}), 100, 0, "--tokenizer")
    assert "most often 'said,', 'reason,'; if these words are common" in capsys.readouterr().err
