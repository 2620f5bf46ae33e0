"""A user's own text: one file, a folder of named splits, or a folder of files, as line sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hebblm.errors import UserError
from hebblm.files import lack, sha256
from hebblm.text.manifest import SPLITS
from hebblm.text.sources import FileLines, LineSource, count_lines

MIN_LINES = 10
RECORDS = (".jsonl", ".parquet", ".arrow")


def plain_sources(path: Path, names: Mapping[str, str]) -> tuple[dict[str, LineSource], dict[str, str]]:
    """Return the splits of a file or folder, and the sha256 of each file by its name.

    Args:
        path: file or folder.
        names: by split, file names within the folder; empty for ``train.txt``, ``valid.txt``, ``test.txt``.

    Raises:
        UserError: see :func:`hebblm.text.corpora.text_corpus`.
    """
    if not path.is_dir():
        files = texts_below(path)
        if names:
            raise UserError(f"{path} is one file, so {', '.join(names)} cannot be named within it; name a folder")
        return contiguous(files), {path.name: sha256(path)}
    chosen = {split: path / names.get(split, f"{split}.txt") for split in SPLITS}
    present = [split for split, file in chosen.items() if file.is_file()]
    if names or present:
        missing = [f"{chosen[split]} {lack(chosen[split])}" for split in SPLITS if split not in present]
        if missing:
            raise UserError(f"{', '.join(missing)}; a folder needs a file for each of {', '.join(SPLITS)}")
        for file in chosen.values():
            if file.stat().st_size == 0:
                raise UserError(f"{file} is empty; put text into it")
        hashes = {file.name: sha256(file) for file in chosen.values()}
        return {split: FileLines((file,)) for split, file in chosen.items()}, hashes
    files = texts_below(path)
    return contiguous(files), {str(file.relative_to(path)): sha256(file) for file in files}


def own_texts(target: str) -> tuple[Path, ...]:
    """Return the files of a target ``text:PATH`` that names no splits; nothing for any other.

    Raises:
        UserError: a folder without a ``.txt`` file.
    """
    path = Path(target.removeprefix("text:"))
    if not target.startswith("text:") or any((path / f"{split}.txt").is_file() for split in SPLITS):
        return ()
    return texts_below(path)


def _refuse_records(path: Path) -> None:
    """Refuse a file whose braces and quotes would be read as words."""
    if path.suffix in RECORDS:
        raise UserError(f"{path} holds records, not plain text; name the folder that it is in: hf:{path.parent}")


def texts_below(path: Path) -> tuple[Path, ...]:
    """Return the ``.txt`` files below a folder, by name; or the file itself.

    Raises:
        UserError: there is none.
    """
    if not path.is_dir():
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; name a UTF-8 text file or a folder of them")
        _refuse_records(path)
        return (path,)
    files = tuple(sorted(file for file in path.rglob("*.txt") if file.is_file()))
    if not files:
        raise UserError(f"{path} holds no .txt file; name a text file or a folder with some")
    return files


def contiguous(files: tuple[Path, ...]) -> dict[str, LineSource]:
    """Split the lines of all files, in order, into 80 % train, 10 % valid, 10 % test."""
    total = count_lines(files)
    if total == 0:
        raise UserError(f"{files[0] if len(files) == 1 else files[0].parent} is empty; put text into it")
    if total < MIN_LINES:
        raise UserError(f"{files[0]} has {total} lines, too few to split; break it into lines or name three files")
    first, second = total * 8 // 10, total * 9 // 10
    return {
        "train": FileLines(files, 0, first, first / total),
        "valid": FileLines(files, first, second, (second - first) / total),
        "test": FileLines(files, second, total, (total - second) / total),
    }
