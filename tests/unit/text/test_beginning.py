"""How much text a part of a split is, beside what binarising it whole counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text.beginning import measure_beginning
from hebblm.text.binarize import prepare
from hebblm.text.corpora import Corpus
from hebblm.text.tokenizers import WhitespaceTokenizer

from ...support.lines import MemoryLines

WORDS = ["a", "bc", "Dé", "<unk>", "new", "rare"]
KNOWN, TOLD_APART = {"a", "bc", "Dé"}, {"a", "bc", "Dé", "new"}


def corpus(test: list[str]) -> Corpus:
    sources = {split: MemoryLines(lines) for split, lines in {"train": ["a"], "valid": ["a"], "test": test}.items()}
    hashes = {split: source.sha256() for split, source in sources.items()}
    return Corpus("toy", sources, WhitespaceTokenizer(), {"sha256": hashes})


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), max_size=6))
def test_the_whole_split_has_the_text_that_binarising_counts(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    text = corpus(["a", *lines])
    meta = prepare(text, normalization="raw", destdir=tmp_path_factory.mktemp("corpus") / "out").split("test")
    found = measure_beginning(text, "test", meta.tokens, "raw", KNOWN, TOLD_APART)
    assert (found.lines, found.words, found.bytes) == (meta.lines, meta.words, meta.bytes)
    with pytest.raises(UserError, match=f"has {meta.tokens} tokens in its test split, not {meta.tokens + 1}"):
        measure_beginning(text, "test", meta.tokens + 1, "raw", KNOWN, TOLD_APART)


def test_a_part_counts_the_share_of_its_last_line_and_what_is_never_spelled() -> None:
    text = corpus(["a new rare", "new rare <unk> a", "bc"])
    found = measure_beginning(text, "test", 7, "raw", KNOWN, TOLD_APART)
    assert (found.lines, found.words) == (1, 3 + 3)
    assert found.bytes == len("a new rare\n") + round(3 / 5 * len("new rare <unk> a\n"))
    assert found.unspelled == len("newrare") + len("newrare")
    assert found.spelling == len("newrare") + len("rare")  # the second new is told by the first
