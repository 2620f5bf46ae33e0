"""State of a reader in a folder: memory, new words, and its place in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.io.files import atomic_path, check_own, read_record, recover, sha256, write_json
from hebblm.io.locks import file_lock
from hebblm.io.tensors import read_tensors, write_tensors
from hebblm.memory import AnyMemory, load_memory, save_memory
from hebblm.memory.ngrams import Array
from hebblm.memory.persistence import NAME as MANIFEST
from hebblm.memory.persistence import Owner, SourceText, read_about, read_ngrams
from hebblm.models.base import State
from hebblm.reader.config import ReaderConfig, Setting
from hebblm.reader.history import FirstMemory, History, read_record_of, texts_of, write_record
from hebblm.reader.older import OLDER_SCHEMA, session_state
from hebblm.text.fitting import Chosen

SCHEMA, KIND = "hebblm-reader/2", "hebblm-place"
READER = "reader.json"
PLACE = "place.safetensors"
MEMORY = "memory"
TEXTS = "texts.jsonl"
LAST = "last"
"""Name of the last token in the file of the place, next to the session's state."""


class _ReaderRecord(ReaderConfig, frozen=True, kw_only=True):
    """Further keys of :data:`READER`; earlier versions did not write those with a default."""

    schema: str
    words: list[str]
    place_sha256: str
    memory_sha256: str = ""
    # in older files alone
    shares: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    tokenizer: Chosen | None = "own"
    texts: list[SourceText] | None = None
    texts_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader's state; the defaults are those of a new reader."""

    memory: AnyMemory | None = None
    words: tuple[str, ...] = ()  # new ones, in the order of their first occurrence
    session: State | None = None  # after the last token; None if there is a memory alone
    # (1,) the last token read
    last: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    # counts; empty if no method uses them
    ngrams: Mapping[str, Array] = field(default_factory=dict)
    splitting: Chosen | None = None  # of the texts; None before the first one
    config: ReaderConfig = field(default_factory=ReaderConfig)
    record: History = field(default_factory=History)

    def check_labels(self, classes: int, place: object) -> None:
        """Refuse a memory with labels (n,) outside the classes."""
        for part in self.memory.segments() if self.memory is not None else ():
            if len(part) and not 0 <= int(part.values.min()) <= int(part.values.max()) < classes:
                raise UserError(
                    f"{place} has labels of words that are not in it; build or save it again"
                )


def check_free(folder: Path) -> None:
    """Refuse a folder that does not hold a reader."""
    if folder.is_file() or (
        folder.is_dir() and any(folder.iterdir()) and not (folder / READER).is_file()
    ):
        raise UserError(f"{folder} does not hold a reader; choose another folder")
    check_own(folder, {READER, PLACE, MEMORY, TEXTS})


def save_reader(folder: Path, owner: Owner, known: ReaderState, classes: int) -> None:
    """Write a reader's state to a folder, whole or not at all.

    The folder is created, or replaced if it holds a reader. ``classes`` counts the model's; new
    words' ids follow.
    """
    check_free(folder)
    assert known.memory is not None, "a reader has a memory"
    assert known.session is not None, "a reader has a place"
    for learned in known.session.values():
        if learned.is_floating_point() and not learned.isfinite().all():
            raise UserError(
                f"what {known.config.method} learned is no longer finite, so no reader could go on "
                f"from {folder}; "
                "read the text again, with lower learning rates"
            )
    with (
        file_lock(folder, "this memory", wait=False, again=True),
        atomic_path(folder, directory=True) as temporary,
    ):
        save_memory(known.memory, temporary / MEMORY, **owner, ngrams=known.ngrams)
        write_tensors(temporary / PLACE, {LAST: known.last, **known.session}, KIND)
        write_record(temporary / TEXTS, known.record)
        write_json(
            temporary / READER,
            {
                "schema": SCHEMA,
                **msgspec.structs.asdict(known.config),
                "texts": texts_of(known.record),
                "known": classes,
                "words": list(known.words),
                "tokenizer": known.splitting,
                "place_sha256": sha256(temporary / PLACE),
                "memory_sha256": sha256(temporary / MEMORY / MANIFEST),
                "texts_sha256": sha256(temporary / TEXTS),
            },
            seal=True,
        )


def open_reader(folder: Path, owner: Owner, device: torch.device) -> ReaderState:
    """Read what :func:`save_reader` wrote, or a memory alone."""

    def remembered(where: Path) -> AnyMemory:
        return load_memory(where, **owner, device=device)

    recover(folder)
    if not (folder / READER).is_file():
        about, memory = read_about(folder), remembered(folder)
        ngrams = read_ngrams(folder)
        return ReaderState(
            memory,
            tuple(about.get("words", ())),
            ngrams=ngrams,
            splitting=about.get("tokenizer", "own"),
            config=ReaderConfig(settings=_counted(ngrams), model=about.get("model")),
            record=History(_base(folder, MANIFEST, about.get("texts"))),
        )
    document = read_record(
        _ReaderRecord, folder / READER, "read the text again", SCHEMA, OLDER_SCHEMA
    )
    tensors, _ = read_tensors(folder / PLACE, KIND, "read the text again")
    for path, written in (
        (folder / PLACE, document.place_sha256),
        (folder / MEMORY / MANIFEST, document.memory_sha256),
        (folder / TEXTS, document.texts_sha256),
    ):
        if written and path.is_file() and sha256(path) != written:
            raise UserError(f"{path} was changed since it was written; read the text again")
    place = {name: value.to(device) for name, value in tensors.items()}
    ngrams = read_ngrams(folder / MEMORY)
    settings = {**_counted(ngrams), **document.settings}
    last = place.pop(LAST)
    if document.schema == OLDER_SCHEMA:
        place = session_state(place, document.shares, ngrams)
    if document.texts_sha256 is None:
        record = History(_base(folder, READER, document.texts))
    else:
        record = read_record_of(folder / TEXTS)
    return ReaderState(
        remembered(folder / MEMORY),
        words=tuple(document.words),
        session=place,
        last=last,
        ngrams=ngrams,
        splitting=document.tokenizer,
        config=ReaderConfig(
            method=document.method,
            k=document.k,
            update_every=document.update_every,
            settings=settings,
            model=document.model,
        ),
        record=record,
    )


def _counted(ngrams: Mapping[str, Array]) -> dict[str, Setting]:
    """Return the setting that saved counts were made with, empty without counts."""
    return {"ngram.order": int(ngrams["tokens"][1])} if ngrams else {}


def _base(folder: Path, file: str, texts: Sequence[SourceText] | None) -> FirstMemory:
    """Return a first memory for a reader whose folder does not record its texts one by one."""
    known = [SourceText(path=str(folder))] if texts is None else texts
    return FirstMemory(str(folder.absolute()), file, sha256(folder / file), tuple(known))
