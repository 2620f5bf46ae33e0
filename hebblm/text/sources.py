"""Sources of a split's lines: files, read strictly and streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hebblm.errors import UserError, unreadable
from hebblm.files import sha256

MAX_LINE_BYTES = 1 << 26
BOM = b"\xef\xbb\xbf"


class LineSource(Protocol):
    """The lines of one split, as often as they are asked for."""

    @property
    def size(self) -> int | None:
        """Bytes of UTF-8 text or an estimate, where that costs no reading; for progress bars only."""

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends."""

    def sha256(self) -> str:
        """Return a hash that changes whenever the lines do."""

    def documents(self) -> Iterator[tuple[str, int]]:
        """Yield name and first line, counted from 0, of each file or record that the lines come from."""


@dataclass(frozen=True, slots=True)
class FileLines:
    """A run of lines over one or more UTF-8 files, read as a stream.

    Lines end at a line feed alone, so that other Unicode separators stay inside the text; the carriage
    return of a Windows line end and a byte order mark at the start of a file are not text.

    Args:
        paths: files, in order.
        start: first line, counted over all files.
        stop: line after the last one, None for all.
        share: of the lines that the run holds, by which its bytes are estimated.
    """

    paths: tuple[Path, ...]
    start: int = 0
    stop: int | None = None
    share: float = 1.0

    @property
    def size(self) -> int | None:
        """Bytes of the files, or the estimated part of them."""
        return round(self.share * sum(path.stat().st_size for path in self.paths))

    def lines(self) -> Iterator[str]:
        """Yield the lines.

        Raises:
            UserError: a file cannot be read, is not UTF-8, or has a line too long to be held in memory.
        """
        number = 0
        for path in self.paths:
            offset = 0
            for raw in _raw_lines(path):
                if self.stop is not None and number >= self.stop:
                    return
                if number >= self.start:
                    yield _decode(raw, path, offset)
                offset += len(raw)
                number += 1

    def sha256(self) -> str:
        """Hash one whole file as it stands; for more files or a part, their hashes and the run of lines."""
        if len(self.paths) == 1 and not self.start and self.stop is None:
            return sha256(self.paths[0])
        parts = [sha256(path) for path in self.paths] + [f"{self.start}:{self.stop}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def documents(self) -> Iterator[tuple[str, int]]:
        """Yield name and first line of each file that has lines of the run; a single one is not read for that."""
        if len(self.paths) == 1:
            yield self.paths[0].name, 0
            return
        end = 0
        for path in self.paths:
            begin, end = end, end + count_lines([path])
            if max(begin, self.start) < (end if self.stop is None else min(end, self.stop)):
                yield path.name, max(begin, self.start) - self.start


def count_lines(paths: Sequence[Path]) -> int:
    """Return the number of lines over all files, reading each as a stream."""
    return sum(1 for path in paths for _ in _raw_lines(path))


def pieces(path: Path, size: int) -> Iterator[str]:
    """Yield a text in pieces of so many characters and more, each to an end of line, or a blank in longer lines.

    Its lines are those of :class:`FileLines`, without a byte order mark and carriage returns at their ends.

    Raises:
        UserError: it cannot be read, is not UTF-8, or has no blank in what is too long to be held in memory.
    """
    held = ""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as stream:
            while text := stream.read(size):
                text += stream.readline(size)
                cut = len(text) if text.endswith("\n") else max(text.rfind(" "), text.rfind("\t"))
                if cut > 0:  # before a blank or behind a line feed, so that no end of line is cut in two
                    yield (held + text[:cut]).replace("\r\n", "\n")
                    held, text = "", text[cut:]
                held += text
                if len(held) > MAX_LINE_BYTES:
                    raise UserError(f"{path} has no blank in {MAX_LINE_BYTES >> 20} MiB; break the text into lines")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason}); convert it first") from error
    if held := held.replace("\r\n", "\n").removesuffix("\r"):
        yield held


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, with their ends."""
    try:
        with path.open("rb") as stream:
            while raw := stream.readline(MAX_LINE_BYTES):
                if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                    raise UserError(f"{path} has a line above {MAX_LINE_BYTES >> 20} MiB; break the text into lines")
                yield raw
    except OSError as error:
        raise unreadable(path, error) from error


def _decode(raw: bytes, path: Path, offset: int) -> str:
    """Return a line as text, naming file and byte where it is not UTF-8."""
    skipped = len(BOM) if offset == 0 and raw.startswith(BOM) else 0
    try:
        return raw[skipped:].removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        place = offset + skipped + error.start
        raise UserError(f"{path} is not UTF-8: byte {place} is {raw[place - offset]:#04x}; convert it") from error
