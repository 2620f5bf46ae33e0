"""Text of the Hugging Face hub, or of a folder in its layout, as line sources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.io.download import load_dataset
from hebblm.text.formats import holds_records, is_text, lines_of
from hebblm.text.records import text_column
from hebblm.text.sources import LineSource, text_files

NAMES = {"train": ("train",), "valid": ("validation", "valid", "dev"), "test": ("test",)}


@dataclass(frozen=True, slots=True)
class DatasetLines:
    """The lines of a run of rows of one text column, read from the memory map row by row."""

    rows: Any = field(repr=False)  # the dataset
    column: str  # the text column
    start: int  # first row
    stop: int  # row after the last one

    @property
    def size(self) -> int | None:
        return None

    def lines(self) -> Iterator[str]:
        """Yield the lines of each row; the line feed that ends a row does not begin another
        line.
        """
        for index in range(self.start, self.stop):
            yield from self._row(index)

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()

    def documents(self) -> Iterator[tuple[str, int]]:
        """Number and first line of each row that has a text."""
        line = 0
        for index in range(self.start, self.stop):
            if lines := self._row(index):
                yield f"record {index + 1}", line
                line += len(lines)

    def _row(self, index: int) -> list[str]:
        """Return the lines of a row: empty for a row without text; an empty text is a blank line,
        as in WikiText.
        """
        text = self.rows[index][self.column]
        if text is None:
            return []
        return lines_of(text) or [""]


def hub_sources(
    identifier: str, column: str | None, remedy: str
) -> tuple[dict[str, LineSource], dict[str, Any]]:
    """Return the splits of ``ID[:CONFIG]``, of the hub or a folder in its layout, and their
    provenance.

    Validation and test splits that the dataset lacks are cut from the end of its training rows, 10
    % each. A dataset without training rows keeps its splits; it can be read, but not trained on.
    """
    dataset_id, _, config = identifier.partition(":")
    if not dataset_id:
        raise UserError(
            "hf: needs the name of a dataset, such as hf:Salesforce/wikitext:wikitext-2-raw-v1"
        )
    local = Path(dataset_id).is_dir()
    if local:
        advice = "keep files of one kind and the same columns there"
    else:
        advice = "check the name and the network"
    try:
        loaded = load_dataset(dataset_id, config or None, name=f"hf:{identifier}", remedy=advice)
        features = next(iter(loaded.values())).features
        types = {
            name: str(getattr(feature, "dtype", None) or feature)
            for name, feature in features.items()
        }
        read = text_column(types, column, f"hf:{identifier}", remedy)
    except UserError:
        if local:
            _check(Path(dataset_id), column, remedy)
        raise
    named = {split: [name for name in names if name in loaded] for split, names in NAMES.items()}
    by_split = {split: names[0] for split, names in named.items() if names}
    if not by_split:
        raise UserError(
            f"hf:{identifier} has no split to read, only {', '.join(map(str, loaded))}; choose "
            "another"
        )
    first = loaded[next(iter(by_split.values()))]
    missing = [split for split in NAMES if split not in by_split and "train" in by_split]
    tenth = len(first) // 10
    end = len(first) - tenth * len(missing)
    if "train" in by_split and (end <= 0 or (missing and tenth == 0)):
        raise UserError(
            f"hf:{identifier} has {len(first)} training rows, too few to split; choose another "
            "data set"
        )
    sources: dict[str, LineSource] = {}
    for split in NAMES:
        if split in missing:
            start = end + tenth * missing.index(split)
            sources[split] = DatasetLines(first, read, start, start + tenth)
        elif split in by_split:
            rows = loaded[by_split[split]]
            sources[split] = DatasetLines(rows, read, 0, end if split == "train" else len(rows))
    licence = first.info.license or "see the dataset's page"
    return sources, {
        "kind": "hub",
        "dataset": dataset_id,
        "config": config or None,
        "licence": licence,
        "column": read,
    }


def _check(folder: Path, column: str | None, remedy: str) -> None:
    """Refuse a folder with a faulty file, which ``datasets`` does not name."""
    for path in sorted(filter(is_text, folder.rglob("*"))):
        for file in text_files([path], column if holds_records(path) else None, remedy):
            for _ in file.documents():
                pass
