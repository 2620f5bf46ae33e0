"""Drafts save passes and change nothing: the same answers for the same seed, and the same
distribution over seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.memory.ngrams import NGrams
from hebblm.online.drawing import Answer, Sampling, draw
from hebblm.reader.drafts import Ahead, Drafts
from hebblm.reader.reader import Reader
from hebblm.text.dictionary import Dictionary
from hebblm.text.tokenizers import WhitespaceTokenizer
from hebblm.text.vocabulary import GrowingVocabulary

TEXT = (
    "The function frobnitz returns a list .\nCall frobnitz with two arguments , and frobnitz "
    "raises an error .\n" * 6
)
ASKED = [  # each method at the likeliest words or at words that are drawn
    ("tiny-pydoc-raw", "best", 0.8),
    ("tiny-pydoc-raw", "ngram", 0),
    ("tiny-pydoc-raw", "dynamic+best", 0),
    ("llama-wt2-small", "mixture+hebb+ngram", 0.8),
]


@contextmanager
def passes(reader: Reader) -> Iterator[list[int]]:
    """Count the passes of a reader's base inside, by the tokens of each."""
    read, found = reader.session.base.read, []

    def counted(inputs: Tensor) -> Tensor:
        found.append(len(inputs))
        return read(inputs)

    reader.session.base.read = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del reader.session.base.read


@pytest.mark.parametrize(("model", "method", "temperature"), ASKED)
def test_an_answer_is_the_same_with_drafts_and_takes_fewer_passes(
    model: str, method: str, temperature: float
) -> None:
    settings = {"dynamic.rule": "stream"} if "dynamic" in method else {}
    reader = hebblm.load(model, device="cpu").reader(method, settings=settings)
    reader.read(TEXT)
    asked: dict[str, Any] = {"max_new_tokens": 24, "temperature": temperature, "seed": 5}
    # the space at the end says that the word is whole: nothing is searched
    with passes(reader) as without:
        plain = reader.generate("Call frobnitz ", **asked)
    with passes(reader) as with_drafts:
        drafted = reader.generate("Call frobnitz ", draft=True, **asked)
    assert drafted == plain
    assert len(without) == 24
    assert len(with_drafts) < 18
    assert reader.generate("Call frobnitz ", **asked) == plain, "it stands where it stood"
    ended = reader.generate("Call frobnitz ", draft=True, until=["returns", "."], **asked)
    assert ended == reader.generate("Call frobnitz ", until=["returns", "."], **asked)


@pytest.mark.parametrize(
    ("model", "options", "order", "tokens", "most"),
    [
        ("llama-wt2-small", {"context": 24}, 5, 60, 45),  # its window moves on
        *(("tiny-pydoc-raw", {}, order, 40, 35) for order in (1, 5)),
    ],
)
def test_an_answer_is_the_same_in_fewer_passes(
    model: str, options: dict[str, int], order: int, tokens: int, most: int
) -> None:
    reader = hebblm.load(model, device="cpu", **options).reader(
        "ngram", settings={"ngram.order": order}
    )
    reader.read(TEXT)
    plain = reader.generate("Call frobnitz", max_new_tokens=tokens, temperature=0)
    with passes(reader) as found:
        assert (
            reader.generate("Call frobnitz", max_new_tokens=tokens, temperature=0, draft=True)
            == plain
        )
    assert len(found) < most


def test_a_match_is_as_long_as_it_says() -> None:
    drafts = Drafts(NGrams(order=1), [7, 8, 7])
    assert [each.match for each in drafts.draft(1)] == [1]
    assert Drafts(NGrams(order=1), [7]).draft(3) == []


def test_nothing_was_read_and_nothing_asked() -> None:
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    for temperature in (0, 1.0):
        texts = [
            lm.reader("ngram").generate(max_new_tokens=20, temperature=temperature, draft=d)
            for d in (False, True)
        ]
        assert texts[0] == texts[1]


WORDS = GrowingVocabulary(
    Dictionary.vocabulary(Counter("aaabbc")), WhitespaceTokenizer(), lower=False
)


class Chain:
    """A base whose state is the token read last, of a Markov chain."""

    max_rewind = 64

    def __init__(self) -> None:
        self.read_tokens: list[int] = []
        self.taken_back = 0

    def read(self, inputs: Tensor) -> Tensor:
        self.read_tokens += inputs.tolist()
        return inputs[:, None].float()

    def rewind(self, count: int) -> None:
        self.taken_back += count
        del self.read_tokens[-count:]


