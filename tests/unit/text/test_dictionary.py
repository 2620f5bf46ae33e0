"""The dictionary against fairseq's rules, and its file round trip."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text.dictionary import Dictionary

WORDS = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters=" \n\r"),
    min_size=1,
    max_size=6,
).filter(lambda word: word.split() == [word] and word not in ("<unk>", "<eos>"))


def test_a_model_vocabulary_has_no_rows_but_words_unk_and_eos() -> None:
    dictionary = Dictionary.vocabulary(Counter({"b": 2, "a": 2, "c": 5, "<eos>": 3, "<unk>": 1}))
    assert dictionary.symbols == ("c", "<eos>", "a", "b", "<unk>")
    assert dictionary.counts == (5, 3, 2, 2, 1)
    assert dictionary[dictionary.unk_index] == "<unk>"
    assert dictionary[dictionary.eos_index] == "<eos>"


def test_unk_is_added_where_the_text_has_none() -> None:
    dictionary = Dictionary.vocabulary({"a": 2, "<eos>": 1})
    assert dictionary.symbols == ("a", "<eos>", "<unk>")
    assert dictionary.counts[dictionary.unk_index] == 0


def test_rare_words_are_counted_as_unk() -> None:
    dictionary = Dictionary.vocabulary(
        {"a": 5, "b": 1, "c": 1, "<unk>": 3, "<eos>": 2}, min_count=2
    )
    assert "b" not in dictionary
    assert dictionary.counts[dictionary.unk_index] == 5
    assert dictionary.symbols == ("<unk>", "a", "<eos>")


def test_fairseq_specials_stand_at_their_places() -> None:
    dictionary = Dictionary("fairseq")
    assert dictionary.symbols == ("<s>", "<pad>", "</s>", "<unk>")
    assert dictionary.add_symbol("word", 7) == 4
    assert dictionary.encode_line(["word", "other"]) == [4, 3, 2]
    assert dictionary[99] == "<unk>"


def test_a_fairseq_file_loads_with_fairseq_ids(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("the 50\n, 40\nN 3\n")
    dictionary = Dictionary.load(tmp_path / "dict.txt")
    assert dictionary.scheme == "fairseq"
    assert [dictionary.index(word) for word in ("the", ",", "N", "missing")] == [4, 5, 6, 3]
    assert len(dictionary) == 7
    dictionary.save(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text() == "the 50\n, 40\nN 3\n"


def test_overwrite_moves_the_word_and_leaves_the_special(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("the 50\n<unk> 9 #fairseq:overwrite\n")
    dictionary = Dictionary.load(tmp_path / "dict.txt")
    assert dictionary.scheme == "fairseq"
    assert dictionary.unk_index == 3
    assert dictionary.index("<unk>") == 5
    dictionary.save(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text() == "the 50\n<unk> 9 #fairseq:overwrite\n"


def test_the_hash_depends_on_symbols_and_their_order_alone() -> None:
    one, two = Dictionary(), Dictionary()
    for dictionary, words in ((one, "a b"), (two, "b a")):
        for word in words.split():
            dictionary.add_symbol(word)
    assert one.hash() == hashlib.sha256(b"<unk>\n<eos>\na\nb").hexdigest()
    assert one.hash() != two.hash()
    assert one != two
    one.add_symbol("a", 100)
    assert one.hash() == hashlib.sha256(b"<unk>\n<eos>\na\nb").hexdigest()


@given(st.dictionaries(WORDS, st.integers(0, 10**9), max_size=30))
def test_saving_and_loading_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int]
) -> None:
    path = tmp_path_factory.mktemp("dictionary") / "dict.txt"
    dictionary = Dictionary.vocabulary(counts, min_count=0)
    dictionary.save(path)
    loaded = Dictionary.load(path)
    assert loaded == dictionary
    assert loaded.counts == dictionary.counts
    assert (loaded.scheme, loaded.unk_index) == ("words", dictionary.unk_index)
    assert loaded.eos_index == dictionary.eos_index
    assert sorted(dictionary.counts, reverse=True) == list(dictionary.counts)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"the\n", "line 1"),
        (b"the 5\nword x\n", "line 2"),
        (b"the 5\nthe 4\n", "twice"),
        (b"<unk> 5\nthe 4\n", "<eos>"),
        (b"caf\xe9 5\n", "not UTF-8"),
        (b"", "line 1"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "dict.txt").write_bytes(content)
    with pytest.raises(UserError, match=told):
        Dictionary.load(tmp_path / "dict.txt")


def test_a_symbol_that_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    dictionary = Dictionary()
    dictionary.add_symbol("two words")
    with pytest.raises(ValueError, match="two words"):
        dictionary.save(tmp_path / "dict.txt")
    assert list(tmp_path.iterdir()) == []
