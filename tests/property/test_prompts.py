"""Answers follow their prompt and hold whole characters, with every kind of tokenizer and with
words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.online.drawing import PieceAnswer, Sampling, draw
from hebblm.online.prompts import Prompt, spelled
from hebblm.online.word_beam import Place, words_ahead
from hebblm.text import word_ends
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

from ..support.pieces import KINDS, LINES, tokenizer_of
from ..unit.models.architectures import random_model

PROMPTS = ("", "the end of", "the end of ", "the li", "the", "of the list\n", "la")
# the text that comes back is not the text that was given
CHANGED = "lower case", "line breaks dropped", "WordPiece"


@cache
def model(kind: str) -> hebblm.LanguageModel:
    tokenizer = tokenizer_of(kind)
    return hebblm.load(
        (random_model("Llama", vocab_size=len(tokenizer)), tokenizer), context=32, stride=16
    )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids of each answer, after those of its context."""
    found: list[list[int]] = []
    original = PieceAnswer.text

    def spy(answer: PieceAnswer, ids: Sequence[int]) -> str:
        found.append([*ids])
        return original(answer, ids)

    monkeypatch.setattr(PieceAnswer, "text", spy)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_and_its_answer_are_the_text_that_the_tokens_write(
    kind: str, drawn: list[list[int]]
) -> None:
    lm = model(kind)
    reader = lm.reader("ngram")
    reader.read("".join(LINES[:3]))
    reader.begin()
    pieces = PieceTexts(Subwords(tokenizer_of(kind), len(lm.vocabulary)))
    for prompt in PROMPTS:
        for temperature, seed in ((0, 1), (1.0, 1), (1.0, 2)):
            answer = reader.generate(prompt, max_new_tokens=4, temperature=temperature, seed=seed)
            assert "\ufffd" not in answer
            context = lm.vocabulary.encode(Prompt.split(prompt).context, include=False).ids
            whole = lm.vocabulary.join([*context, *drawn[-1]]) if drawn[-1] else prompt
            given = lm.vocabulary.join(context)
            if (
                kind in CHANGED
                or kind == "words"
                or "\ufffd" in whole
                or not prompt.startswith(given)
            ):
                assert whole.endswith(answer.lstrip()) or "\ufffd" in whole
            else:
                assert prompt + answer == whole, (prompt, answer)
        for n in (1, 4):
            for item in reader.suggest(*Prompt.split(prompt)[::2][:1], n, budget=20):
                assert "\ufffd" not in item.word
                assert item.insert_text.split() in ([item.word], [])
    assert pieces.depth >= 1


def test_answers_of_words_follow_their_prompt_and_letters_are_gone_on_with() -> None:
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("ngram")
    reader.read("The function frobnitz returns a list .\nCall frobnitz with two arguments .\n" * 8)
    reader.begin()
    expected = "The function frobnitz returns a list .\n"
    for at in range(4, len(expected) - 3):
        prompt = expected[:at]
        answer = reader.generate(prompt, max_new_tokens=8, temperature=0)
        assert (prompt + answer).startswith(expected[:-2]), prompt
    for at in range(1, len("frobnitz")):
        found = reader.suggest("The function", 1, typed="frobnitz"[:at])
        assert [(item.word, item.insert_text) for item in found] == [("frobnitz", "frobnitz"[at:])]
    assert reader.suggest("The function", 1)[0].insert_text == " frobnitz"
    assert reader.suggest("The function ", 1)[0].insert_text == "frobnitz"
    assert reader.generate("The qqq", max_new_tokens=1, temperature=0).startswith(" ")
    assert reader.suggest("The", 5, typed="qqq") == []
    with pytest.raises(UserError, match=r"typed = 'a b' holds a space"):
        reader.suggest("The", typed="a b")


class Weighted:
    """A model that writes one of some texts, byte by byte, each with its probability; UTF-8 may be
    broken on the way.

    Args:
        pieces: single bytes among them are used alone.
        texts: probabilities of texts.
        broken: probability of a byte that makes no text, after each.
    """

    def __init__(self, pieces: PieceTexts, texts: dict[str, float], broken: float = 0.0) -> None:
        self.pieces, self.broken = pieces, broken
        self.texts = {text.encode(): value for text, value in texts.items()}
        self.single = {data: index for index, data in enumerate(pieces.data) if len(data) == 1}

    def after(self, data: bytes) -> Tensor:
        found = torch.zeros(len(self.pieces.data), dtype=torch.float64)
        for text, value in self.texts.items():
            if text.startswith(data) and len(text) > len(data):
                found[self.single[text[len(data) : len(data) + 1]]] += value
        found = found / found.sum() if found.sum() else found + 1.0 / len(found)
        found *= 1 - self.broken
        found[self.single[b"\xff"]] += self.broken
        return found

    def __call__(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        joined = [b"".join(self.pieces.data[index] for index in row) for row in rows]
        log_probs = torch.stack([self.after(data) for data in joined]).log()
        return log_probs, log_probs


PIECES = PieceTexts(Subwords(tokenizer_of("byte-level"), len(tokenizer_of("byte-level"))))


@pytest.fixture
def no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_ends, "dictionary", lambda: None)


