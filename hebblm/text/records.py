"""Records of a file as documents, the column that holds their text, and a program's texts as such a
file.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import write_bytes
from hebblm.runtime.progress import log_once
from hebblm.text import formats
from hebblm.text.formats import BOM, kind_of, opened, raw_lines

COLUMN = "text"
CHOOSE = "choose one with `column`"
SAMPLE = 1_000  # number of records that decide the types of columns
BATCH = 100  # rows of a table that are held at once
TEXT_TYPES = ("string", "large_string", "string_view")
UNSETTLED = ("mixed", "null")
"""Types of columns that the first records leave open: one that is named is read."""
TABLES = {".csv": ",", ".tsv": "\t"}
"""Suffixes of tables of text, and what separates their columns."""
JSON_TYPES = {
    str: "string",
    bool: "true or false",
    int: "numbers",
    float: "numbers",
    list: "lists",
    dict: "objects",
}


def texts(path: Path, column: str) -> Iterator[str]:
    """Yield the text of each record of a file, an empty one for a record without text."""
    for place, record in _records(path, column):
        if column not in record:
            raise UserError(
                f"{path} {place} has no column {column}, only {', '.join(record)}; add it or "
                "remove the record"
            )
        text = "" if record[column] is None else record[column]
        if not isinstance(text, str):
            raise UserError(
                f"{path} {place}: column {column} is {text!r:.40}, not text; write it as a string"
            )
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{path} {place}: half a surrogate pair in column {column}; remove it"
                ) from error
        yield text


def column_of(path: Path, asked: str | None, remedy: str) -> str:
    """Return the column of a file of records that holds the text; None uses the rule of
    :func:`text_column`.
    """
    types = _types(path)
    wanted = COLUMN if asked is None else asked
    # a table of text may hold numbers as text
    if not types or (wanted in types and kind_of(path)[0] in TABLES):
        return wanted
    return text_column(types, asked, str(path), remedy)


def text_column(types: Mapping[str, str], asked: str | None, name: str, remedy: str) -> str:
    """Return the column that holds the text: the given one, or ``text``, or the only one of
    strings, which is printed.

    ``types`` are those of each column, ``name`` is that of the file or data set in messages.
    """
    strings = [column for column, kind in types.items() if kind in TEXT_TYPES]
    wanted = COLUMN if asked is None else asked
    if wanted in types and types[wanted] in (*TEXT_TYPES, *UNSETTLED):
        return wanted
    if not strings and wanted in types:
        raise UserError(
            f"column {wanted} of {name} holds {types[wanted]}, not text; write strings into it"
        )
    if not strings:
        every = ", ".join(f"{column} ({kind})" for column, kind in types.items())
        raise UserError(
            f"{name} has no column of text, only {every}; write the text as strings into column "
            f"{wanted}"
        )
    if wanted in types:
        raise UserError(
            f"column {wanted} of {name} holds {types[wanted]}, not text; choose column="
            f"{_listed(strings)}"
        )
    if asked is not None:
        raise UserError(f"{name} has no column {asked}; choose column={_listed(strings)}")
    if len(strings) > 1:
        raise UserError(
            f"{name} has no column {COLUMN}, and {_listed(strings, 'and')} all hold text; {remedy}"
        )
    log_once(f"{name} has no column {COLUMN}; its only column of text, {strings[0]}, is read")
    return strings[0]


def _listed(words: Collection[str], joint: str = "or") -> str:
    *most, last = words
    if not most:
        return last
    return f"{', '.join(most)} {joint} {last}"


def _types(path: Path) -> dict[str, str]:
    """Return the type of each column, from its table or its first records."""
    kind = kind_of(path)[0]
    if kind == ".parquet":
        with _table(path) as table:
            return _declared_types(table)
    is_table = kind in TABLES
    by_column: dict[str, set[str]] = {}
    for _, record in islice(_records(path), SAMPLE):
        for column, value in record.items():
            types = by_column.setdefault(column, set())
            if value is None or (is_table and not value):
                continue  # a missing value has any type
            if is_table and _is_number(value):
                types.add("numbers")
            else:
                types.add(JSON_TYPES[type(value)])
    several = "string" if is_table else "mixed"
    settled = dict.fromkeys(by_column, several)
    for column, types in by_column.items():
        if len(types) < 2:
            settled[column] = next(iter(types), "null")
    return settled


def _declared_types(table: Any) -> dict[str, str]:
    """Return the type of each column of a Parquet file; a column of codes for strings holds what
    they stand for.
    """
    types = {}
    for field in table.schema_arrow:
        types[field.name] = str(field.type)
        if types[field.name].startswith("dictionary"):
            types[field.name] = str(getattr(field.type, "value_type", field.type))
    return types


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _records(path: Path, column: str | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and columns of each record of a file; of a Parquet file only the named column."""
    match kind_of(path)[0]:
        case ".parquet":
            columns = None if column is None else [column]
            number = 0
            with _table(path) as table:
                for part in table.iter_batches(BATCH, columns=columns):
                    for row in part.to_pylist():
                        number += 1
                        yield f"record {number}", row
        case kind if kind in TABLES:
            yield from _rows(path, TABLES[kind])
        case kind:
            yield from _objects(path, whole=kind == ".json")


