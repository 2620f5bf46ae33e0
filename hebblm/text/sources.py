"""Sources of a split's lines: files of text and texts of records, read strictly and streamed; a
user's own text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from hebblm.errors import UserError
from hebblm.io.files import lack, sha256
from hebblm.text import formats
from hebblm.text.formats import (
    KINDS,
    PLAIN,
    STANDARD_INPUT,
    holds_records,
    is_text,
    kind_of,
    lines_of,
    plain_lines,
    plain_parts,
    shown,
    standard_input,
)
from hebblm.text.records import CHOOSE, column_of, texts

SPLITS = ("train", "valid", "test")
MIN_LINES = 10


class LineSource(Protocol):
    """The lines of one split, as often as they are asked for."""

    @property
    def size(self) -> int | None:
        """Bytes of UTF-8 text or an estimate, where that costs no reading; for progress bars
        only.
        """

    def lines(self) -> Iterator[str]: ...

    def sha256(self) -> str:
        """Hash that changes whenever the lines do."""

    def documents(self) -> Iterator[tuple[str, int]]:
        """Return name and first line, counted from 0, of each file or record that the lines come
        from.
        """


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of text: one document, or one document per record."""

    path: Path  # the file; compressed if its suffix says so
    column: str | None = None  # of its records that holds the text, None for plain text

    def __str__(self) -> str:
        return shown(self.path)

    @property
    def size(self) -> int | None:
        """Bytes of the file, None if it is compressed."""
        if kind_of(self.path)[1]:
            return None
        return self.path.stat().st_size

    def documents(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield name and lines of each document that has lines."""
        if self.column is None:
            yield self.path.name, plain_lines(self.path)
            return
        for number, text in enumerate(texts(self.path, self.column), 1):
            if text:
                yield f"{self.path.name}:record {number}", iter(lines_of(text))

    def parts(self, size: int) -> Iterator[str]:
        """Yield the text in parts of some ``size`` characters; each document ends with a line
        end.
        """
        if self.column is None:
            yield from _ended(plain_parts(self.path, size))
            return
        pending = ""
        for text in texts(self.path, self.column):
            ended = "".join(_ended(filter(None, [text.removeprefix("\ufeff")])))
            for start in range(0, len(ended), size):
                pending += ended[start : start + size]
                if len(pending) >= size:
                    yield pending
                    pending = ""
        if pending:
            yield pending

    def sha256(self) -> str:
        """Return the hash of the file's bytes, and of the name of its column."""
        digest = sha256(self.path)
        if self.column is None:
            return digest
        return hashlib.sha256(f"{digest}:{self.column}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FileLines:
    """A run of lines over one or more files, read as a stream."""

    files: tuple[TextFile, ...]  # in order
    start: int = 0  # first line, counted over all files
    stop: int | None = None  # line after the last one, None for all
    share: float = 1.0  # of the lines that the run holds, by which its bytes are estimated

    @classmethod
    def of(cls, path: Path) -> FileLines:
        return cls((TextFile(path),))

    @property
    def size(self) -> int | None:
        """Bytes of the files, or an estimate for a part of them; None if one is compressed."""
        sizes = [file.size for file in self.files]
        if None in sizes:
            return None
        return round(self.share * sum(filter(None, sizes)))

    @property
    def column(self) -> str | None:
        """Name of the column that is read, several where files have different ones, None for plain
        text.
        """
        columns = dict.fromkeys(file.column for file in self.files if file.column is not None)
        if not columns:
            return None
        return ", ".join(columns)

    def lines(self) -> Iterator[str]:
        every = (line for file in self.files for _, lines in file.documents() for line in lines)
        return islice(every, self.start, self.stop)

    def sha256(self) -> str:
        """Hash of one whole file; for more files or a part, of their hashes and the run of
        lines.
        """
        if len(self.files) == 1 and not self.start and self.stop is None:
            return self.files[0].sha256()
        parts = [file.sha256() for file in self.files] + [f"{self.start}:{self.stop}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def documents(self) -> Iterator[tuple[str, int]]:
        """Name and first line of each document that has lines of the run; a single plain file is
        not read.
        """
        if [file.column for file in self.files] == [None]:
            yield self.files[0].path.name, 0
            return
        end = 0
        for file in self.files:
            for name, lines in file.documents():
                first = max(end, self.start)
                end += sum(1 for _ in lines)
                last = end
                if self.stop is not None:
                    last = min(end, self.stop)
                if first < last:
                    yield name, first - self.start


def text_files(
    paths: Sequence[Path], column: str | None = None, remedy: str = CHOOSE, *, pipes: bool = False
) -> tuple[TextFile, ...]:
    """Return the files of text that paths name, each with the column of its records.

    A folder stands for the files of text below it, by name; ``-`` for standard input. ``pipes``
    says whether pipes are allowed, which can be read only once.
    """
    kept: list[Path] = []
    for path in paths:
        if path == STANDARD_INPUT:
            kept.append(standard_input())
        elif path.is_dir():
            below = sorted(file for file in path.rglob("*") if is_text(file) and file.is_file())
            if not below:
                raise UserError(
                    f"{path} holds no file of text ({KINDS}); name a file or a folder with some"
                )
            kept += below
        elif path.is_file() or (pipes and (path.is_fifo() or path.is_char_device())):
            kept.append(path)
        else:
            raise UserError(f"{path} {lack(path)}; name a text file or a folder of them")
    files = tuple(TextFile(path, _column(path, column, remedy, len(kept))) for path in kept)
    if column is not None and all(file.column is None for file in files):
        raise UserError(
            f"{', '.join(map(shown, paths))} is plain text and has no columns; leave column="
            f"{column} out"
        )
    return files


def _column(path: Path, column: str | None, remedy: str, files: int) -> str | None:
    """Return the column to read of a file, None for plain text; all of several files must have
    it.
    """
    if not holds_records(path):
        return None
    try:
        return column_of(path, column, remedy)
    except UserError as error:
        if column is None or files == 1:
            raise
        raise UserError(
            f"{error}, or read the files that have column {column} by themselves"
        ) from error


def text_parts(file: TextFile, size: int) -> Iterator[str]:
    """Yield the text in parts of at least so many characters, each up to an end of line, or a
    space in longer lines.

    Its lines are those of :class:`FileLines`; each has an end.
    """
    pending = ""
    for text in file.parts(size):
        if text.endswith("\n"):
            cut = len(text)
        else:
            cut = max(text.rfind(" "), text.rfind("\t"))
        if cut > 0:  # before a space or after a line feed, so that no end of line is cut in two
            yield (pending + text[:cut]).replace("\r\n", "\n")
            pending = ""
            text = text[cut:]
        pending += text
        if len(pending) > formats.MAX_LINE_BYTES:
            raise UserError(
                f"{file} has no space in {formats.MAX_LINE_BYTES >> 20} MiB; break the text into "
                "lines"
            )
    if pending:
        yield pending.replace("\r\n", "\n")


def _ended(parts: Iterable[str]) -> Iterator[str]:
    """Yield the parts of a text without empty ones; the last line gets an end if it lacks one."""
    last = "\n"
    for part in parts:
        yield part
        last = part[-1]
    if last != "\n":
        yield "\n"


def plain_sources(
    path: Path, names: Mapping[str, str], column: str | None, remedy: str
) -> tuple[dict[str, FileLines], dict[str, str]]:
    """Return the splits of a file, a folder or ``-``, and the sha256 of each file by its name.

    ``names`` are file names within the folder, by split; empty for ``train.txt``, ``valid.txt``,
    ``test.txt``, or the same with another suffix of a file of text.
    """
    if names and not path.is_dir():
        raise UserError(
            f"{path} is not a folder, so {', '.join(names)} cannot be named within it; name a "
            "folder"
        )
    chosen = named_splits(path)
    for split, name in names.items():
        chosen[split] = path / name
    if not chosen:
        whole = FileLines(text_files([path], column, remedy))
        hashes = {}
        for file in whole.files:
            below = file.path.relative_to(path) if path.is_dir() else path.name
            hashes[str(below)] = sha256(file.path)
        return contiguous(whole, path), hashes
    suffix = PLAIN if names else "".join(kind_of(next(iter(chosen.values()))))
    wanted = {split: chosen.get(split, path / f"{split}{suffix}") for split in SPLITS}
    if missing := [f"{file} {lack(file)}" for file in wanted.values() if not file.is_file()]:
        raise UserError(
            f"{', '.join(missing)}; a folder needs a file for each of {', '.join(SPLITS)}"
        )
    by_split = dict(zip(SPLITS, text_files(list(wanted.values()), column, remedy), strict=True))
    sources = {split: FileLines((file,)) for split, file in by_split.items()}
    for split, source in sources.items():
        if next(source.lines(), None) is None:
            raise UserError(f"{wanted[split]} is empty; put text into it")
    return sources, {file.name: sha256(file) for file in wanted.values()}


def named_splits(path: Path) -> dict[str, Path]:
    """Return the files of a folder that are named like a split, such as ``train.txt`` or
    ``test.jsonl.gz``.
    """
    splits: dict[str, Path] = {}
    if not path.is_dir():
        return splits
    for file in sorted(path.iterdir()):
        split = file.name.partition(".")[0]
        suffix = file.name[len(split) :].lower()
        if split not in SPLITS or suffix != "".join(kind_of(file)) or not is_text(file):
            continue
        if split in splits:
            raise UserError(
                f"{splits[split]} and {file} are both the {split} split; move one of them elsewhere"
            )
        splits[split] = file
    return splits


def own_text(target: str, column: str | None) -> FileLines | None:
    """Return the lines of a target ``text:PATH`` without splits; None for any other target."""
    path = Path(target.removeprefix("text:"))
    if not target.startswith("text:") or named_splits(path):
        return None
    return FileLines(text_files([path], column))


def contiguous(whole: FileLines, path: Path) -> dict[str, FileLines]:
    """Split the lines of a text, in order, into 80 % train, 10 % valid, 10 % test; ``path`` is its
    name in messages.
    """
    total = sum(1 for _ in whole.lines())
    if total == 0:
        raise UserError(f"{shown(path)} is empty; put text into it")
    if total < MIN_LINES:
        lines = "1 line" if total == 1 else f"{total} lines"
        raise UserError(
            f"{shown(path)} has {lines}, too few to split; break it into lines, or name a folder "
            "with train.txt, "
            "valid.txt and test.txt"
        )
    first, second = total * 8 // 10, total * 9 // 10
    return {
        "train": FileLines(whole.files, 0, first, first / total),
        "valid": FileLines(whole.files, first, second, (second - first) / total),
        "test": FileLines(whole.files, second, total, (total - second) / total),
    }
