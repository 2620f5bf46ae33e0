"""Words that are expected next, from probabilities alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.expected import Suggestion, draw, most_probable
from hebblm.text.dictionary import Dictionary
from hebblm.text.tokenizers import WhitespaceTokenizer
from hebblm.text.vocabulary import GrowingVocabulary

WORDS = GrowingVocabulary(Dictionary.vocabulary(Counter("aaabbc")), WhitespaceTokenizer(), lower=False)
FIRST = torch.tensor([WORDS.dictionary.index("a")])


def probabilities(**given: float) -> Tensor:
    found = torch.full((len(WORDS),), 0.01)
    for word, value in given.items():
        found[WORDS.dictionary.index(word) if word != "unk" else WORDS.unknown] = value
    return found


def test_the_most_probable_words_come_first_and_what_is_none_is_left_out() -> None:
    found = most_probable(probabilities(unk=0.6, b=0.2, c=0.1), probabilities(c=0.5), WORDS, 2)
    assert [word for word, _ in found] == [
        Suggestion("b", pytest.approx(0.2), pytest.approx(0.01)),
        Suggestion("c", pytest.approx(0.1), pytest.approx(0.5)),
    ]
    assert [{WORDS[index]: share for index, share in rest.items()} for _, rest in found] == [{"b": 1.0}, {"c": 1.0}]
    assert len(most_probable(probabilities(), probabilities(), WORDS, 99)) == len(WORDS) - 1


def drawn(**options: object) -> tuple[str, list[list[int]]]:
    """Return what is drawn where b follows a and c follows b, and what was read for that."""
    read: list[list[int]] = []
    follows = {"a": "b", "b": "c", "c": "a"}

    def expect(ids: Tensor) -> Tensor:
        read.append(ids.tolist())
        return probabilities(unk=0.9, **{follows.get(WORDS[int(ids[-1])], "a"): 0.5}).log()

    asked = {"most": 4, "temperature": 0.0, "seed": 0, "until": (), **options}
    return draw(expect, FIRST, WORDS, **asked), read  # type: ignore[arg-type]


def test_words_are_drawn_one_behind_the_other() -> None:
    text, read = drawn()
    assert text == "b c a b"
    assert read == [[WORDS.dictionary.index(word)] for word in "abca"]
    assert drawn(until=("a",))[0] == "b c "
    assert drawn(most=0) == ("", [])
    assert drawn(temperature=0.7, seed=1, most=30)[0] == drawn(temperature=0.7, seed=1, most=30)[0]
    assert drawn(temperature=5.0, seed=1, most=30)[0] != drawn(temperature=5.0, seed=2, most=30)[0]
    assert "<unk>" not in drawn(temperature=5.0, most=60)[0]
    with pytest.raises(UserError, match="temperature = -1"):
        drawn(temperature=-1.0)
