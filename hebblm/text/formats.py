"""Files of text: their kinds, opening, decompression and lines."""

from __future__ import annotations

import atexit
import functools
import io
import lzma
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from hebblm.errors import UserError, reason, unreadable
from hebblm.runtime.ranks import size

PLAIN = ".txt"
RECORDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".xz": "xz"}
KINDS = f"{', '.join((PLAIN, *RECORDS[:-1]))} or {RECORDS[-1]}"
STANDARD_INPUT = Path("-")
SPOOLED = "standard input"
MAX_LINE_BYTES = 1 << 26
BOM = b"\xef\xbb\xbf"


def kind_of(path: Path) -> tuple[str, str]:
    """Return the suffix of a file and, if it is compressed, that of the compression; both in lower
    case.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else ""
    return suffixes[-1] if suffixes else "", packed


def holds_records(path: Path) -> bool:
    return kind_of(path)[0] in RECORDS


def is_text(path: Path) -> bool:
    """Return whether a file of a folder is read as text, by its suffix."""
    return kind_of(path)[0] in (PLAIN, *RECORDS)


def standard_input() -> Path:
    """Return a temporary file with the standard input, so that it can be read several times."""
    if size() > 1:
        raise UserError(
            "several processes cannot share standard input; write it to a file and name that"
        )
    return _spooled(sys.stdin)


@functools.lru_cache(maxsize=1)
def _spooled(stream: Any) -> Path:
    """Copy a stream to a temporary file, which exists until the process ends."""
    folder = tempfile.mkdtemp(prefix="hebblm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, SPOOLED)
    with path.open("wb") as file:
        shutil.copyfileobj(stream.buffer, file)
    return path


def shown(path: Path) -> str:
    """Return the name of a text for messages."""
    return SPOOLED if path == STANDARD_INPUT or path.name == SPOOLED else str(path)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """File opened for reading, decompressed."""
    packed = kind_of(path)[1]
    try:
        with path.open("rb") as plain:
            if not packed:
                yield plain
            elif packed == ".xz":
                with lzma.open(plain) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                import pyarrow

                with pyarrow.CompressedInputStream(plain, COMPRESSED[packed]) as stream:
                    yield cast(BinaryIO, io.BufferedReader(stream))
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and (error.errno is not None or not packed):
            raise unreadable(path, error) from error
        why = reason(error) if isinstance(error, OSError) else error
        raise UserError(
            f"{path} is damaged, or not a {packed} file ({why}); compress the text again"
        ) from error


def raw_lines(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """Lines of an opened file as bytes, with their ends."""
    while raw := stream.readline(MAX_LINE_BYTES):
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raise UserError(
                f"{shown(path)} has a line longer than {MAX_LINE_BYTES >> 20} MiB; break the text "
                "into lines"
            )
        yield raw


def plain_lines(path: Path) -> Iterator[str]:
    """Lines of a file of plain text without their ends.

    Lines end at a line feed alone, so that other Unicode separators stay inside the text. The
    carriage return of a Windows line end and a byte order mark at the start of a file are not text.
    """
    offset = 0
    with opened(path) as stream:
        for raw in raw_lines(stream, path):
            if offset == 0 and raw.startswith(BOM):
                offset = len(BOM)
                raw = raw.removeprefix(BOM)
                if not raw:
                    return
            try:
                yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                place = offset + error.start
                byte = raw[error.start]
                raise UserError(
                    f"{shown(path)} is not UTF-8: byte {place} is {byte:#04x}; convert it"
                ) from error
            offset += len(raw)


def plain_parts(path: Path, size: int) -> Iterator[str]:
    """Yield plain text in parts of at least so many characters, with unchanged line ends."""
    with opened(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="\n") as stream:
        try:
            while text := stream.read(size):
                yield text + stream.readline(size)
        except UnicodeDecodeError as error:
            raise UserError(f"{shown(path)} is not UTF-8 ({error.reason}); convert it") from error


def lines_of(text: str) -> list[str]:
    """Return the lines of a document without their ends; the last line counts even without a line
    feed.

    An empty document has no line.
    """
    text = text.removeprefix("\ufeff")
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
