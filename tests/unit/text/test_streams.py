"""Streams across dictionaries, checked word by word against a slow reference."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text.binarize import prepare
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import PreparedCorpus, VocabularyPolicy, encode_target

from ...support import toy
from ...support.lines import corpus_of

POLICIES: tuple[VocabularyPolicy, ...] = ("union", "open")
LINES = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "<unk>"]), max_size=5).map(
        " ".join
    ),
    min_size=1,
)


def prepared(folder: Path, train: list[str], test: list[str]) -> PreparedCorpus:
    return prepare(
        corpus_of(["w", *train], ["w"], ["w", *test]), normalization="raw", destdir=folder
    )


@given(LINES, LINES, LINES, st.sampled_from(POLICIES))
def test_every_token_keeps_its_word(
    tmp_path_factory: pytest.TempPathFactory,
    source_lines: list[str],
    train: list[str],
    test: list[str],
    policy: VocabularyPolicy,
) -> None:
    folder = tmp_path_factory.mktemp("streams")
    source = prepared(folder / "source", source_lines, []).dictionary
    target = prepared(folder / "target", train, test)
    stream = encode_target(source, target, "test", policy)
    words = [target.dictionary[index] for index in target.tokens("test")]
    assert [stream.symbols[index] for index in stream.ids] == words
    assert stream.oov.tolist() == [word not in source for word in words]
    novel = [word for word in target.dictionary.symbols if word not in source]
    assert (
        stream.vocabulary_size
        == len(source) + len(novel)
        == len(stream.symbols)
        == len(stream.train_counts)
    )
    assert stream.oov_types == len({word for word in words if word not in source})
    assert stream.train_counts[: len(source)].tolist() == list(source.counts)
    assert not stream.train_counts[len(source) :].any()
    seen = list(dict.fromkeys(word for word in words if word not in source))
    expected = novel if policy == "union" else seen + [word for word in novel if word not in seen]
    assert list(stream.symbols[len(source) :]) == expected


def test_inputs_are_the_tokens_shifted_behind_an_initial_eos(tmp_path: Path) -> None:
    target = prepared(tmp_path / "t", ["a b", "c"], ["c b a"])
    stream = encode_target(target.dictionary, target, "test")
    assert len(stream) == len(stream.inputs) == len(stream.targets) == 6
    assert stream.inputs[0] == target.dictionary.eos_index
    assert stream.inputs[1:].tolist() == stream.targets[:-1].tolist()
    assert (stream.lines, stream.words, stream.bytes) == (2, 4, 8)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dictionary_against_itself_changes_no_id(
    tmp_path: Path, policy: VocabularyPolicy
) -> None:
    target = prepared(tmp_path / "t", ["a b", "c"], ["c x a"])
    stream = encode_target(target.dictionary, target, "test", policy)
    assert stream.ids.dtype == np.int64
    assert np.array_equal(stream.ids, target.tokens("test"))
    assert stream.vocabulary_size == len(target.dictionary)
    assert not stream.oov.any()


def test_the_end_of_line_of_a_fairseq_dictionary_is_known_by_its_own_name(tmp_path: Path) -> None:
    source = Dictionary("fairseq")
    source.add_symbol("a")
    target = prepared(tmp_path / "t", ["a b"], ["a b q"])
    stream = encode_target(source, target, "test")
    assert [stream.symbols[index] for index in stream.ids] == [
        "w",
        "</s>",
        "a",
        "b",
        "<unk>",
        "</s>",
    ]
    assert stream.inputs[0] == 2


def test_an_unknown_policy_or_split_is_refused(tmp_path: Path) -> None:
    target = prepared(tmp_path / "t", ["a b"], ["a"])
    with pytest.raises(UserError, match=r"'closed'.*union, open"):
        encode_target(target.dictionary, target, "test", "closed")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no split 'dev'"):
        encode_target(target.dictionary, target, "dev")


def test_one_long_word_takes_no_memory_for_the_others() -> None:
    ids = np.arange(1000)
    stream = toy.stream_of(ids, words=1000, source=1000)
    stream = replace(
        stream,
        symbols=("x" * 4096, *stream.symbols[1:-1], "<unk>"),
        train_counts=np.zeros_like(ids),
    )
    tracemalloc.start()
    try:
        new = stream.new
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert new.tolist() == [True] * 999 + [False]


def test_words_without_training_text_are_new_where_they_have_a_row(tmp_path: Path) -> None:
    target = prepared(tmp_path / "target", ["b new"], ["a b new new <unk>"])
    joined = prepare(
        corpus_of(["a w"]),
        normalization="raw",
        destdir=tmp_path / "joined",
        joined=target.dictionary,
    )
    stream = encode_target(joined.dictionary, target, "test")
    assert stream.vocabulary_size == stream.source_size == len(joined.dictionary)
    new = {stream.symbols[int(id_)] for id_ in stream.ids[stream.oov]}
    assert new == {"b", "new"}
    assert {
        symbol for symbol, is_new in zip(stream.symbols, stream.new, strict=True) if is_new
    } == new