@contextmanager
def _table(path: Path) -> Iterator[Any]:
    """Open a Parquet file; a compressed one is unpacked into a temporary file."""
    import pyarrow
    from pyarrow import parquet

    with opened(path) as stream, tempfile.TemporaryFile() as unpacked:
        file = stream
        if kind_of(path)[1]:
            shutil.copyfileobj(stream, unpacked)
            file = unpacked
        try:
            yield parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            why = str(error).split("\n", 1)[0]
            raise UserError(
                f"{path} is damaged, or not a Parquet file ({why}); write it again"
            ) from error


def _rows(path: Path, delimiter: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a table of text below its first line, which names the columns."""
    csv.field_size_limit(max(csv.field_size_limit(), formats.MAX_LINE_BYTES))
    with opened(path) as stream:
        lines = (
            _decoded(raw, f"{path} line {number}")
            for number, raw in enumerate(raw_lines(stream, path), 1)
        )
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            names = next(rows, [])
            if not names:
                raise UserError(f"{path} line 1 is empty, and should name the columns; remove it")
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise UserError(f"{path} has two columns {twice[0]}; give one of them another name")
            for row in rows:
                if row and len(row) != len(names):
                    raise UserError(
                        f"{path} line {rows.line_num} and line 1 differ: {len(row)} and "
                        f"{len(names)} columns; fix it"
                    )
                if row:
                    yield f"line {rows.line_num}", dict(zip(names, row, strict=True))
        except csv.Error as error:
            why = str(error).partition(" - do you need")[0]
            raise UserError(f"{path} line {rows.line_num} is broken ({why}); fix it") from error


def _objects(path: Path, *, whole: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of JSON lines or, if the file can be one, of a list or of one object over
    several lines.
    """
    with opened(path) as stream:
        begins = stream.peek(64).removeprefix(BOM).lstrip()[:2]  # type: ignore[attr-defined]
        if whole and (begins[:1] == b"[" or begins in (b"{\n", b"{\r", b"{")):
            records = _parsed(stream.read(), str(path))
            if not isinstance(records, list):
                records = [records]
            named = ((f"record {number}", value) for number, value in enumerate(records, 1))
        else:
            lines = enumerate(raw_lines(stream, path), 1)
            named = (
                (f"line {n}", _parsed(raw, f"{path} line {n}")) for n, raw in lines if raw.strip()
            )
        for place, record in named:
            if not isinstance(record, dict):
                raise UserError(
                    f"{path} {place} is {record!r:.40}, not an object with columns; write "
                    f'{{"{COLUMN}": ...}}'
                )
            yield place, record


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 ({error.reason}); convert it") from error


def _parsed(raw: bytes, name: str) -> Any:
    text = _decoded(raw, name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON ({getattr(error, 'msg', error)}); fix it") from error


def kept_texts(texts: Any) -> Path:
    """Write a file with a record for each text of a list or a pandas Series, so that they are read
    like any file.

    Its name is a hash of the texts: equal texts are kept once. A missing text is empty.
    """
    if hasattr(texts, "columns"):
        raise UserError(
            "target is a table; name its column of text, as "
            f"table[{str(next(iter(texts.columns), 'text'))!r}]"
        )
    if not isinstance(texts, Sequence) and getattr(texts, "ndim", 0) != 1:
        raise UserError(
            f"target = {texts!r:.60} is not a text; name a corpus, the path of a text, or give a "
            "list of strings"
        )
    missing = texts.isna() if hasattr(texts, "isna") else [text is None for text in texts]
    if not len(texts):
        raise UserError("target holds no text; put strings into it")
    lines = []
    for number, (text, absent) in enumerate(zip(texts, missing, strict=True), 1):
        if not absent and not isinstance(text, str):
            raise UserError(
                f"text {number} of target is {text!r:.60}, not a string; leave it out or write it "
                "as one"
            )
        lines.append(json.dumps({COLUMN: None if absent else str(text)}, ensure_ascii=False) + "\n")
    try:
        data = "".join(lines).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"target holds {error.object[error.start]!r}, half of a character; decode the text "
            "again"
        ) from error
    path = cache_dir() / "texts" / f"{hashlib.sha256(data).hexdigest()[:16]}.jsonl"
    return path if path.is_file() else write_bytes(path, data)
