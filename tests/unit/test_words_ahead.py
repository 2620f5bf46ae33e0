"""Whole words by a beam over pieces, against every row of pieces there is, and through a reader."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.text.subwords import Subwords
from hebblm.words_ahead import LONGEST, PieceTexts, words_ahead

from .models.architectures import opened, tokenizer

pytest.importorskip("transformers")

PIECES = PieceTexts(Subwords(tokenizer(), 48))
KEPT = ["</s>", "a", "the", "Ġ", "Ċ", "Ġthe", "Ġa", "in"]  # the others have no probability
IDS = [tokenizer().convert_tokens_to_ids(piece) for piece in KEPT]
END, BREAK = IDS[0], IDS[4]


class Tiny:
    """A model of the last piece alone, in float64; after three pieces a text breaks its line or ends."""

    def __init__(self, seed: int) -> None:
        self.logits = torch.randn(2, 49, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        self.logits[:, :, [index for index in range(48) if index not in IDS]] = -torch.inf
        self.rows = 0

    def __call__(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        self.rows += len(rows)
        logits = torch.stack([self.logits[:, row[-1] if row else -1] for row in rows], 1).clone()
        for at, row in enumerate(rows):
            if len(row) >= 3:
                logits[:, at, [index for index in IDS if index not in (END, BREAK)]] = -torch.inf
        adapted, base = logits.log_softmax(-1)
        return adapted, base

    def words(self) -> dict[str, list[float]]:
        """Return the probability of each word, adapted and not, from every row of pieces until one shows its end."""
        found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

        def walk(ids: tuple[int, ...], both: tuple[float, float]) -> None:
            if not any(both):
                return
            text = PIECES.text(ids)
            word = re.search(r"\S+|\n", text)
            if ids and (ids[-1] == END or (word and (word[0] == "\n" or word.end() < len(text)))):
                assert word is not None
                before = PIECES.text(ids[:-1])
                text = (
                    "\n" if word[0] == "\n" else text[: word.end()] if ids[-1] != END else before.strip(" ") and before
                )
                for which, value in enumerate(both):
                    found[text or PIECES.text(ids)][which] += value
                return
            adapted, base = self([ids])
            for index in IDS:
                walk((*ids, index), (both[0] * float(adapted[0, index].exp()), both[1] * float(base[0, index].exp())))

        walk((), (1.0, 1.0))
        return found


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_follows_everything_finds_what_all_rows_of_pieces_add_up_to(seed: int) -> None:
    model = Tiny(seed)
    expected = model.words()
    assert sum(both[0] for both in expected.values()) == pytest.approx(1.0)
    assert {" thein", " the", "\n", "</s>"} < set(expected)
    found = words_ahead(model, PIECES, 10_000, 10_000)
    assert {word.word: [word.probability, word.unadapted] for word, _ in found} == {
        word: pytest.approx(both, rel=1e-9) for word, both in expected.items()
    }
    best = [word.probability for word, _ in found]
    assert best == sorted(best, reverse=True)
    first = model([()])[0][0]
    for word, rest in found:
        assert word.probability == pytest.approx(sum(float(first[at].exp()) * share for at, share in rest.items()))


@pytest.mark.parametrize("seed", range(6))
def test_the_best_words_come_from_a_few_rows_where_each_is_written_in_one_way(seed: int) -> None:
    model = Tiny(seed)
    model.logits[:, :, IDS[3]] = -torch.inf  # a blank by itself
    every = words_ahead(model, PIECES, 10_000, 10_000)
    whole, model.rows = model.rows, 0
    found = words_ahead(model, PIECES, 3, 200)
    assert model.rows < whole / 2
    assert found == every[:3]
    model.rows = 0
    assert len(words_ahead(model, PIECES, 3, 4)) == 3
    assert model.rows <= 1 + 4, "the place itself, and the beginnings that are followed"


def test_a_word_that_does_not_end_is_not_found() -> None:
    def expect(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        logits = torch.full((len(rows), 48), -30.0, dtype=torch.float64)
        logits[:, IDS[1]] = 0.0
        return logits.log_softmax(-1), logits.log_softmax(-1)

    found = words_ahead(expect, PIECES, 1, 10_000)
    assert max(len(word.word) for word, _ in found) <= LONGEST


def alone(lm: hebblm.LanguageModel, method: str, text: str, word: str) -> tuple[float, float]:
    """Return what a reader gives to a word, adapted and not, with a piece and a passage at a time."""
    both = []
    for name in (method, "lstm"):
        reader = lm.reader(name, update_every=10)
        reader.read(text)
        ids = lm.vocabulary.fresh().encode(word, include=False).ids
        probability = 1.0
        for at in range(len(ids) + 1):
            with reader._base.aside(), torch.no_grad():
                inputs = torch.cat([reader._last, reader._last.new_tensor(ids[:at])])
                hidden = reader._base.read(inputs)[-1:]
                log_probs = reader._next(hidden, reader._after(inputs))
            ends = log_probs[PIECES_70.ends].logsumexp(0) if at == len(ids) else log_probs[ids[at]]
            probability *= float(ends.exp())
        both.append(probability)
    return both[0], both[1]


PIECES_70 = PieceTexts(Subwords(tokenizer(), 70))


@pytest.mark.parametrize("name", ["Llama", "Mamba"])
@pytest.mark.parametrize("method", ["best", "dynamic"])
def test_a_reader_suggests_whole_words_with_their_probability(name: str, method: str) -> None:
    lm, text = opened(name), "the cat in a hat.\n" * 6 + "the"
    reader = lm.reader(method, update_every=10)
    reader.read(text)
    before = reader._base.stream_state()
    found = reader.suggest("", 4)
    assert len(found) == 4
    assert all(torch.equal(before[key], value) for key, value in reader._base.stream_state().items())
    words = {item.word: item for item in found}
    word = " cat" if method == "best" else max((each.word for each in found if each.word.strip()), key=len)
    adapted, base = alone(lm, method, text, word)
    assert words[word].probability == pytest.approx(adapted, rel=1e-3)
    assert words[word].unadapted == pytest.approx(base, rel=1e-3)
