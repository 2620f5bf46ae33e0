"""The search of whole words over pieces, against every row of pieces there is, and through a
reader.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.online import word_beam as module
from hebblm.online.effort import SearchEffort
from hebblm.online.expected import Expected
from hebblm.online.word_beam import MAX_WORD_PIECES, FoundWords, Place, WordSearch, words_ahead
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

from ..models.architectures import opened, tokenizer

pytest.importorskip("transformers")

PIECES = PieceTexts(Subwords(tokenizer(), 48))
KEPT = ["</s>", "a", "the", "Ġ", "Ċ", "Ġthe", "Ġa", "in"]  # the others have no probability
IDS = [tokenizer().convert_tokens_to_ids(piece) for piece in KEPT]
END, BREAK = IDS[0], IDS[4]
EVERY = sorted({*IDS, *range(8, 48, 3)})
TEXT_OF = cache(PIECES.text)


class Tiny:
    """A model of the last piece alone, in float64; after so many pieces a text breaks its line or
    ends.
    """

    def __init__(self, seed: int, kept: Sequence[int] = IDS, most: int = 3) -> None:
        self.kept, self.most = kept, most
        self.logits = 2 * torch.randn(
            2, 49, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        self.logits[:, :, [index for index in range(48) if index not in kept]] = -torch.inf
        self.rows = 0

    def __call__(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        self.rows += len(rows)
        adapted, base = torch.stack([self._after(row).log() for row in rows], 1)
        return adapted, base

    def _after(self, row: tuple[int, ...]) -> Tensor:
        """Return the probabilities (2, V) after a row, adapted and not."""
        logits = self.logits[:, row[-1] if row else -1]
        if len(row) >= self.most:
            open_ = torch.full((48,), -torch.inf, dtype=torch.float64)
            open_[[END, BREAK]] = 0.0
            logits = logits + open_
        return logits.softmax(-1)

    def words(  # noqa: C901 - the plain form of the search, in one place
        self, place: Place
    ) -> dict[str, tuple[float, float]]:
        """Return the probability of each word, adapted and not, from every row of pieces until one
        shows its end.
        """
        found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        covered, target = [0.0, 0.0], place.target.decode()
        known: dict[tuple[int, bool], list[list[float]]] = {}

        def walk(ids: tuple[int, ...], both: tuple[float, float], inside: bool) -> None:
            text = TEXT_OF(tuple(index for index in ids if index != END))
            ended = bool(ids) and ids[-1] == END
            begin = text.lstrip(" ") if place.stripped else text
            if not inside and begin.startswith(target):
                inside = True
                for which, value in enumerate(both):
                    covered[which] += value
            if not inside and (ended or not target.startswith(begin)):
                return
            word = re.search(r"\S+|\n", text[place.given :]) if inside else None
            if place.new and text and not text[0].isspace():
                return
            if word is not None and (
                word[0] == "\n" or ended or word.end() < len(text) - place.given
            ):
                core = word[0].rstrip(".,;:!?") or word[0]
                for which, value in enumerate(both):
                    found[core][which] += value
                return
            if ended or not any(both):
                return
            key = (ids[-1] if ids else -1, len(ids) >= self.most)
            if key not in known:
                known[key] = self._after(ids).tolist()
            for index in self.kept:
                walk(
                    (*ids, index),
                    (both[0] * known[key][0][index], both[1] * known[key][1][index]),
                    inside,
                )

        walk((), (1.0, 1.0), not target)
        scale = covered if target else [1.0, 1.0]
        return {word: (both[0] / scale[0], both[1] / scale[1]) for word, both in found.items()}


PLACES = {
    "anywhere": Place(),
    "after a word": Place(new=True),
    "letters": Place(b"th", stripped=True),
    "new letters": Place(b"t", stripped=True, new=True),
    "a space": Place(b" ", 1),
    "a space and letters": Place(b" a", 1),
}


@pytest.fixture
def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search until nothing is left."""
    monkeypatch.setattr(module, "TOLERANCE", 0.0)


