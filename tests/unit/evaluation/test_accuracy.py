"""How well suggestions are, against sorting and typing in plain code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hebblm
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.accuracy import LISTED, NEVER, AccuracyLog, TypedWords, letters_of
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, VocabularyPolicy
from hebblm.memory import FlatMemory
from hebblm.report import Result
from hebblm.report.result.accuracy import MEASURES, Guesses, accuracy_report, measures
from hebblm.report.result.parts import Bootstrap

from ...support import toy
from ..models.architectures import random_model, tokenizer

WORDS = ("<unk>", "<eos>", "a", "an", "ant", "and", "be", "bee", "been", "A", "to", "too")
RULES = {name: METHODS[name].predictor(toy.SETTINGS) for name in ("lstm", "cache", "mbpa", "best")}


def plain(
    probabilities: list[float], target: int, words: tuple[str, ...], unknown: int | None
) -> tuple[int, int]:
    """Return the rank of a word and the letters to type until a list of three has it."""
    if target >= len(probabilities):
        return NEVER, NEVER
    order = sorted(range(len(probabilities)), key=lambda index: (-probabilities[index], index))
    rank = [index for index in order if index != unknown or index == target].index(target) + 1
    word = words[target].strip()
    if words[target] in ("<unk>", "<eos>") or not word:
        return rank, NEVER
    for typed in range(len(word)):
        listed = [
            index for index in order
            if words[index].strip().startswith(word[:typed]) and words[index] not in ("<unk>",
            "<eos>")
            and words[index].strip()
        ]  # fmt: skip
        if target in listed[:LISTED]:
            return rank, typed
    return rank, NEVER


class Given:
    """A rule whose probabilities are given."""

    def __init__(self, log_probs: Tensor) -> None:
        self.given = log_probs

    def log_probs(self, batch: object) -> Tensor:
        return self.given


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(4, len(WORDS)), ties=st.booleans())
def test_ranks_and_letters_are_those_of_sorting_and_typing(
    seed: int, rows: int, ties: bool
) -> None:
    generator = np.random.default_rng(seed)
    mixture_weights = generator.integers(1, 4 if ties else 10**6, (7, rows)).astype(float)
    log_probs = torch.from_numpy(np.log(mixture_weights / mixture_weights.sum(1, keepdims=True)))
    targets = torch.from_numpy(generator.integers(0, len(WORDS), 7))

    class Batch:
        head = torch.nn.Linear(2, rows)

    log = AccuracyLog({"given": Given(log_probs)}, TypedWords(WORDS), 0)  # type: ignore[dict-item]
    log.watch(Batch(), targets)  # type: ignore[arg-type]
    columns = log.columns()
    found = zip(columns["rank 0"].tolist(), columns["typed 0"].tolist(), strict=True)
    for row, (pair, target) in enumerate(zip(found, targets.tolist(), strict=True)):
        assert pair == plain(log_probs[row].tolist(), target, WORDS, 0)


def test_letters_are_graphemes() -> None:
    """Each key of a Devanagari word, and each accent of its own, would count twice as code
    points.
    """
    symbols = ("<unk>", "<eos>", "नीली", "cafe\u0301", "caf\u00e9", "👩‍👩‍👧 ", "ab")
    words = TypedWords(symbols)
    stream = toy.stream_of(np.arange(2, 7))
    stream = replace(stream, symbols=(*symbols, *stream.symbols[len(symbols) :]))
    assert letters_of(stream).tolist() == [2, 4, 4, 1, 2]
    for index, letters in enumerate([2, 4, 4], 2):
        assert len(words.places(index).begins) == letters


@pytest.mark.parametrize("policy", ["union", "open"])
def test_every_method_is_asked_for_what_it_expected_before_each_token(policy: str) -> None:
    ids = toy.tokens(4, 120)
    stream = toy.stream_of(toy.by_first_appearance(ids) if policy == "open" else ids)
    base = toy.base_of(toy.tiny_model().double(), rows=0 if policy == "open" else toy.NOVEL)
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    vocabulary: VocabularyPolicy = UnionVocabulary()
    if policy == "open":
        vocabulary = OpenVocabulary(toy.UNK, toy.WORDS, 0.5)
    symbols = tuple(
        "<unk>" if index == toy.UNK else symbol for index, symbol in enumerate(stream.symbols)
    )
    seen: dict[str, list[tuple[int, int]]] = {name: [] for name in RULES}

    class Spy:
        def watch(self, batch: EvalBatch, targets: Tensor) -> None:
            for name, predictor in RULES.items():
                rows = predictor.log_probs(batch).tolist()
                seen[name] += [
                    plain(row, target, symbols, 0)
                    for row, target in zip(rows, targets.tolist(), strict=True)
                ]

    log = AccuracyLog(RULES, TypedWords(symbols), 0)
    evaluate(base, [context], RULES, stream, vocabulary, Schedule(20), Hooks([log, Spy()]))
    columns = log.columns()
    for number, name in enumerate(RULES):
        pairs = zip(
            columns[f"rank {number}"].tolist(), columns[f"typed {number}"].tolist(), strict=True
        )
        assert [*pairs] == seen[name], name
    assert (columns["rank 1"] == NEVER).any() == (policy == "open")


def test_sums_are_those_of_plain_means_and_words_without_letters_save_nothing() -> None:
    rank, keys = np.array([1, 3, 9, NEVER, 1]), np.array([1, 2, 5, 6, 1])
    letters, there = np.array([3, 4, 4, 5, 0]), np.array([True, True, False, True, True])
    guesses = {"lstm": Guesses(rank, letters + 1), "cache": Guesses(rank, keys)}
    parts = {"All": np.ones(5, dtype=bool), "None": np.zeros(5, dtype=bool)}
    every, none = accuracy_report(guesses, letters, there, parts, Bootstrap(block=1))["cache"]
    assert (every.tokens, every.top1, every.top5) == (4, 0.5, 0.75)
    assert every.reciprocal_rank == pytest.approx((1 + 1 / 3 + 0 + 1) / 4)
    assert every.saved == pytest.approx((3 + 3 + 0) / (4 + 5 + 6)), (
        "the third is <unk>, the last has no letters"
    )
    assert every.gains["saved"][0] == pytest.approx(6 / 15)
    assert (none.tokens, none.top1, none.saved) == (0, None, None)
    assert set(measures(guesses["cache"], letters)) == set(MEASURES)


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_a_result_has_them_by_part_with_intervals_and_so_has_its_page(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("the cat in a hat .\nthe cat in the fog , a fan .\n" * 6)
    few: dict[str, Any] = {}
    if kind == "pieces":
        lm, few = hebblm.load((random_model("Llama"), tokenizer())), {"accuracy_words": 8}
    else:
        lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    asked: dict[str, Any] = {
        "methods": "base,cache,best,dynamic",
        "memory_content": "test",
        "settings": {"dynamic.rule": "stream"},
    }
    result = hebblm.evaluate(
        lm, tmp_path / "text.txt", accuracy=True, output_path=tmp_path / "out", **asked, **few
    )
    again = Result.load(tmp_path / "out")
    for name in ("lstm", "cache", "best", "dynamic"):
        every = result.methods[name].accuracy[0]
        assert every.part == "All"
        assert again.methods[name].accuracy == result.methods[name].accuracy
        for measure in MEASURES:
            value = getattr(every, measure)
            assert value is not None
            assert 0 <= value <= 1
        assert (every.top1 or 0) <= (every.reciprocal_rank or 0)
        assert (every.top1 or 0) <= (every.top5 or 0)
    base, cache = (result.methods[name].accuracy[0] for name in ("lstm", "cache"))
    assert cache.gains["top5"][0] == pytest.approx((cache.top5 or 0) - (base.top5 or 0))
    assert base.gains == {}
    assert (cache.top5 or 0) > (base.top5 or 0), "a text that repeats itself"
    page = (tmp_path / "out" / "report.md").read_text()
    assert "Suggestions on" in page
    assert "accuracy.png" in page
    assert (tmp_path / "out" / "accuracy.csv").read_text().count("reciprocal_rank") >= 4
    without = hebblm.evaluate(lm, tmp_path / "text.txt", **asked)
    both = ([item.nll for item in each.methods.values()] for each in (without, result))
    assert next(both) == (next(both) if kind == "words" else pytest.approx(next(both), rel=1e-5)), (
        "read less ahead"
    )
    assert without.methods["cache"].accuracy == ()
    with pytest.raises(UserError, match="`accuracy` follows a single stream"):
        hebblm.evaluate(lm, tmp_path / "text.txt", "base,cache", accuracy=True, streams=2)


def test_the_list_of_an_open_vocabulary_has_no_word_before_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("frobnitz the list .\n" * 30)
    saved = {}
    for vocabulary in ("union", "open"):
        result = hebblm.evaluate(
            "tiny-pydoc-raw", tmp_path / "text.txt", "base,cache", accuracy=True,
            vocabulary=vocabulary,
            output_path=tmp_path / vocabulary, device="cpu",
        )  # fmt: skip
        [first] = [part for part in result.methods["cache"].accuracy if part.part == "OOV 1st"]
        saved[vocabulary] = first.saved
        page = (tmp_path / vocabulary / "report.md").read_text()
        assert ("vocabulary=open lists what a reader would" in page) == (vocabulary == "union")
    assert saved["open"] == 0
    assert saved["union"] != 0
