"""Ranks of whole words for models of pieces, against every word there is, and against a reader at
the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.evaluation import checkpoint, word_accuracy
from hebblm.evaluation.accuracy import NEVER
from hebblm.evaluation.word_accuracy import (
    Asked,
    AskedPlace,
    Expectations,
    WordsAsked,
    places_of,
    rank_of,
)
from hebblm.online.word_beam import Place, WordSearch
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

from ..models.architectures import opened, tokenizer
from ..online.test_word_beam import BREAK, IDS, PIECES, Tiny

pytest.importorskip("transformers")
TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n"


def of(text: str) -> tuple[int, ...]:
    return tuple(tokenizer().convert_tokens_to_ids(piece) for piece in text.split())


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_those_of_sorting_every_word_that_begins_with_the_letters(
    seed: int, new: bool
) -> None:
    model = Tiny(seed)
    space = "Ġ" if new else ""
    for word, ids in (
        ("the", f"{space}the"),
        ("thein", f"{space}the in"),
        ("a", f"{space}a"),
        ("\n", "Ċ"),
    ):
        for typed in ("", word[:1], word[:3]) if word != "\n" else ("",):
            every = model.words(Place(typed.encode(), stripped=True, new=new))
            rank = 1 + sum(share > every[word][0] for share, _ in every.values())
            asked = Asked(word, of(ids), new)
            assert rank_of(model, PIECES, asked, 10_000, typed) == rank, (word, typed)
            assert rank_of(model, PIECES, asked, 3, typed) == (rank if rank <= 3 else NEVER)


def test_a_word_has_its_rank_however_many_pieces_it_has() -> None:
    ids = of("Ġthe" + " a in" * 7)  # fifteen pieces

    def expect(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        found = torch.full((len(rows), 48), 1e-9, dtype=torch.float64)
        for at, row in enumerate(rows):
            found[
                at, ids[len(row)] if row == ids[: len(row)] and len(row) < len(ids) else BREAK
            ] = 0.97
            found[at, IDS[3]] = 0.03
        found = (found / found.sum(1, keepdim=True)).log()
        return found, found

    asked = Asked(PIECES.text(ids).strip(), ids, new=True)
    assert [rank_of(expect, PIECES, asked, shown) for shown in (1, 3, 10)] == [1, 1, 1]


def test_a_word_whose_last_piece_goes_on_needs_no_further_end() -> None:
    texts = PieceTexts(Subwords(tokenizer(), 48))
    texts.__dict__["data"] = [
        data + b"\n" if at == IDS[2] else data for at, data in enumerate(texts.data)
    ]
    model = Tiny(0)
    search = WordSearch(model, texts, Place())
    search.follow([IDS[2]])
    first = model([()])[0][0]
    assert search.probability("the") >= float(first[IDS[2]].exp()) * (1 - 1e-9)


def test_pieces_towards_letters_begin_with_them_or_are_their_beginning() -> None:
    for left in (b"t", b"the", b"thein", b"a", b"x"):
        for stripped in (False, True):
            covers, begins = PIECES.towards(left, stripped=stripped)
            for data, covering, beginning in zip(
                PIECES.data, covers.tolist(), begins.tolist(), strict=True
            ):
                own = data.lstrip(b" \t") if stripped else data
                assert covering == own.startswith(left)
                assert beginning == (left.startswith(own) and own != left)


def test_places_are_words_with_a_piece_of_their_own_evenly_spread(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    found: list[Sequence[AskedPlace]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WordsAsked, "ask", lambda log, *rest: found.append(log.places))
        patch.setattr(
            WordsAsked, "guesses", lambda log, stream: found.append(places_of(stream, [0, 3])) or {}
        )
        hebblm.evaluate(
            opened("Llama"), tmp_path / "text.txt", "base", accuracy=True, accuracy_words=4
        )
    words = TEXT.replace("\n", " \n ").split(" ")[:-1]
    assert [place.word for place in found[0]] == [0, 5, 10, len(words) - 2], (
        "the last one may be cut off"
    )
    assert [place.word for place in found[-1]] == [0, 3]


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        *(("Llama", method, [0, 4, 9]) for method in ("lstm", "ngram", "best", "dynamic")),
        ("Mamba", "dynamic", [9]),
    ],
)
def test_each_method_says_there_what_its_reader_expects(
    name: str, method: str, words: list[int], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    lm, every, seen = opened(name), 10, list[tuple[int, Tensor]]()
    ids: list[int] = []
    original = WordsAsked._ask

    def spy(log: WordsAsked, place: AskedPlace, ahead: Expectations) -> None:
        ids[:] = log.stream.ids.tolist()
        rows = [(), tuple(ids[place.begin : place.begin + 1]), (IDS[1], IDS[6])]
        if method in log.predictors:  # else it is the pass before
            seen.append((place.begin, ahead.log_probs(method, log.predictors[method], rows)))
        original(log, place, ahead)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WordsAsked, "_ask", spy)
        hebblm.evaluate(
            lm, tmp_path / "text.txt", f"cache,{method}", accuracy=True, accuracy_words=words,
            update_every=every,
            memory_content="test", settings={"dynamic.rule": "stream"},
        )  # fmt: skip
    assert len(seen) == len(words)
    reader, read = lm.reader(method, update_every=every), 0
    for begin, found in seen:
        start = begin // every * every
        if start > read:
            reader.read(ids[read:start])
            read = start
        for row, log_probs in zip([[], [ids[begin]], [IDS[1], IDS[6]]], found, strict=True):
            with reader.session.base.preserve_state(), torch.no_grad():
                inputs = torch.cat(
                    [reader.session.last, reader.session.last.new_tensor([*ids[start:begin], *row])]
                )
                hidden = reader.session.base.read(inputs)[-1:]
                expected = reader.session.next_log_probs(hidden, reader.session.past_with(inputs))
            torch.testing.assert_close(log_probs, expected, rtol=1e-3, atol=1e-4)


def test_words_take_no_more_keys_than_letters_and_a_blank_and_only_asked_ones_have_a_rank(
    tmp_path: Path,
) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 3)
    result = hebblm.evaluate(
        opened("Llama"), tmp_path / "text.txt", "base,ngram", accuracy=True, accuracy_words=20,
        log_samples=True,
        memory_content="test", output_path=tmp_path / "out",
    )  # fmt: skip
    base, ngram = (result.methods[name].accuracy[0] for name in ("lstm", "ngram"))
    assert base.tokens == 20
    assert (ngram.top5 or 0) > (base.top5 or 0), "a text that repeats itself"
    assert (ngram.saved or 0) > (base.saved or 0) >= 0
    table = pq.read_table(tmp_path / "out" / "tokens.parquet")
    ranks = table.column("rank_ngram").to_pylist()
    assert sum(rank is not None for rank in ranks) == 20
    assert {rank for rank in ranks if rank is not None} <= {NEVER, *range(1, 11)}


def test_letters_are_the_fewest_after_which_the_list_has_the_word() -> None:
    for length in range(1, 9):
        for least in range(1, length + 2):
            rank = partial(lambda typed, least: 1 if len(typed) >= least else NEVER, least=least)
            assert word_accuracy._letters("x" * length, rank) == (
                least if least < length else NEVER
            )
            accents = partial(
                lambda typed, least: 1 if len(typed) >= 2 * least else NEVER, least=least
            )
            assert word_accuracy._letters("x\u0301" * length, accents) == (
                least if least < length else NEVER
            )


def test_an_interrupted_run_goes_on_with_the_words_that_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 3)
    options = {
        "accuracy": True,
        "accuracy_words": 10,
        "memory_content": "test",
        "update_every": 10,
        "log_samples": True,
    }

    def ranks(folder: Path) -> list[int | None]:
        hebblm.evaluate(
            opened("Llama"), tmp_path / "text.txt", "base,ngram", output_path=folder, **options
        )
        found: list[int | None] = (
            pq.read_table(folder / "tokens.parquet").column("rank_ngram").to_pylist()
        )
        return found

    expected = ranks(tmp_path / "whole")
    asked: list[int] = []
    original = WordsAsked._ask

    def spy(log: WordsAsked, place: AskedPlace, ahead: Expectations) -> None:
        asked.append(place.word)
        if len(asked) == 5:
            raise RuntimeError("killed")
        original(log, place, ahead)

    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(WordsAsked, "_ask", spy)
    with pytest.raises(RuntimeError, match="killed"):
        ranks(tmp_path / "part")
    before = len(asked)
    assert ranks(tmp_path / "part") == expected
    assert before <= len(asked) - 5, "it goes on after those that were saved"
    assert len(asked) - before < 10


@pytest.mark.parametrize("words", [0, [], [1.5], [-1], "7"])
def test_words_that_cannot_be_asked_for_are_refused(words: object, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with pytest.raises(UserError, match="accuracy_words"):
        hebblm.evaluate(
            opened("Llama"), tmp_path / "text.txt", "base", accuracy=True, accuracy_words=words
        )


def test_a_place_after_the_text_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    result = hebblm.evaluate(
        opened("Llama"),
        tmp_path / "text.txt",
        "base",
        accuracy=True,
        accuracy_words=[10**6],
        output_path=tmp_path,
    )
    [every, *_] = result.methods["lstm"].accuracy
    assert (every.tokens, every.top1, every.saved) == (0, None, None)