@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("seed", "kept", "most"), [(0, IDS, 4), (1, IDS, 3), (2, EVERY, 2)])
def test_a_search_to_the_end_finds_what_all_rows_of_pieces_add_up_to(
    seed: int, kept: Sequence[int], most: int, place: Place
) -> None:
    model = Tiny(seed, kept, most)
    expected = model.words(place)
    assert len(expected) > 3
    found = words_ahead(model, PIECES, 10_000, place, SearchEffort(least=0.0))
    assert found.exact
    assert found.bound == pytest.approx(0.0, abs=1e-15)
    assert {word.word: (word.probability, word.unadapted) for word, _ in found.words} == {
        word: pytest.approx(both, rel=1e-9) for word, both in expected.items() if both[0]
    }
    first = model([()])[0][0]
    for word, rest in found.words:
        assert word.probability == pytest.approx(
            sum(float(first[at].exp()) * share for at, share in rest.items())
        )


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("seed", "kept", "most"), [(3, IDS, 4), (4, EVERY, 2), (5, IDS, 4)])
def test_a_short_list_is_the_beginning_of_a_longer_one_and_of_all_words(
    seed: int, kept: Sequence[int], most: int, place: Place
) -> None:
    model = Tiny(seed, kept, most)
    every = sorted(model.words(place).items(), key=lambda item: -item[1][0])
    model.rows = 0
    lists = [words_ahead(model, PIECES, n, place) for n in range(1, 7)]
    for n, found in enumerate(lists, 1):
        assert found.exact
        assert [each.suggestion.word for each in found.words] == [word for word, _ in every[:n]]
        assert [each.suggestion.probability for each in found.words] == [
            pytest.approx(both[0], rel=module.TOLERANCE) for _, both in every[:n]
        ]
        assert found.bound >= max((both[0] for _, both in every[n:]), default=0.0) * (
            1 - 1e-9
        ) or n == len(every)
    for shorter, longer in pairwise(lists):
        assert words_of(shorter) == words_of(longer)[: len(shorter.words)]


def words_of(found: FoundWords) -> list[str]:
    return [each.suggestion.word for each in found.words]


@pytest.mark.parametrize("seed", range(6))
def test_a_budget_ends_the_search_and_the_answer_bounds_what_was_not_found(seed: int) -> None:
    model = Tiny(seed, EVERY, 2)
    every = model.words(Place())
    for budget in (1, 3, 10, 40):
        model.rows = 0
        found = words_ahead(model, PIECES, 5, Place(), SearchEffort(budget))
        assert model.rows <= 1 + budget, "the place itself, and the beginnings that are followed"
        listed = words_of(found)
        missing = max(both[0] for word, both in every.items() if word not in listed)
        assert found.exact or found.bound > 0
        if not found.exact:
            least = min((each.suggestion.probability for each in found.words), default=0.0)
            assert missing <= max(found.bound, least) + 1e-12


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("seed", "kept", "most"), [(3, IDS, 4), (4, EVERY, 2), (5, IDS, 4)])
def test_words_above_the_least_probability_are_found_by_fewer_passes(
    seed: int, kept: Sequence[int], most: int, place: Place
) -> None:
    model = Tiny(seed, kept, most)
    every = model.words(place)
    model.rows = 0
    whole = words_ahead(model, PIECES, 6, place)
    thorough, model.rows = model.rows, 0
    least = 0.02
    found = words_ahead(model, PIECES, 6, place, SearchEffort(least=least))
    assert model.rows <= thorough
    listed = {word.suggestion.word: word.suggestion.probability for word in found.words}
    smallest = min(listed.values()) if len(listed) == 6 else 0.0
    for word, (probability, _) in every.items():
        if word not in listed:
            assert probability <= max(smallest, least) + 1e-12
            assert probability <= found.bound + 1e-12
        else:
            assert probability - least <= listed[word] <= probability + 1e-12
    assert not found.exact or words_of(found) == words_of(whole)


def test_words_that_are_not_looked_for_cost_nothing() -> None:
    rows = []
    for least in (1e-9, 0.05):
        model = Tiny(0, EVERY, 3)
        words_ahead(model, PIECES, 6, Place(), SearchEffort(least=least))
        rows.append(model.rows)
    assert rows[1] < rows[0] / 2


