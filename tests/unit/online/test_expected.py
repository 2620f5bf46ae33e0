"""Words that are expected next, from probabilities alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.online.drawing import Answer, Sampling, draw
from hebblm.online.expected import Expected, Suggestion, Suggestions, WordForms, most_probable
from hebblm.text.dictionary import Dictionary
from hebblm.text.tokenizers import WhitespaceTokenizer
from hebblm.text.vocabulary import GrowingVocabulary

WORDS = GrowingVocabulary(
    Dictionary.vocabulary(Counter("aaabbc")), WhitespaceTokenizer(), lower=False
)
FIRST = torch.tensor([WORDS.dictionary.index("a")])


def probabilities(**given: float) -> Tensor:
    found = torch.full((len(WORDS),), 0.01)
    for word, value in given.items():
        found[WORDS.dictionary.index(word) if word != "unk" else WORDS.unknown] = value
    return found


def likely(adapted: Tensor, unadapted: Tensor, n: int, **options: Any) -> list[Expected]:
    return most_probable(adapted, unadapted, WORDS, WordForms(WORDS), n, **options)


def test_the_most_probable_words_come_first_and_unknown_ones_are_left_out() -> None:
    found = likely(probabilities(unk=0.6, b=0.2, c=0.1), probabilities(c=0.5), 2)
    assert [word for word, _ in found] == [
        Suggestion("b", pytest.approx(0.2), pytest.approx(0.01)),
        Suggestion("c", pytest.approx(0.1), pytest.approx(0.5)),
    ]
    assert [{WORDS[index]: share for index, share in rest.items()} for _, rest in found] == [
        {"b": 1.0},
        {"c": 1.0},
    ]
    assert len(likely(probabilities(), probabilities(), 99)) == len(WORDS) - 1


def test_forms_that_differ_in_punctuation_that_follows_are_one_word() -> None:
    words = GrowingVocabulary(Dictionary.vocabulary(Counter(["karm", "karm.", "karm;", "arm",
    "."])),
                              WhitespaceTokenizer(), lower=True)  # fmt: skip
    own = torch.full((len(words),), 0.01)
    for word, value in {"karm": 0.2, "karm.": 0.15, "karm;": 0.1, "arm": 0.4, ".": 0.05}.items():
        own[words.dictionary.index(word)] = value
    forms = WordForms(words)
    found = most_probable(own, own, words, forms, 3)
    assert [(item.word, item.insert_text) for item, _ in found] == [
        ("karm", "karm"),
        ("arm", "arm"),
        (".", "."),
    ]
    assert [item.probability for item, _ in found] == pytest.approx([0.45, 0.4, 0.05])
    assert sorted(words[index] for index in found[0].rest) == ["karm", "karm.", "karm;"]
    # the model has small letters alone
    [narrowed] = most_probable(own, own, words, forms, 3, typed="Ka")
    assert narrowed.suggestion == Suggestion("karm", pytest.approx(1.0), pytest.approx(1.0))
    assert sum(float(own[at]) * share for at, share in narrowed.rest.items()) == pytest.approx(1.0)
    assert most_probable(own, own, words, forms, 3, typed="x") == []


@pytest.mark.parametrize("lower", [False, True])
def test_words_that_begin_with_letters_are_those_of_looking_at_each(lower: bool) -> None:
    known = Counter(["arm", "Arm", "army", "arms", "a", "b", "\u00e4rm", "ar\U0010ffff", "as"])
    words = GrowingVocabulary(Dictionary.vocabulary(known), WhitespaceTokenizer(), lower=lower)
    forms = WordForms(words)
    for new in ([], ["armor", "Army", "zebra"], ["ar", "b"]):  # asked again after it has grown
        words.include(new)
        for size in (len(words), len(words) - 1):
            for typed in ("a", "A", "ar", "Ar", "arm", "arms", "armsx", "z", "\u00e4", "b", "0"):
                writings = {typed, typed.lower()} if lower else {typed}
                plain = [at for at in range(size) if any(map(words[at].startswith, writings))]
                assert forms.beginning_with(typed, size) == plain


def test_a_suggestion_unpacks_as_three_and_says_what_to_insert() -> None:
    item = Suggestion("Grabbit", 0.5, 0.1, "bbit")
    word, adapted, base = item
    assert (word, adapted, base, item.insert_text, item.ends) == ("Grabbit", 0.5, 0.1, "bbit", True)
    found = Suggestions([item], 0.2, exact=False)
    assert found == [item]
    assert (found.bound, found.exact) == (0.2, False)


def drawn(**options: object) -> tuple[str, list[list[int]]]:
    """Return what is drawn where b follows a and c follows b, and what was read for that."""
    read: list[list[int]] = []
    follows = {"a": "b", "b": "c", "c": "a"}

    def expect(ids: Tensor) -> Tensor:
        read.append(ids.tolist())
        return probabilities(unk=0.9, **{follows.get(WORDS[int(ids[-1])], "a"): 0.5}).log()

    asked: dict[str, Any] = {"most": 4, "temperature": 0.0, "seed": 0, "until": (), **options}
    temperature, seed = float(asked["temperature"]), int(asked.pop("seed"))
    answer = Answer(WORDS)
    del asked["temperature"]
    return draw(expect, FIRST, answer, sampling=Sampling(temperature, seed), **asked), read


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
