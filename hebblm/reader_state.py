"""State of a reader in a folder: memory, new words, and its place in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from hebblm.adapt.former import present_name
from hebblm.errors import UserError
from hebblm.files import Count, atomic_path, check_own, read_record, recover, sha256, write_json
from hebblm.locks import held
from hebblm.memory import AnyMemory, load_memory, save_memory
from hebblm.memory.persistence import NAME as MANIFEST
from hebblm.memory.persistence import Owner, ReadText, read_about
from hebblm.models.base import State
from hebblm.reader_setup import ReaderSetup
from hebblm.tensors import prefixed, read_tensors, under, write_tensors
from hebblm.text.fitting import Chosen

SCHEMA, KIND = "hebblm-reader/1", "hebblm-place"
READER = "reader.json"
PLACE = "place.safetensors"
MEMORY = "memory"
WEIGHT = "weight."
"""Prefix of the names of weights in the file of the place."""


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


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader's knowledge; all at its beginning where nothing is named.

    Args:
        memory: pairs of hidden state and word.
        words: new words in the order in which they were met.
        state: of the base behind the last token.
        last: (1,) the last token read.
        observed: (V,) int64, how often each word was read.
        recent: states (W, D) and labels (W,) of the window.
        shares: what was learned of each share, by name.
        weights: by name, those that learned; none where the base stays as trained.
        splitting: of the texts; None before the first one.
        setup: how the reader was opened, and what it read.
    """

    memory: AnyMemory | None = None
    words: tuple[str, ...] = ()
    state: State | None = None
    last: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    observed: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    recent: tuple[Tensor, Tensor] = field(default_factory=lambda: (torch.zeros(0, 0), torch.zeros(0)))
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    splitting: Chosen | None = None
    setup: ReaderSetup = field(default_factory=ReaderSetup)


def check_free(folder: Path) -> None:
    """Refuse a folder that no reader may be saved to.

    Raises:
        UserError: it holds something else.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / READER).is_file()):
        raise UserError(f"{folder} holds something else than a reader; choose another folder")
    check_own(folder, {READER, PLACE, MEMORY})


def save_reader(folder: Path, owner: Owner, known: ReaderState, classes: int) -> None:
    """Write a reader's knowledge to a folder, whole or not at all.

    Args:
        folder: created, or replaced if it holds a reader.
        owner: of the memory.
        known: what the reader knows.
        classes: of the model; the new words' ids follow them.

    Raises:
        UserError: the folder holds something else, is written by another process, or cannot be written; or what was
            learned is not finite.
    """
    check_free(folder)
    assert known.memory is not None, "a reader has a memory"
    assert known.state is not None, "a reader has a place"
    shares = torch.tensor([share for kept in known.shares.values() for share in kept])
    for learned in (shares, *known.weights.values(), *known.state.values(), known.recent[0]):
        if learned.is_floating_point() and not learned.isfinite().all():
            raise UserError(
                f"what {known.setup.method} learned is no longer finite, so that no reader could go on from {folder}; "
                "read the text anew, with lower learning rates"
            )
    place = {
        "last": known.last,
        "observed": known.observed,
        "recent.keys": known.recent[0],
        "recent.labels": known.recent[1],
        **{f"state.{name.replace(' ', '.')}": tensor for name, tensor in known.state.items()},
        **prefixed(WEIGHT, known.weights),
    }
    with held(folder, "this memory", wait=False), atomic_path(folder, directory=True) as temporary:
        save_memory(known.memory, temporary / MEMORY, **owner)
        write_tensors(temporary / PLACE, place, KIND)
        write_json(
            temporary / READER,
            {
                "schema": SCHEMA,
                **asdict(known.setup),
                "known": classes,
                "shares": dict(known.shares),
                "words": list(known.words),
                "tokenizer": known.splitting,
                "place_sha256": sha256(temporary / PLACE),
                "memory_sha256": sha256(temporary / MEMORY / MANIFEST),
            },
            seal=True,
        )


def open_reader(folder: Path, owner: Owner, device: torch.device) -> ReaderState:
    """Read what :func:`save_reader` wrote, or a memory alone.

    Raises:
        UserError: neither of them, another model or dictionary, or a missing, truncated or changed file.
    """

    def remembered(where: Path) -> AnyMemory:
        return load_memory(where, **owner, device=device)

    recover(folder)
    if not (folder / READER).is_file():
        about = read_about(folder)
        return ReaderState(
            remembered(folder),
            tuple(about.get("words", ())),
            splitting=about.get("tokenizer", "own"),
            setup=ReaderSetup(model=about.get("model"), texts=tuple(about.get("texts", [{"path": str(folder)}]))),
        )
    document = read_record(_ReaderRecord, folder / READER, "read the text anew", SCHEMA)
    tensors, _ = read_tensors(folder / PLACE, KIND, "read the text anew")
    for path, written in (
        (folder / PLACE, document.place_sha256),
        (folder / MEMORY / MANIFEST, document.memory_sha256),
    ):
        if written and path.is_file() and sha256(path) != written:
            raise UserError(f"{path} was changed since it was written; read the text anew")
    place = {name: value.to(device) for name, value in tensors.items()}
    state = {name.replace(".", " "): tensor for name, tensor in under("state.", place).items()}
    return ReaderState(
        remembered(folder / MEMORY),
        tuple(document.words),
        state,
        place["last"],
        place["observed"],
        (place["recent.keys"], place["recent.labels"]),
        {present_name(name): numbers for name, numbers in document.shares.items()},
        under(WEIGHT, place),
        document.tokenizer,
        ReaderSetup(
            document.method,
            document.k,
            document.update_every,
            document.settings,
            document.model,
            tuple([{"path": str(folder)}] if document.texts is None else document.texts),
        ),
    )
