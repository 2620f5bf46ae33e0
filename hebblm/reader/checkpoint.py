"""How a reader is opened, and its state in a folder: memory, new words, and its place in the
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from hebblm.adapt.former import present_name, present_settings
from hebblm.adapt.methods import check_methods, unaliased
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults, plain_name
from hebblm.evaluation.scenario_config import ScenarioConfig, number_of_neighbors, several, whole
from hebblm.io.files import Count, atomic_path, check_own, read_record, recover, sha256, write_json
from hebblm.io.locks import held
from hebblm.io.tensors import prefixed, read_tensors, under, write_tensors
from hebblm.memory import AnyMemory, load_memory, save_memory
from hebblm.memory.ngrams import Array
from hebblm.memory.persistence import NAME as MANIFEST
from hebblm.memory.persistence import Owner, ReadText, read_about, read_ngrams
from hebblm.models.base import State
from hebblm.reader.history import FirstMemory, ReadingRecord, read_record_of, texts_of, write_record
from hebblm.runtime.progress import say
from hebblm.text.fitting import Chosen

SCHEMA, KIND = "hebblm-reader/1", "hebblm-place"
READER = "reader.json"
PLACE = "place.safetensors"
MEMORY = "memory"
TEXTS = "texts.jsonl"
WEIGHT = "weight."
"""Prefix of the names of weights in the file of the place."""
METHOD = "best"
"""Method of a reader if neither its caller nor a saved reader names one."""


@dataclass(frozen=True, slots=True)
class ReaderSetup:
    """Settings that a reader was opened with; None or empty if not known."""

    method: str | None = None
    k: int | None = None
    update_every: int | None = None
    settings: Mapping[str, Any] = field(
        default_factory=dict
    )  # those that the method reads, by dotted name
    model: str | None = None  # name of the model


class _ReaderRecord(msgspec.Struct):
    """Keys of :data:`READER`; earlier versions did not write those with a default."""

    words: list[str]
    place_sha256: str
    memory_sha256: str = ""
    shares: dict[str, tuple[float, ...]] = {}
    tokenizer: Chosen | None = "own"
    method: str | None = None
    k: Count | None = None
    update_every: Count | None = None
    settings: dict[str, str | float | int | bool | None] = {}
    model: str | None = None
    texts: list[ReadText] | None = None
    texts_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader's state; the defaults are those of a new reader."""

    memory: AnyMemory | None = None
    words: tuple[str, ...] = ()  # new ones, in the order of their first occurrence
    state: State | None = None  # of the base after the last token
    last: Tensor = field(
        default_factory=lambda: torch.zeros(1, dtype=torch.int64)
    )  # (1,) the last token read
    observed: Tensor = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.int64)
    )  # (V,) how often each was read
    recent: tuple[Tensor, Tensor] = field(
        default_factory=lambda: (torch.zeros(0, 0), torch.zeros(0))
    )  # (W, D), (W,)
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # learned shares, by name
    ngrams: Mapping[str, Array] = field(
        default_factory=dict
    )  # counts; empty if no method uses them
    weights: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # that learned; empty if the base stays as trained
    splitting: Chosen | None = None  # of the texts; None before the first one
    setup: ReaderSetup = field(default_factory=ReaderSetup)
    record: ReadingRecord = field(default_factory=ReadingRecord)

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
    assert known.state is not None, "a reader has a place"
    shares = torch.tensor([share for kept in known.shares.values() for share in kept])
    for learned in (shares, *known.weights.values(), *known.state.values(), known.recent[0]):
        if learned.is_floating_point() and not learned.isfinite().all():
            raise UserError(
                f"what {known.setup.method} learned is no longer finite, so no reader could go on "
                f"from {folder}; "
                "read the text again, with lower learning rates"
            )
    place = {
        "last": known.last,
        "observed": known.observed,
        "recent.keys": known.recent[0],
        "recent.labels": known.recent[1],
        **{f"state.{name.replace(' ', '.')}": tensor for name, tensor in known.state.items()},
        **prefixed(WEIGHT, known.weights),
    }
    with (
        held(folder, "this memory", wait=False, again=True),
        atomic_path(folder, directory=True) as temporary,
    ):
        save_memory(known.memory, temporary / MEMORY, **owner, ngrams=known.ngrams)
        write_tensors(temporary / PLACE, place, KIND)
        write_record(temporary / TEXTS, known.record)
        write_json(
            temporary / READER,
            {
                "schema": SCHEMA,
                **asdict(known.setup),
                "texts": texts_of(known.record),
                "known": classes,
                "shares": dict(known.shares),
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
            setup=ReaderSetup(
                settings=_counted(ngrams),
                model=about.get("model"),
            ),
            record=ReadingRecord(_base(folder, MANIFEST, about.get("texts"))),
        )
    document = read_record(_ReaderRecord, folder / READER, "read the text again", SCHEMA)
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
    state = {name.replace(".", " "): tensor for name, tensor in under("state.", place).items()}
    return ReaderState(
        remembered(folder / MEMORY),
        tuple(document.words),
        state,
        place["last"],
        place["observed"],
        (place["recent.keys"], place["recent.labels"]),
        {present_name(name): numbers for name, numbers in document.shares.items()},
        ngrams,
        under(WEIGHT, place),
        document.tokenizer,
        ReaderSetup(document.method, document.k, document.update_every, settings, document.model),
        ReadingRecord(_base(folder, READER, document.texts))
        if document.texts_sha256 is None
        else read_record_of(folder / TEXTS),
    )


def _counted(ngrams: Mapping[str, Array]) -> dict[str, int]:
    """Return the setting that saved counts were made with, empty without counts."""
    return {"ngram.order": int(ngrams["tokens"][1])} if ngrams else {}


def _base(folder: Path, file: str, texts: Sequence[ReadText] | None) -> FirstMemory:
    """Return a first memory for a reader whose folder does not record its texts one by one."""
    known = [ReadText(path=str(folder))] if texts is None else texts
    return FirstMemory(str(folder.absolute()), file, sha256(folder / file), tuple(known))


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices for a reader: method, neighbours, update interval and hyper-parameters."""

    method: str
    k: int
    update_every: int
    values: Hyperparameters


def check_asked(method: str | None, settings: Mapping[str, Any], memory: object) -> None:
    """Refuse values that no reader can be opened with, before the saved reader in ``memory`` is
    read.
    """
    if method is not None:
        check_methods([*map(unaliased, several("method", [method]))])
    Hyperparameters().changed(settings)
    kept = sorted(name for name in settings if name.startswith("memory."))
    if memory is not None and kept:
        raise UserError(
            f"{kept[0]} is set, but {memory} keeps the value it was saved with; leave it out"
        )


def choose(
    method: str | None,
    k: int | None,
    update_every: int | None,
    settings: Mapping[str, Any],
    others: Mapping[str, Any],
    saved: ReaderSetup,
    memory: object,
) -> Choices:
    """Choose a reader's values: those of its caller, then those of a saved reader, then the
    defaults.
    """
    method = unaliased(method or saved.method or METHOD)
    check_methods([method])
    present = present_settings(saved.settings)
    known = {name: value for name, value in present.items() if name in defaults()}
    if lost := sorted(name for name in saved.settings if plain_name(name) not in known):
        say(f"{memory} was saved with settings that this version does not have: {', '.join(lost)}")
    values = Hyperparameters().changed({**others, **known, **settings})
    values.check_set(settings)
    values.tell_unread(settings, [method])
    if values.base.lr:
        raise UserError(
            f"a reader's base stays as trained, not base.lr={values.base.lr}; use hebblm.evaluate"
        )
    k = saved.k or ScenarioConfig.k if k is None else k
    every = (
        saved.update_every or ScenarioConfig.update_every if update_every is None else update_every
    )
    return Choices(method, number_of_neighbors(k), whole("update_every", every), values)