def test_a_word_above_one_half_comes_first_however_many_pieces_it_has() -> None:
    word = [IDS[5], *[IDS[1], IDS[7]] * 7]  # fifteen pieces, each likely; other words end soon

    def expect(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        log_probs = torch.full((len(rows), 48), 1e-9, dtype=torch.float64)
        for at, row in enumerate(rows):
            on = list(row) == word[: len(row)]
            log_probs[at, word[len(row)] if on and len(row) < len(word) else BREAK] = 0.97
            log_probs[at, IDS[3]] = 0.03
        log_probs = (log_probs / log_probs.sum(1, keepdim=True)).log()
        return log_probs, log_probs

    for n in range(1, 8):
        [first, *_] = words_ahead(expect, PIECES, n, Place()).words
        assert first.suggestion.word == PIECES.text(word).strip()
        assert first.suggestion.probability > 0.5
        assert first.suggestion.insert_text == PIECES.text(word)


def test_a_word_that_does_not_end_is_not_found_but_bounds_what_may_be_missing() -> None:
    def expect(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        logits = torch.full((len(rows), 48), -30.0, dtype=torch.float64)
        logits[:, IDS[1]] = 0.0
        return logits.log_softmax(-1), logits.log_softmax(-1)

    found = words_ahead(expect, PIECES, 1, Place())
    assert not found.exact
    assert found.bound > 0.99
    assert all(len(word.word) <= MAX_WORD_PIECES for word, _ in found.words)


def alone(lm: hebblm.LanguageModel, method: str, text: str, word: str) -> tuple[float, float]:
    """Return what a reader gives to a word, adapted and not, with a piece and a passage at a
    time.
    """
    both = []
    for name in (method, "lstm"):
        reader = lm.reader(name, update_every=10)
        reader.read(text)
        ids = lm.vocabulary.fresh().encode(word, include=False).ids
        probability = 1.0
        for at in range(len(ids) + 1):
            with reader.session.base.preserve_state(), torch.no_grad():
                inputs = torch.cat([reader.session.last, reader.session.last.new_tensor(ids[:at])])
                hidden = reader.session.base.read(inputs)[-1:]
                log_probs = reader.session.next_log_probs(hidden, reader.session.past_with(inputs))
            ends = log_probs[PIECES_70.ends].logsumexp(0) if at == len(ids) else log_probs[ids[at]]
            probability *= float(ends.exp())
        both.append(probability)
    return both[0], both[1]


PIECES_70 = PieceTexts(Subwords(tokenizer(), 70))


@pytest.mark.parametrize("name", ["Llama", "Mamba"])
def test_a_reader_suggests_whole_words_with_their_probability(name: str) -> None:
    lm, text = opened(name), "the cat in a hat.\n" * 6 + "the"
    reader = lm.reader("best", update_every=10)
    reader.read(text)
    before = reader.session.base.stream_state()
    found = reader.suggest("", 3)
    assert len(found) == 3
    assert all(
        torch.equal(before[key], value) for key, value in reader.session.base.stream_state().items()
    )
    assert [item.word for item in found[:2]] == [item.word for item in reader.suggest("", 2)]
    assert found[0].word == "cat"
    assert found[0].insert_text == " cat"
    adapted, base = alone(lm, "best", text, " cat")  # of one way to write it; the others have less
    assert adapted * 0.999 < found[0].probability < 1
    assert found[0].unadapted >= base * 0.999


def test_a_search_can_be_told_to_follow_a_word_and_ranks_it_among_all() -> None:
    model = Tiny(1, EVERY, 2)
    every = {word: both[0] for word, both in model.words(Place()).items()}
    ranked = sorted(every, key=lambda word: -every[word])
    for number in (0, 3, 20, len(ranked) - 1):
        word = ranked[number]
        ids = tokenizer()(word, add_special_tokens=False)["input_ids"]
        if PIECES.text(ids) != word or len(ids) > 2:
            continue
        search = WordSearch(model, PIECES, Place())
        search.follow(ids)
        assert search.rank(word, 10) == (number + 1 if number < 10 else None)
    search = WordSearch(model, PIECES, Place())
    assert search.rank("zzz", 10) is None


def test_first_pieces_of_expected_words_carry_their_probability() -> None:
    model = Tiny(2)
    found: list[Expected] = words_ahead(model, PIECES, 3, Place(b" a", 1)).words
    first = model([()])[0][0].exp()
    for word, rest in found:
        assert sum(float(first[at]) * share for at, share in rest.items()) == pytest.approx(
            word.probability
        )
