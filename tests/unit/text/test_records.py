"""Records as documents: the column that is read, and what is said of a broken file."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.text import formats
from hebblm.text.records import texts
from hebblm.text.sources import FileLines, TextFile, text_files, text_parts


def lines(path: Path, column: str | None = None) -> list[str]:
    """Return the lines of a text."""
    return list(FileLines(text_files([path], column)).lines())


def written(path: Path, data: str | bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_one_object_over_several_lines_is_a_record(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", '{\n "text": "the list"\n}\n')
    assert [*texts(path, "text")] == ["the list"]


def test_of_a_folder_the_files_with_another_column_are_read_by_themselves(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", '{"text": "a"}\n')
    written(tmp_path / "b.jsonl", '{"content": "b", "url": "c"}\n')
    with pytest.raises(UserError, match="or read the files that have column text by themselves"):
        text_files([tmp_path], "text")
    assert [file.column for file in text_files([one], "text")] == ["text"]


def test_each_record_with_a_text_is_a_document(tmp_path: Path) -> None:
    rows = [
        {"text": "\ufeffa\r\nb\r\n"},
        {"text": None},
        {"text": ""},
        {"text": "\n"},
        {"text": "c\n\nd"},
    ]
    path = written(tmp_path / "t.jsonl", "\ufeff" + "\n\n".join(map(json.dumps, rows)))
    found = FileLines(text_files([path]))
    assert list(found.lines()) == ["a", "b", "", "c", "", "d"]
    assert list(found.documents()) == [
        ("t.jsonl:record 1", 0),
        ("t.jsonl:record 4", 2),
        ("t.jsonl:record 5", 3),
    ]
    part = FileLines(found.files, 1, 4)
    assert list(part.lines()) == ["b", "", "c"]
    assert list(part.documents()) == [
        ("t.jsonl:record 1", 0),
        ("t.jsonl:record 4", 1),
        ("t.jsonl:record 5", 2),
    ]
    assert (found.column, FileLines.of(path).column) == ("text", None)


@given(
    st.lists(st.text(st.sampled_from("ab \n\r\t\u00e9\ufeff"), max_size=30), max_size=8),
    st.integers(1, 9),
)
def test_pieces_of_records_are_their_lines(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("records") / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    file = TextFile(path, "text")
    found = list(text_parts(file, size))
    assert "".join(found) == "".join(f"{line}\n" for line in FileLines((file,)).lines())
    for one, two in itertools.pairwise(found):
        assert one.endswith("\n") or two[0] in " \t"


def test_without_a_column_text_the_only_one_of_strings_is_read_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in (
        ("a.jsonl", '{"id": 1, "content": "x y"}\n'),
        ("a.csv", "id,content\n1,x y\n"),
        ("a.tsv", "id\tcontent\n1\tx y\n"),
    ):
        path = written(tmp_path / name, data)
        assert lines(path) == ["x y"]
        assert (
            capsys.readouterr().err
            == f"{path} has no column text; its only column of text, content, is read\n"
        )
        assert lines(path, "content") == ["x y"]
        assert capsys.readouterr().err == ""
        assert FileLines(text_files([path])).sha256() != FileLines.of(path).sha256()
    table = pa.table({"id": [1], "content": pa.array(["x y"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    assert lines(tmp_path / "a.parquet") == ["x y"]
    assert lines(written(tmp_path / "n.csv", "text\n12\n13\n")) == ["12", "13"], (
        "numbers are text if they are named so"
    )


@pytest.mark.parametrize(
    ("name", "data", "column", "told", "remedy"),
    [
        (
            "a.jsonl",
            '{"url": "http", "content": "x y"}\n',
            None,
            "has no column text, and url and content all hold text; choose one with `column`",
            "content",
        ),
        (
            "a.csv",
            "url,content\nhttp,x y\n",
            None,
            "url and content all hold text; choose one with `column`",
            "content",
        ),
        (
            "a.jsonl",
            '{"content": "x y"}\n',
            "body",
            "has no column body; choose column=content",
            "content",
        ),
        (
            "a.jsonl",
            '{"text": ["a"], "b": "x y"}\n',
            None,
            "holds lists, not text; choose column=b",
            "b",
        ),
        (
            "a.txt",
            "x y",
            "content",
            "a.txt is plain text and has no columns; leave column=content out",
            None,
        ),
    ],
)
def test_a_column_that_is_not_clear_is_asked_for(
    name: str, data: str, column: str | None, told: str, remedy: str | None, tmp_path: Path
) -> None:
    path = written(tmp_path / name, data)
    with pytest.raises(UserError, match=told):
        lines(path, column)
    assert lines(path, remedy) == ["x y"]


PARQUET = "damaged, or not a Parquet file"
BROKEN = [
    (
        "a.jsonl",
        '{"id": 1, "tags": ["x"]}\n',
        r"no column of text, only id \(numbers\), tags \(lists\); write the text as",
    ),
    ("a.jsonl", '{"text": 5}\n', r"holds numbers, not text; write strings into it"),
    ("a.csv", "id\n12\n", r"no column of text, only id \(numbers\)"),
    (
        "a.jsonl",
        '{"text": "a"}\n{"text": 5}\n',
        "line 2: column text is 5, not text; write it as a string",
    ),
    (
        "a.jsonl",
        '{"text": "a"}\n\n{"t": "b"}\n',
        "line 3 has no column text, only t; add it or remove the record",
    ),
    ("a.jsonl", '{"text": "a"}\n{"text":\n', "line 2 is not JSON"),
    ("a.jsonl", '{"text": "a"}\n["b"]\n', r"line 2 is \['b'\], not an object with columns"),
    ("a.jsonl", '{"text": "\\ud800"}\n', "line 1: half a surrogate pair in column text; remove it"),
    ("a.jsonl", b'{"text": "\xe9"}\n', r"line 1 is not UTF-8 \(.*\); convert it"),
    ("a.json", '[{"text": "a"},', "a.json is not JSON"),
    ("a.json", '["a"]', "record 1 is 'a', not an object with columns"),
    ("a.csv", "id,text\n1,a\n2,b,c\n", "line 3 and line 1 differ: 3 and 2 columns; fix it"),
    ("a.csv", "text,text\na,b\n", "has two columns text; give one of them another name"),
    ("a.csv", "\ntext\na\n", "line 1 is empty, and should name the columns; remove it"),
    ("a.csv", 'id,text\n1,a\n2,"b\n', r"line 3 is broken \(unexpected end of data\)"),
    ("a.csv", b"id,text\n1,a\n2,\xe9\n", "line 3 is not UTF-8"),
    ("a.parquet", b"x" * 100, PARQUET),
    (
        "a.txt.gz",
        gzip.compress(b"a\n" * 99, mtime=0)[:-5],
        r"damaged, or not a \.gz file \(Truncated",
    ),
    ("a.txt.xz", lzma.compress(b"a\n" * 99)[:-9], r"damaged, or not a \.xz file"),
    ("a.txt.zst", b"a\n", r"damaged, or not a \.zst file"),
]


MENDED = {
    ".jsonl": '{"text": "x y"}\n',
    ".json": '[{"text": "x y"}]',
    ".csv": "text\nx y\n",
    ".gz": gzip.compress(b"x y"),
    ".xz": lzma.compress(b"x y"),
    ".zst": bytes(pa.Codec("zstd").compress(b"x y", asbytes=True)),
}


@pytest.mark.parametrize(("name", "data", "told"), BROKEN)
def test_what_is_broken_is_named_with_its_line(
    name: str, data: str | bytes, told: str, tmp_path: Path
) -> None:
    path = written(tmp_path / name, data)
    with pytest.raises(UserError, match=told) as caught:
        lines(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": ["x y"]}), path)
    else:
        written(path, MENDED[path.suffix])
    assert lines(path) == ["x y"]


def test_a_value_that_is_longer_than_csv_allows_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "word " * 40_000
    assert lines(written(tmp_path / "a.csv", f"text\n{long}\n")) == [long]
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 1000)
    with pytest.raises(UserError, match="break the text into lines"):
        lines(tmp_path / "a.csv")


def test_a_folder_is_read_by_name_whatever_the_case_of_suffixes(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path / "a.TXT", "one")
    written(tmp_path / "deep" / "b.JsonL", '{"text": "two"}')
    written(tmp_path / "deep" / "c.csv.GZ", gzip.compress(b"text\nthree\n"))
    written(tmp_path / "notes.md", "no text of the folder")
    assert lines(tmp_path) == ["one", "two", "three"]
    assert lines(tmp_path / "notes.md") == ["no text of the folder"]
