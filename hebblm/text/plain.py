"""A user's own text as line sources: one file, standard input, a folder of named splits, or a folder of files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hebblm.errors import UserError
from hebblm.files import lack, sha256
from hebblm.text.formats import PLAIN, is_text, kind_of, shown
from hebblm.text.manifest import SPLITS
from hebblm.text.sources import FileLines, text_files

MIN_LINES = 10


def plain_sources(
    path: Path, names: Mapping[str, str], column: str | None, remedy: str
) -> tuple[dict[str, FileLines], dict[str, str]]:
    """Splits of a file, a folder or ``-``, and the sha256 of each file by its name.

    ``names`` are file names within the folder, by split; empty for ``train.txt``, ``valid.txt``, ``test.txt``, or the
    same with another suffix of a file of text.
    """
    if names and not path.is_dir():
        raise UserError(f"{path} is no folder, so {', '.join(names)} cannot be named within it; name a folder")
    chosen = {**named_splits(path), **{split: path / name for split, name in names.items()}}
    if not chosen:
        whole = FileLines(text_files([path], column, remedy))
        names_below = [file.path.relative_to(path) if path.is_dir() else path.name for file in whole.files]
        hashes = {str(name): sha256(file.path) for name, file in zip(names_below, whole.files, strict=True)}
        return contiguous(whole, path), hashes
    suffix = PLAIN if names else "".join(kind_of(next(iter(chosen.values()))))
    wanted = {split: chosen.get(split, path / f"{split}{suffix}") for split in SPLITS}
    if missing := [f"{file} {lack(file)}" for file in wanted.values() if not file.is_file()]:
        raise UserError(f"{', '.join(missing)}; a folder needs a file for each of {', '.join(SPLITS)}")
    found = dict(zip(SPLITS, text_files([*wanted.values()], column, remedy), strict=True))
    sources = {split: FileLines((file,)) for split, file in found.items()}
    for split, source in sources.items():
        if next(source.lines(), None) is None:
            raise UserError(f"{wanted[split]} is empty; put text into it")
    return sources, {file.name: sha256(file) for file in wanted.values()}


def named_splits(path: Path) -> dict[str, Path]:
    """Files of a folder that are named like a split, such as ``train.txt`` or ``test.jsonl.gz``."""
    found: dict[str, Path] = {}
    for file in sorted(path.iterdir()) if path.is_dir() else ():
        split = file.name.partition(".")[0]
        if split in SPLITS and file.name[len(split) :].lower() == "".join(kind_of(file)) and is_text(file):
            if split in found:
                raise UserError(f"{found[split]} and {file} are both the {split} split; move one of them elsewhere")
            found[split] = file
    return found


def own_text(target: str, column: str | None) -> FileLines | None:
    """Lines of a target ``text:PATH`` that names no splits; None for any other."""
    path = Path(target.removeprefix("text:"))
    if not target.startswith("text:") or named_splits(path):
        return None
    return FileLines(text_files([path], column))


def contiguous(whole: FileLines, path: Path) -> dict[str, FileLines]:
    """Lines of a text, in order, as 80 % train, 10 % valid, 10 % test; ``path`` is its name, for people."""
    total = sum(1 for _ in whole.lines())
    if total == 0:
        raise UserError(f"{shown(path)} is empty; put text into it")
    if total < MIN_LINES:
        lines = f"{total} line{'s' * (total > 1)}"
        raise UserError(
            f"{shown(path)} has {lines}, too few to split; break it into lines, or name a folder with train.txt, "
            "valid.txt and test.txt"
        )
    first, second = total * 8 // 10, total * 9 // 10
    return {
        "train": FileLines(whole.files, 0, first, first / total),
        "valid": FileLines(whole.files, first, second, (second - first) / total),
        "test": FileLines(whole.files, second, total, (total - second) / total),
    }
