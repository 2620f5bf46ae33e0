"""The published counts, on the real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hebblm.text.binarize import prepare
from hebblm.text.corpora import resolve
from hebblm.text.prepared import PreparedCorpus, encode_target
from hebblm.text.tokenizers import Normalization

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(
        "HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA names no folder with the corpora"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


def real(folder: Path, name: str, normalization: Normalization) -> PreparedCorpus:
    return prepare(
        resolve(name), normalization=normalization, destdir=folder / f"{name}-{normalization}"
    )


@pytest.mark.parametrize(
    ("name", "tokens", "words", "size"),
    [
        ("ptb", (929_589, 73_760, 82_430), (887_521, 70_390, 78_669), 10_000),
        ("wt2", (2_088_628, 217_646, 245_569), (2_051_910, 213_886, 241_211), 33_278),
    ],
)
def test_published_counts(
    folder: Path, name: str, tokens: tuple[int, ...], words: tuple[int, ...], size: int
) -> None:
    prepared = real(folder, name, "raw")
    splits = [prepared.split(split) for split in ("train", "valid", "test")]
    assert tuple(split.tokens for split in splits) == tokens
    assert tuple(split.words for split in splits) == words
    assert len(prepared.dictionary) == size
    assert prepared.meta.dtype == "uint16"
    assert sum(prepared.dictionary.counts) == tokens[0]
    assert int(prepared.tokens("train").max()) == size - 1


@pytest.mark.parametrize(
    ("normalization", "types", "oov", "oov_types", "novel"),
    [("raw", 33_278, 6_973, 1_324, 3_098), ("lower", 28_912, 3_255, 802, 2_105)],
)
def test_treebank_against_wikitext(
    folder: Path, normalization: Normalization, types: int, oov: int, oov_types: int, novel: int
) -> None:
    source = real(folder, "wt2", normalization).dictionary
    target = real(folder, "ptb", normalization)
    assert len(source) == types
    for policy in ("union", "open"):
        stream = encode_target(source, target, "test", policy)  # type: ignore[arg-type]
        assert (len(stream), int(stream.oov.sum()), stream.oov_types) == (82_430, oov, oov_types)
        assert stream.vocabulary_size == types + novel
