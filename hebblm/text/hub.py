"""Text of the Hugging Face hub, or of a folder in its layout, as line sources."""

from __future__ import annotations

import hashlib
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.text.sources import LineSource

PATIENCE = 10  # seconds for the hub to answer
NAMES = {"train": ("train",), "valid": ("validation", "valid", "dev"), "test": ("test",)}


@dataclass(frozen=True, slots=True)
class DatasetLines:
    """The lines of a run of rows of one text column, read from the memory map row by row.

    Args:
        rows: the dataset.
        column: the text column.
        start: first row.
        stop: row after the last one.
    """

    rows: Any = field(repr=False)
    column: str
    start: int
    stop: int

    @property
    def size(self) -> int | None:
        """Unknown without reading."""
        return None

    def lines(self) -> Iterator[str]:
        """Yield the lines of each row; the line feed that ends a row does not begin another line."""
        for index in range(self.start, self.stop):
            for line in str(self.rows[index][self.column]).removesuffix("\n").split("\n"):
                yield line.removesuffix("\r")

    def sha256(self) -> str:
        """Hash the lines, each ended by a line feed."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


def hub_sources(identifier: str) -> tuple[dict[str, LineSource], dict[str, Any]]:
    """Return the splits of ``ID[:CONFIG]`` and their provenance.

    Validation and test splits that the dataset lacks are cut from the end of its training rows, 10 % each. One without
    training rows can be read, but not learned from: it has the splits that it has.

    Raises:
        UserError: no network, no such dataset or configuration, or no text in it.
    """
    dataset_id, _, config = identifier.partition(":")
    if not dataset_id:
        raise UserError("hf: needs the name of a dataset, such as hf:Salesforce/wikitext:wikitext-2-raw-v1")
    import datasets  # takes a second, so only where it is needed

    # The hub's retries, each with a warning, would bury the one line that tells what is wrong.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        with nullcontext() if Path(dataset_id).is_dir() else _without_retries():
            loaded = datasets.load_dataset(dataset_id, config or None)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise UserError(f"cannot load hf:{identifier} ({reason}); check the name and the network") from error
    found = {split: name for split, names in NAMES.items() for name in names if name in loaded}
    if not found:
        raise UserError(f"hf:{identifier} has no split to read, only {', '.join(map(str, loaded))}; choose another")
    first = loaded[next(iter(found.values()))]
    column = _text_column(first, identifier)
    missing = [split for split in NAMES if split not in found and "train" in found]
    tenth = len(first) // 10
    end = len(first) - tenth * len(missing)
    if "train" in found and (end <= 0 or (missing and tenth == 0)):
        raise UserError(f"hf:{identifier} has {len(first)} training rows, too few to split; choose another")
    sources: dict[str, LineSource] = {}
    for split in NAMES:
        if split in missing:
            start = end + tenth * missing.index(split)
            sources[split] = DatasetLines(first, column, start, start + tenth)
        elif split in found:
            rows = loaded[found[split]]
            sources[split] = DatasetLines(rows, column, 0, end if split == "train" else len(rows))
    licence = first.info.license or "see the dataset's page"
    return sources, {"kind": "hub", "dataset": dataset_id, "config": config or None, "licence": licence}


@contextmanager
def _without_retries() -> Iterator[None]:
    """Let the libraries use what they hold locally where the hub is out of reach, instead of retrying."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    if not any(before) and not _reachable(constants.ENDPOINT):
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def _reachable(url: str) -> bool:
    """Say whether a server answers, with whatever status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _text_column(rows: Any, identifier: str) -> str:
    """Return the column ``text``, or the first column of strings."""
    kinds = ("string", "large_string")
    strings = [name for name, feature in rows.features.items() if getattr(feature, "dtype", "") in kinds]
    if not strings:
        raise UserError(f"hf:{identifier} has no column of text, only {', '.join(rows.features)}; choose another")
    return "text" if "text" in strings else str(strings[0])