def likely(
    texts: dict[str, float],
    n: int,
    place: Place = Place(),  # noqa: B008
    broken: float = 0.0,
) -> dict[str, float]:
    found = words_ahead(Weighted(PIECES, texts, broken), PIECES, n, place)
    return {each.suggestion.word: round(each.suggestion.probability, 6) for each in found.words}


def test_a_dictionary_separates_the_words_of_scripts_without_blanks() -> None:
    pytest.importorskip("icu4py")
    texts = {"東京に行く ": 0.5, "京都に行く ": 0.3, "abc ": 0.2}
    assert likely(texts, 3) == {"東京": 0.5, "京都": 0.3, "abc": 0.2}
    assert likely({"สวัสดีครับ ": 0.9, "ครับผม ": 0.1}, 2) == {"สวัสดี": 0.9, "ครับ": 0.1}


@pytest.mark.usefixtures("no_dictionary")
def test_without_a_dictionary_characters_run_on_while_what_follows_is_likelier_than_not() -> None:
    texts = {"東京に行く。": 0.3, "東京都。": 0.3, "東大。": 0.1, "abc ": 0.3}
    # 京 follows 東 in 6 of 7 texts, に and 都 in half of those
    assert likely(texts, 2) == {"東京": 0.6, "abc": 0.3}
    found = words_ahead(Weighted(PIECES, texts), PIECES, 2, Place()).words
    assert [each.suggestion.ends for each in found] == [False, True]
    assert likely({"สวัสดี ": 0.9, "ก็ ": 0.1}, 2) == {"สวัสดี": 0.9, "ก็": 0.1}
    mark = unicodedata.normalize("NFD", "が")  # a letter and its mark are one character
    assert set(likely({mark + "x ": 0.4, "か ": 0.6}, 2)) == {mark, "か"}


@pytest.mark.parametrize("broken", [0.0, 0.3])
def test_words_and_answers_hold_no_half_character(broken: float) -> None:
    texts = {"né ": 0.5, "nÊ ": 0.3, "👩‍👧 ": 0.2}
    assert set(likely(texts, 3, broken=broken)) == {"né", "nÊ", "👩‍👧"}
    expect = Weighted(PIECES, {"né 👩‍👧 東京 ": 1.0}, broken)
    vocabulary = Subwords(tokenizer_of("byte-level"), len(PIECES.data))
    for most in range(1, 24):
        read: list[int] = []

        def following(ids: Tensor, read: list[int] = read) -> Tensor:
            read += ids.tolist()
            return expect([tuple(read[1:])])[0][0]

        answer = PieceAnswer(vocabulary, PIECES, Prompt("", "", ""), begins=False)
        options: dict[str, Any] = {
            "most": most,
            "sampling": Sampling(1.0, most),
            "until": (),
        }
        text = draw(following, torch.tensor([0]), answer, **options)
        assert "\ufffd" not in text
        assert "né 👩‍👧 東京 ".startswith(text), text


def test_letters_are_spelled_as_often_as_the_model_writes_them() -> None:
    expect = Weighted(PIECES, {" Grabbit ": 0.3, " Gram ": 0.1, " Gone ": 0.6})
    prompt = Prompt.split("the Gra")
    assert prompt == ("the", " ", "Gra")
    place, choose = prompt.place(""), Sampling(1.0, 7).chooser()
    drawn = [spelled(expect, PIECES, place, choose, 1.0) for _ in range(5)]
    assert {PIECES.text(ids) for ids in drawn if ids is not None} == {" Gra"}
    assert likely(expect_texts := {" Grabbit ": 0.3, " Gram ": 0.1, " Gone ": 0.6}, 5, place) == {
        "Grabbit": 0.75, "Gram": 0.25,
    }  # fmt: skip
    assert likely(expect_texts, 5, Place(b" ", 1)) == {"Gone": 0.6, "Grabbit": 0.3, "Gram": 0.1}
    assert spelled(Weighted(PIECES, {" x": 1.0}), PIECES, place, choose, 1.0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plan for Gra", ("plan for", " ", "Gra")), ("plan for ", ("plan for", " ", "")), ("plan",
        ("", "", "plan")),
        ("", ("", "", "")), ("a\n  b", ("a\n", "  ", "b")), ("a\n", ("a\n", "", "")), ("東京に",
        ("東京に", "", "")),
        ("it .", ("it .", "", "")),
        ("行くab", ("行く", "", "ab")),
    ],
)  # fmt: skip
def test_a_prompt_is_cut_after_its_last_space(text: str, expected: tuple[str, str, str]) -> None:
    assert Prompt.split(text) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_pieces_join_to_the_bytes_of_their_text(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    vocabulary = Subwords(tokenizer, len(tokenizer))
    pieces = PieceTexts(vocabulary)
    for text in (*LINES, "né 東京 👩‍👧 x\n"):
        ids = [index for index in vocabulary.encode(text).ids if index not in pieces.special]
        assert b"".join(pieces.data[index] for index in ids).decode(
            errors="replace"
        ) == pieces.text(ids)