def test_drawn_answers_have_the_distribution_of_those_without_drafts() -> None:
    a, b, c = (WORDS.dictionary.index(word) for word in "abc")
    next_word = torch.full((len(WORDS), len(WORDS)), 1e-12)
    next_word[:, [a, b, c]] = torch.tensor([0.5, 0.3, 0.2])
    next_word[a, [a, b, c]] = torch.tensor([0.1, 0.7, 0.2])
    next_word[b, [a, b, c]] = torch.tensor([0.25, 0.15, 0.6])
    counts = NGrams(order=3)
    counts.add_text(np.array([a, b, c, a, b, c, b, b, a, b, c] * 3))
    found: Counter[str] = Counter()
    drafted = taken_back = 0
    for seed in range(2000):
        chain = Chain()
        expect = Ahead(
            chain, lambda state, text: next_word[int(state[0, 0])].log(), [a, b, c], counts
        )  # type: ignore[arg-type]
        text = draw(
            expect,
            torch.tensor([c, a]),
            Answer(WORDS),
            most=4,
            sampling=Sampling(1.0, seed),
            until=(),
        )
        found[text.replace(" ", "")] += 1
        drafted += len(chain.read_tokens) + chain.taken_back - 5
        taken_back += chain.taken_back
    assert taken_back > 250
    assert drafted > taken_back
    names = {a: "a", b: "b", c: "c"}
    expected = {
        "".join(names[token] for token in tokens): float(
            torch.stack(
                [next_word[one, two] for one, two in zip((a, *tokens), tokens, strict=False)]
            ).prod()
        )
        for tokens in product((a, b, c), repeat=4)
    }
    common = [text for text, share in expected.items() if 2000 * share >= 5]
    rest = 2000 - sum(found[text] for text in common)
    shares = [expected[text] for text in common]
    observed = [*(found[text] for text in common), rest]
    assert chisquare(observed, [2000 * share for share in [*shares, 1 - sum(shares)]]).pvalue > 1e-3


def test_a_text_that_does_not_repeat_gets_next_to_no_drafts() -> None:
    random = np.random.default_rng(0)
    counts = NGrams(order=3)
    counts.add_text(random.integers(0, 2000, 20_000))
    text = [1, 2, 3]
    drafts, drafted = Drafts(counts, text), 0
    for token in random.integers(0, 2000, 500).tolist():
        found = drafts.draft(12)
        drafted += len(found)
        text.append(token)
        drafts.take(token, found[0] if found else None)
    assert drafted < 75, "at 0.06 of a pass each they cost less than 1 %"


def test_a_draft_grows_with_what_is_drawn_and_shrinks_with_what_is_not() -> None:
    text = [*range(30), 0, 1, 2]
    drafts = Drafts(NGrams(order=3), text)
    first = len(drafts.draft(12))
    for token in range(3, 15):
        found = drafts.draft(12)
        text.append(token)
        drafts.take(token, found[0])
    assert first < len(drafts.draft(12)) == 12
    for token in range(100, 120):
        text += [0, 1, 2]
        drafts.take(2, None)
        found = drafts.draft(12)
        text.append(token)
        drafts.take(token, found[0] if found else None)
    assert len(drafts.draft(12)) == 0


def test_the_likeliest_token_is_the_one_counted_most() -> None:
    random = np.random.default_rng(1)
    tokens = random.integers(0, 6, 400)
    counts = NGrams(order=3)
    counts.add_text(tokens)
    followers: dict[tuple[int, ...], list[int]] = {}
    for at, token in enumerate(tokens.tolist()):
        for n in range(1, min(3, at) + 1):
            followers.setdefault(tuple(tokens[at - n : at].tolist()), []).append(token)
    for before in [*product(range(7), repeat=3), (1,), (2, 3)]:
        found = counts.likeliest(counts.context_after(before))
        longest = max((n for n in range(1, len(before) + 1) if before[-n:] in followers), default=0)
        if not longest:
            assert found is None
            continue
        assert found is not None
        token, length, share = found
        seen = Counter(followers[before[-longest:]])
        assert length == longest
        assert seen[token] == max(seen.values())
        taken = [0, 0.5, 0.8, 1.0] if longest >= 3 else [0, 0.7, 1.1, 1.5]
        assert share == pytest.approx((seen[token] - taken[min(seen[token], 3)]) / seen.total())


def test_a_method_without_counts_is_refused_with_one_that_has_them() -> None:
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    for method in ("mixture", "lstm"):
        with pytest.raises(
            UserError, match=r"counts no n-grams, so it has no drafts; use (\S+), or leave"
        ) as error:
            lm.reader(method).generate("The", draft=True)
        other = str(error.value).split("use ")[1].split(",")[0]
        assert lm.reader(other).generate("The", draft=True, max_new_tokens=3)
