"""The files of a saved memory: a folder of raw little-endian arrays with a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import Count, atomic_path, check_own, read_record, write_json
from hebblm.memory.arrays import CHUNK, write_rows
from hebblm.memory.base import AnyMemory
from hebblm.memory.disk import INDEX, open_lists, saved_entries
from hebblm.memory.faiss_index import TrainedIndex, load_faiss
from hebblm.memory.manifest import (
    NAME,
    SCHEMA,
    Dtype,
    IndexManifest,
    Kind,
    Manifest,
    describe_files,
    read_manifest,
)
from hebblm.memory.store import KEY_DTYPES, EntryStore

ABOUT = "about.json"


class ReadText(TypedDict, total=False):
    """Record of a text that was read: of one without a path, or of several in a row, only the bytes are known."""

    path: str
    bytes: Count
    sha256: str
    column: str


class About(TypedDict, total=False):
    """Record beside the entries of a saved memory."""

    model: str | None
    known: Count | None
    words: list[str]
    tokenizer: Literal["own", "whitespace", "moses"] | None
    texts: list[ReadText]
    identity: str


def save_memory(
    memory: AnyMemory,
    folder: Path,
    *,
    model_hash: str,
    dictionary_hash: str,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write the entries of a memory to a folder, whole or not at all; they do not change.

    Args:
        memory: what to save; recent entries of a :class:`HybridMemory` belong to its bulk when loaded.
        folder: created, or replaced if it holds a saved memory.
        model_hash: of the model that made the keys.
        dictionary_hash: of the dictionary that the values refer to.
        about: what stands beside them, see :func:`read_about`.

    Raises:
        UserError: ``folder`` holds something else, or cannot be written.
    """
    check_replaceable(folder)
    parts, settings = memory.parts(), memory.settings()
    store = settings.get("store", "ram")
    with atomic_path(folder, directory=True) as temporary:
        _write_parts(temporary / "keys.bin", [part.keys for part in parts], memory.release)
        _write_parts(temporary / "values.bin", [part.values for part in parts])
        logs = [part.log_normalizers for part in parts if part.log_normalizers is not None]
        if store == "disk":
            _write_parts(temporary / "norms.bin", [part.norms for part in parts])
        if len(logs) == len(parts):
            _write_parts(temporary / "log_normalizers.bin", logs)
        elif store == "disk":
            lacking = torch.full((1,), float("nan"), dtype=torch.float32)
            _write_parts(temporary / "log_normalizers.bin", [lacking.expand(len(part)) for part in parts])
        trained = memory.write_index(temporary)
        if about is not None:
            write_json(temporary / ABOUT, dict(about), seal=True)
        Manifest(
            schema=SCHEMA,
            kind=cast(Kind, memory.kind),
            model_hash=model_hash,
            dictionary_hash=dictionary_hash,
            dtype=cast(Dtype, str(parts[0].keys.dtype).removeprefix("torch.")),
            count=len(memory),
            dim=memory.dim,
            capacity=settings.get("capacity"),
            flush_at=settings.get("flush_at"),
            index=IndexManifest.of(settings, trained) if "factory" in settings else None,
            store=store,
            files=describe_files(temporary),
        ).write(temporary)


def check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the memory")
    if folder.exists() and any(folder.iterdir()):
        try:
            manifest = read_manifest(folder)
        except UserError as error:
            raise UserError(f"{folder} holds something else than a memory; choose another folder") from error
        check_own(folder, {NAME, *manifest.files})


def read_about(folder: Path, name: str = ABOUT) -> dict[str, Any]:
    """What stands beside the entries of a saved memory, empty where nothing was said.

    Among it are ``words``, the new ones behind the ``known`` classes of the model.
    """
    if not (folder / name).is_file():
        return {}
    return dict(read_record(About, folder / name, "build the memory anew"))


def read_entries(manifest: Manifest, folder: Path, *, mmap: bool, device: torch.device) -> EntryStore:
    """Entries; what is mapped is copied when it is written, so that the files never change."""
    dtype, count = KEY_DTYPES[manifest.dtype], manifest.count
    if manifest.store == "disk":
        return saved_entries(folder, dtype, count, manifest.dim)
    keys = _read_rows(folder / "keys.bin", dtype, count * manifest.dim, mmap=mmap).view(count, manifest.dim)
    values = _read_rows(folder / "values.bin", torch.int64, count, mmap=False)
    logs = None
    if "log_normalizers.bin" in manifest.files:
        logs = _read_rows(folder / "log_normalizers.bin", torch.float32, count, mmap=False).to(device)
    return EntryStore.from_tensors(keys.to(device), values.to(device), logs)


def read_index(manifest: Manifest, store: EntryStore, folder: Path) -> TrainedIndex | None:
    """Index over a prefix of the entries, None if none was trained; its sha256 was checked before."""
    index = manifest.index
    if index is None or index.spec is None:
        return None
    path, faiss = folder / INDEX, load_faiss(f"the index of {folder}")
    try:
        if manifest.store == "disk":
            trained: TrainedIndex = open_lists(folder, index.spec, index.trained)
        else:
            trained = TrainedIndex(faiss.read_index(str(path)), index.spec, index.trained)
    except RuntimeError as error:
        raise UserError(f"this FAISS ({faiss.__version__}) cannot read {path}; build the memory anew") from error
    if trained.index.d != store.dim or len(trained) > len(store):
        raise UserError(f"{path} does not belong to the keys beside it; build the memory anew")
    return trained


def _write_parts(path: Path, parts: list[Tensor], release: Callable[[], None] = lambda: None) -> None:
    with path.open("wb") as stream:
        for rows in (rows for part in parts for rows in torch.split(part, CHUNK)):
            write_rows(stream, rows)
            release()


def _read_rows(path: Path, dtype: torch.dtype, size: int, *, mmap: bool) -> Tensor:
    """(size,) of a file, mapped copy-on-write or read."""
    if not size:
        return torch.empty(0, dtype=dtype)
    mapped = torch.from_file(str(path), shared=False, size=size, dtype=dtype)
    return mapped if mmap else mapped.clone()
