"""Words of a text: the same under every tokenizer, and with the losses that their pieces have
together.
"""

from __future__ import annotations

import math
import unicodedata

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hebblm.reader.scores import Scores
from hebblm.text.subwords import Subwords
from hebblm.text.words import counted_as, lost_bytes, words_of

from ...support.pieces import KINDS, tokenizer_of, words_alone

COMPOSED = "là .\n"
TEXTS = [
    "end of the war\n",
    COMPOSED,
    unicodedata.normalize("NFD", COMPOSED),
    "the  list\n\n   is\tlong .\n",
    "  of the\n",
    "the list",
    "THE LIST Is Long.\n",
    "the 😀 list 中文 \ufb01n\n\n\n",
    "\n",
    "the end  ",
]


def subwords(kind: str) -> Subwords:
    tokenizer = tokenizer_of(kind)
    return Subwords(tokenizer, len(tokenizer))


def plain_words(text: str) -> list[str]:
    """Return the words of a text: what stands between spaces, and line breaks."""
    return text.replace("\n", " \x00 ").replace("\x00", "<break>").split()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_words_follow_from_the_text_under_every_tokenizer(kind: str, text: str) -> None:
    found = subwords(kind).encode(text)
    assert found.words is not None
    assert [word.replace("\n", "<break>") for word in found.words.texts] == plain_words(text)
    values = np.random.default_rng(1).random(len(found.ids))
    sums = found.words.sums(values)
    assert len(sums) == len(plain_words(text))
    if len(found.ids):
        assert sums.sum() == pytest.approx(values.sum())
    assert (np.diff(found.words.first) >= 0).all()
    assert (found.words.first <= found.words.last).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cut_anywhere_has_the_same_words(kind: str) -> None:
    found = subwords(kind).encode("the  list\n\n is long of the war\n")
    assert found.words is not None
    values = np.random.default_rng(2).random(len(found.ids))
    whole = found.words.sums(values)
    for place in range(len(found.ids) + 1):
        before, after = found.cut(place)
        assert before.ids + after.ids == found.ids
        both = before.then(after) if place else after
        assert both.unknown == found.unknown
        assert before.words is not None
        assert after.words is not None
        assert len(before.words) + len(after.words) - after.words.goes_on == len(whole)
        sums = before.words.sums(values[:place]).sum() + after.words.sums(values[place:]).sum()
        assert sums == pytest.approx(whole.sum())


def test_words_of_a_part_without_pieces_are_kept() -> None:
    pieces = subwords("WordPiece")
    breaks = pieces.encode("\n\n")
    assert not breaks.ids
    both = breaks.then(pieces.encode("the list"))
    assert both.words is not None
    assert both.words.texts == ("\n", "\n", "the", "list")
    assert both.lost == 2


def test_a_piece_of_several_words_gives_each_an_equal_part() -> None:
    text = "of the\nwar"
    words = words_of(text, [(0, 6), (6, 7), (7, 8), (8, 10)])
    assert words.texts == ("of", "the", "\n", "war")
    assert words.sums(np.array([2.0, 3.0, 4.0, 5.0])).tolist() == [1.0, 1.0, 3.0, 9.0]


def test_the_known_examples_have_their_word_perplexity() -> None:
    """Byte-level BPE with a piece "of the": five words; NFC: three words in either form of the
    text.
    """
    encoded = subwords("byte-level, not split at spaces").encode("end of the war\n")
    assert any(" " in token.strip() for token in encoded.tokens)
    nll = torch.rand(len(encoded.ids)) * 10
    new = torch.zeros(len(encoded.ids), dtype=torch.bool)
    scores = Scores(encoded.tokens, nll, new, 15, encoded.words)
    assert scores.by_word().tokens == ("end", "of", "the", "war", "\n")
    assert scores.word_perplexity == pytest.approx(
        math.exp(float(nll.double().sum()) / 5), rel=1e-5
    )
    for form in (COMPOSED, unicodedata.normalize("NFD", COMPOSED)):
        assert len(subwords("NFC").encode(form).words or ()) == 3


def test_a_line_break_that_the_tokenizer_drops_is_a_word_all_the_same() -> None:
    found = subwords("line breaks dropped").encode("the list\nis\n")
    assert found.words is not None
    assert found.words.texts == ("the", "list", "\n", "is", "\n")
    assert found.words.sums(np.ones(len(found.ids)))[-1] == 0


@pytest.mark.parametrize(
    ("kind", "text", "least"),
    [
        ("byte-level", "THE café 中\n\n", 0),
        ("byte-level, not split at spaces", "THE café 中\n\n", 0),
        ("byte fallback", "THE café 中\n\n", 0),
        ("lower case", "THE LIST Is Long.\n", 9),
        ("lower case", "the list is long.\n", 0),
        ("NFC", unicodedata.normalize("NFD", COMPOSED), 3),
        ("NFKC", "\ufb01n\n", 3),
        ("line breaks dropped", "the list\nis\n", 2),
        ("WordPiece", "the list\nis\n", 2),
    ],
)
def test_bytes_that_the_ids_do_not_give_back_are_counted(kind: str, text: str, least: int) -> None:
    found = subwords(kind).encode(text)
    assert found.lost == least


def test_pieces_without_an_id_are_spelled_and_not_lost() -> None:
    found = subwords("words").encode("frobnitz the <unk> quux")
    assert [found.tokens[place].strip() for place in found.unknown] == ["frobnitz", "quux"]
    assert found.lost == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_blanks_is_one_word_under_every_tokenizer(kind: str) -> None:
    found = subwords(kind).encode("    ")
    assert found.words is not None
    assert found.words.texts == ("    ",)
    assert subwords(kind).encode("").words is not None
    assert len(subwords(kind).encode("").words or ()) == 0


@pytest.mark.parametrize(
    "names", [{}, {"unk_token": "<unk>"}, {"bos_token": "<unk>", "eos_token": "<unk>"}]
)
def test_unknown_pieces_are_found_whatever_the_tokenizer_calls_them(names: dict[str, str]) -> None:
    made = PreTrainedTokenizerFast(tokenizer_object=words_alone(), **{"bos_token": "the", **names})
    found = Subwords(made, len(made)).encode("frobnitz the <unk> quux")
    assert [found.tokens[place].strip() for place in found.unknown] == ["frobnitz", "quux"]


def test_lost_bytes_are_those_of_characters_that_are_missing_or_added() -> None:
    assert lost_bytes("the list", "the list") == lost_bytes("the list", " the list") == 0
    assert lost_bytes("The é", "the e") == 3
    assert lost_bytes("don't", "don ' t") == 2


@pytest.mark.parametrize(
    ("word", "counted"),
    [
        ("budget.", "budget"), ("budget", "budget"), ("U.S.", "U.S."), ("Frobnitz.", "Frobnitz"),
        ("(budget).", "(budget)"),
        ("...", "."), ("\n", "<eos>"), (".", "."), ("budget!", "budget!"),
    ],
)  # fmt: skip
def test_a_word_is_counted_without_punctuation_that_stands_apart_in_the_counted_text(
    word: str, counted: str
) -> None:
    assert counted_as(word, {"budget", "U.S.", ".", "<eos>"}) == counted
