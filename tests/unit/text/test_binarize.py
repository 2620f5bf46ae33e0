"""Binarisation: exact round trips, the smallest type, all or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text.binarize import measure_beginning, prepare
from hebblm.text.corpora import Corpus, resolve
from hebblm.text.prepared import load_prepared, smallest_dtype
from hebblm.text.tokenizers import SentencePieceTokenizer

from ...support.lines import corpus_of

TEXT = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "Dé", "<unk>", "ü"]), max_size=6).map(" ".join),
    max_size=8,
)


@given(TEXT, TEXT)
def test_ids_read_back_as_the_text(
    tmp_path_factory: pytest.TempPathFactory, train: list[str], test: list[str]
) -> None:
    train, test = ["a b c Dé ü", *train], ["x", *test]
    folder = tmp_path_factory.mktemp("corpus") / "out"
    written = prepare(corpus_of(train, test=test), normalization="raw", destdir=folder)
    loaded = load_prepared(folder)
    assert loaded.meta == written.meta
    assert loaded.dictionary == written.dictionary
    for split, lines in (("train", train), ("test", ["<unk>", *test[1:]])):
        words = " ".join(loaded.dictionary[index] for index in loaded.tokens(split)).split("<eos>")
        assert [part.split() for part in words[:-1]] == [line.split() for line in lines]
        assert words[-1] == ""
    meta = loaded.meta.splits["train"]
    assert meta.lines == len(train)
    assert meta.words == sum(len(line.split()) for line in train)
    assert meta.tokens == meta.words + meta.lines
    assert meta.bytes == len(("\n".join(train) + "\n").encode())
    assert meta.unknown == sum(line.split().count("<unk>") for line in train)
    assert sum(loaded.dictionary.counts) == meta.tokens


@pytest.mark.parametrize(
    ("size", "name"), [(256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "int32")]
)
def test_the_smallest_type_that_fits(size: int, name: str) -> None:
    assert smallest_dtype(size) == name
    assert np.iinfo(smallest_dtype(size)).max >= size - 1
    with pytest.raises(ValueError, match="do not fit"):
        smallest_dtype(2**31 + 1)


def test_ids_beyond_int16_survive(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(33_276)]
    prepared = prepare(
        corpus_of(words, test=[words[-1]]), normalization="raw", destdir=tmp_path / "out"
    )
    assert len(prepared.dictionary) == 33_278
    ids = prepared.tokens("train")
    assert ids.dtype == np.uint16
    assert ids.max() == 33_276  # <unk>, never seen, is 33,277
    assert {prepared.dictionary[index] for index in ids} == {*words, "<eos>"}


def test_lower_casing_happens_before_counting(tmp_path: Path) -> None:
    prepared = prepare(corpus_of(["The the THE"]), normalization="lower", destdir=tmp_path / "out")
    assert prepared.dictionary.counts[prepared.dictionary.index("the")] == 3
    assert prepared.meta.normalization == "lower"


def test_rare_words_become_unknown(tmp_path: Path) -> None:
    prepared = prepare(
        corpus_of(["a a b"], test=["a b"], min_count=2),
        normalization="raw",
        destdir=tmp_path / "out",
    )
    assert set(prepared.dictionary.symbols) == {"a", "<unk>", "<eos>"}
    assert prepared.meta.splits["test"].unknown == 1
    assert prepared.dictionary.counts[prepared.dictionary.unk_index] == 1


def test_words_of_a_joined_dictionary_have_a_row_however_rare(tmp_path: Path) -> None:
    other = prepare(
        corpus_of(["New b"]), normalization="raw", destdir=tmp_path / "other"
    ).dictionary
    text, folder = corpus_of(["a a b"], test=["a new c"], min_count=2), tmp_path / "out"
    joined = prepare(text, normalization="lower", destdir=folder, joined=other)
    counts = dict(zip(joined.dictionary.symbols, joined.dictionary.counts, strict=True))
    assert counts == {"a": 2, "b": 1, "new": 0, "<unk>": 0, "<eos>": 1}
    assert [joined.dictionary[int(id_)] for id_ in joined.tokens("test")] == [
        "a",
        "new",
        "<unk>",
        "<eos>",
    ]
    written = (folder / "corpus.json").stat().st_mtime_ns
    assert (
        prepare(text, normalization="lower", destdir=folder, joined=other).meta
        == load_prepared(folder).meta
    )
    assert (folder / "corpus.json").stat().st_mtime_ns == written
    assert "new" not in prepare(text, normalization="lower", destdir=folder).dictionary


def test_subwords_keep_a_row_each_even_if_training_text_lacks_them(tmp_path: Path) -> None:
    lines = [
        f"the {word} stood there"
        for word in ["house", "boat", "tower", "garden", "river", "bridge", "castle", "forest"]
    ] * 4
    tokenizer = SentencePieceTokenizer.train(iter(lines), tmp_path / "m.model", vocab_size=28)
    plain = corpus_of(["the house"], test=["forest ☃"])
    subword = Corpus("toy", plain.sources, tokenizer, plain.provenance)
    prepared = prepare(subword, normalization="raw", destdir=tmp_path / "out", min_count=3)
    assert set(prepared.dictionary.symbols) == {*tokenizer.symbols, "<unk>", "<eos>"}
    assert prepared.meta.splits["test"].unknown == 1
    assert prepared.meta.splits["test"].words == 2
    assert prepared.tokenizer().tokenize("the house") == tokenizer.tokenize("the house")


def test_a_second_call_reuses_what_is_there_and_another_request_replaces_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(corpus_of(["A b"]), normalization="raw", destdir=out)
    first = (out / "corpus.json").stat()
    prepare(corpus_of(["A b"]), normalization="raw", destdir=out)
    assert (out / "corpus.json").stat().st_ino == first.st_ino
    assert "A" not in prepare(corpus_of(["A b"]), normalization="lower", destdir=out).dictionary
    assert "c" in prepare(corpus_of(["A c"]), normalization="lower", destdir=out).dictionary


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        prepare(corpus_of(["a"]), normalization="raw", destdir=tmp_path)
    with pytest.raises(UserError, match="is a file"):
        prepare(corpus_of(["a"]), normalization="raw", destdir=tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (corpus_of([]), "toy has no words to count"),
        (corpus_of(["", " "]), "toy has no words to count"),
        (corpus_of(["a"], valid=[]), "valid split of toy has no words"),
        (corpus_of(["a"], test=[""]), "test split of toy has no words"),
        (corpus_of(["a"], expected_tokens={"train": 3}), "train has 2 tokens, not 3"),
        (corpus_of(["a"], expected_types=3), "2 types, not 3"),
        (corpus_of(["a"], min_count=0), "at least 1"),
    ],
)
def test_bad_text_leaves_nothing_behind(tmp_path: Path, text: Corpus, told: str) -> None:
    with pytest.raises(UserError, match=told):
        prepare(text, normalization="raw", destdir=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_prepared_folder_is_a_corpus_with_its_case_settled(tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = prepare(corpus_of(["A b"]), normalization="lower", destdir=out)
    again = resolve(str(out))
    assert again.prepared == out
    assert prepare(again, normalization="lower", destdir=tmp_path / "unused").meta == written.meta
    assert not (tmp_path / "unused").exists()
    with pytest.raises(UserError, match="--normalization raw"):
        prepare(again, normalization="raw", destdir=tmp_path / "unused")


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "schema": lambda meta: meta.update(schema="other/1"),
    "fields": lambda meta: meta["splits"]["train"].pop("sha256"),
    "dtype": lambda meta: meta.update(dtype="int16"),
    "type": lambda meta: meta.update(vocabulary_size="5"),
    "words": lambda meta: meta["splits"]["test"].update(words=7),
    "place": lambda meta: meta["splits"]["test"].update(file="../out/test.bin"),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "damage", ["cut", "change", "remove", *WRONG, "dict", "counts", "digits", "json", "folder"]
)
def test_damage_is_found_when_loading(tmp_path: Path, damage: str, sealed: bool) -> None:
    out = tmp_path / "out"
    prepare(corpus_of(["a b c"]), normalization="raw", destdir=out)
    ids, words, about = (out / name for name in ("train.bin", "dict.txt", "corpus.json"))
    meta = json.loads(about.read_text())
    if not sealed:  # as an earlier version wrote it
        del meta["document_sha256"]
    if damage in WRONG:
        WRONG[damage](meta)
    about.write_text(json.dumps(meta))
    if damage == "cut":
        ids.write_bytes(ids.read_bytes()[:-1])
    elif damage == "change":
        ids.write_bytes(bytes(reversed(ids.read_bytes())))
    elif damage == "remove":
        ids.unlink()
    elif damage == "dict":
        words.write_text("z 1\n<unk> 0\n<eos> 1\n")
    elif damage in ("counts", "digits"):
        words.write_text(
            words.read_text().replace("a 1", f"a {5 if damage == 'counts' else '1' * 5000}")
        )
    elif damage in ("json", "folder"):
        about.unlink()
        about.mkdir() if damage == "folder" else about.write_text("{")
    with pytest.raises(UserError, match=r"again|recreate|name a file|is not `symbol count`"):
        load_prepared(out)


def test_a_corpus_of_an_earlier_version_loads(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepared = prepare(corpus_of(["a b c"]), normalization="raw", destdir=out)
    meta = json.loads((out / "corpus.json").read_text())
    del meta["document_sha256"]
    (out / "corpus.json").write_text(json.dumps(meta))
    assert load_prepared(out).meta == prepared.meta


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    prepared = prepare(corpus_of(["a"]), normalization="raw", destdir=tmp_path / "out")
    with pytest.raises(UserError, match="train, valid, test"):
        prepared.tokens("dev")


def test_a_bar_ends_full_where_the_size_was_an_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("hebblm.runtime.progress.BRIEF", 0.0)
    lines = ["a few words here\r\n"] * 900 + [
        "a much longer line of very many more words here\r\n"
    ] * 100
    (tmp_path / "text.txt").write_text("".join(lines), encoding="utf-8", newline="")
    prepare(resolve(f"text:{tmp_path / 'text.txt'}"), normalization="raw", destdir=tmp_path / "out")
    counts = re.findall(r"(\d+)/(\d+) +kB", capsys.readouterr().err)
    totals = {total for _, total in counts}
    assert len(totals) > 1
    assert all((total, total) in counts for total in totals)


WORDS = ["a", "bc", "Dé", "<unk>", "new", "rare"]
KNOWN, TOLD_APART = {"a", "bc", "Dé"}, {"a", "bc", "Dé", "new"}


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), max_size=6))
def test_the_whole_split_has_the_text_that_binarising_counts(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    text = corpus_of(["a"], test=["a", *lines])
    meta = prepare(
        text, normalization="raw", destdir=tmp_path_factory.mktemp("corpus") / "out"
    ).split("test")
    found = measure_beginning(text, "test", meta.tokens, "raw", KNOWN, TOLD_APART)
    assert (found.lines, found.words, found.bytes) == (meta.lines, meta.words, meta.bytes)
    with pytest.raises(
        UserError, match=f"has {meta.tokens} tokens in its test split, not {meta.tokens + 1}"
    ):
        measure_beginning(text, "test", meta.tokens + 1, "raw", KNOWN, TOLD_APART)


def test_a_part_counts_the_share_of_its_last_line_and_what_is_never_spelled() -> None:
    text = corpus_of(["a"], test=["a new rare", "new rare <unk> a", "bc"])
    found = measure_beginning(text, "test", 7, "raw", KNOWN, TOLD_APART)
    assert (found.lines, found.words) == (1, 3 + 3)
    assert found.bytes == len("a new rare\n") + round(3 / 5 * len("new rare <unk> a\n"))
    assert found.unspelled == len("newrare") + len("newrare")
    assert found.spelling == len("newrare") + len("rare")  # the second new is told by the first
