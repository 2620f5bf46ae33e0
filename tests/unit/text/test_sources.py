"""Strict streaming of lines."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text import formats
from hebblm.text.sources import FileLines, TextFile, text_parts

from ...support.lines import MemoryLines


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\x0b\x0c\u2028\x85 two\r\n\nthree".encode())
    assert list(FileLines.of(path).lines()) == ["one\x0b\x0c\u2028\x85 two", "", "three"]


def test_a_run_of_lines_over_files(tmp_path: Path) -> None:
    for name, text in (("a", "0\n1\n2\n"), ("b", "3\n4")):
        (tmp_path / name).write_text(text)
    files = (TextFile(tmp_path / "a"), TextFile(tmp_path / "b"))
    assert list(FileLines(files, 1, 4).lines()) == ["1", "2", "3"]
    assert FileLines(files, 1, 4, share=0.6).size == 5
    assert FileLines(files).size == 9
    assert FileLines(files, 0, 2).sha256() != FileLines(files, 0, 3).sha256()


def test_bytes_that_are_not_utf8_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"latin\.txt is not UTF-8: byte 8 is 0xe9"):
        list(FileLines.of(path).lines())


def test_a_line_too_long_to_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 4)
    (tmp_path / "a").write_text("abc\nabcdef\n")
    with pytest.raises(UserError, match="break the text into lines"):
        list(FileLines.of(tmp_path / "a").lines())


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        list(FileLines.of(tmp_path / "absent").lines())


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r\ufeff"))
    )
)
def test_memory_and_file_agree(
    tmp_path_factory: pytest.TempPathFactory, content: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    data = "".join(line + "\n" for line in content).encode()
    path.write_bytes(data)
    held, read = MemoryLines(content), FileLines.of(path)
    assert list(held.lines()) == list(read.lines()) == content
    assert held.sha256() == read.sha256() == hashlib.sha256(data).hexdigest()
    assert held.size == read.size == len(data)


@given(
    st.lists(
        st.sampled_from(["a", "bb", "\u00e9", " ", "\n", "\r\n", "\r", "\t", "\ufeff"]), max_size=60
    ),
    st.integers(1, 9),
)
def test_pieces_are_the_lines_of_a_file_and_end_between_words(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "a.txt"
    path.write_bytes("".join(parts).encode())
    found = list(text_parts(TextFile(path), size))
    assert "".join(found) == "".join(f"{line}\n" for line in FileLines.of(path).lines())
    for one, two in itertools.pairwise(found):
        assert one.endswith("\n") or two[0] in " \t"


def test_a_long_line_comes_in_pieces_unless_it_has_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "a.txt"
    path.write_text("word " * 2000)
    assert max(map(len, text_parts(TextFile(path), 50))) <= 105
    path.write_text("word" * 2000)
    with pytest.raises(UserError, match=r"has no space in .* break the text into lines"):
        list(text_parts(TextFile(path), 50))
