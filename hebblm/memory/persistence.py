"""The files of a saved memory: a folder of raw little-endian arrays with a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import Count, atomic_path, read_record, write_json
from hebblm.memory.arrays import from_numpy, to_numpy
from hebblm.memory.base import AnyMemory
from hebblm.memory.faiss_index import TrainedIndex, load_faiss
from hebblm.memory.manifest import (
    DTYPES,
    SCHEMA,
    Dtype,
    IndexManifest,
    Kind,
    Manifest,
    describe_files,
    read_manifest,
)
from hebblm.memory.store import EntryStore

CHUNK = 65_536
ABOUT = "about.json"


class About(TypedDict, total=False):
    """What stands beside the entries of a saved memory."""

    model: str | None
    known: Count | None
    words: list[str]
    texts: list[dict[str, Any]]
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
    trained, parts, settings = memory.refresh(), memory.parts(), memory.settings()
    with atomic_path(folder, directory=True) as temporary:
        _write_rows(temporary / "keys.bin", [part.keys for part in parts])
        _write_rows(temporary / "values.bin", [part.values for part in parts])
        logs = [part.log_normalizers for part in parts if part.log_normalizers is not None]
        if len(logs) == len(parts):
            _write_rows(temporary / "log_normalizers.bin", logs)
        if trained is not None:
            _write_index(trained, temporary / "index.faiss")
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
            files=describe_files(temporary),
        ).write(temporary)


def check_replaceable(folder: Path) -> None:
    """Refuse to write a memory where something else stands.

    Raises:
        UserError: there does.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the memory")
    if folder.exists() and any(folder.iterdir()):
        try:
            read_manifest(folder)
        except UserError as error:
            raise UserError(f"{folder} holds something else than a memory; choose another folder") from error


def read_about(folder: Path, name: str = ABOUT) -> dict[str, Any]:
    """Return what stands beside the entries of a saved memory, empty where nothing was said.

    Among it are ``words``, the new ones behind the ``known`` classes of the model.
    """
    if not (folder / name).is_file():
        return {}
    return dict(read_record(About, folder / name, "build the memory anew"))


def read_entries(manifest: Manifest, folder: Path, *, mmap: bool, device: torch.device) -> EntryStore:
    """Return the entries; keys are mapped copy-on-write, so that the files never change."""
    dtype = DTYPES[manifest.dtype]
    shape = (manifest.count, manifest.dim)
    keys = _read_rows(folder / "keys.bin", dtype, shape, mmap=mmap).to(device)
    values = _read_rows(folder / "values.bin", torch.int64, shape[:1], mmap=False).to(device)
    logs = None
    if "log_normalizers.bin" in manifest.files:
        logs = _read_rows(folder / "log_normalizers.bin", torch.float32, shape[:1], mmap=False).to(device)
    return EntryStore.from_tensors(keys, values, logs)


def read_index(index: IndexManifest, store: EntryStore, folder: Path) -> TrainedIndex | None:
    """Return the index over a prefix of the entries, None if none was trained; its sha256 was checked before.

    Raises:
        UserError: another FAISS wrote it, or it belongs to other entries.
    """
    if index.spec is None:
        return None
    path, faiss = folder / "index.faiss", load_faiss()
    try:
        loaded = faiss.read_index(str(path))
    except RuntimeError as error:
        raise UserError(
            f"this FAISS ({faiss.__version__}) cannot read {path}; build the memory anew"
        ) from error
    if loaded.d != store.dim or loaded.ntotal > len(store):
        raise UserError(f"{path} does not belong to the keys beside it; build the memory anew")
    return TrainedIndex(loaded, index.spec, index.trained)


def _write_rows(path: Path, parts: list[Tensor]) -> None:
    """Write tensors one behind the other as little-endian rows, a chunk at a time."""
    with path.open("wb") as stream:
        for part in parts:
            for chunk in torch.split(part, CHUNK):
                rows = to_numpy(chunk.cpu())
                stream.write(np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<")).tobytes())


def _write_index(trained: TrainedIndex, path: Path) -> None:
    faiss = load_faiss()
    # Through Python's file, so that a full disk is an OSError and not FAISS's own exception.
    path.write_bytes(memoryview(faiss.serialize_index(trained.index)))


def _read_rows(path: Path, dtype: torch.dtype, shape: tuple[int, ...], *, mmap: bool) -> Tensor:
    numpy_dtype = to_numpy(torch.empty(0, dtype=dtype)).dtype.newbyteorder("<")
    if mmap and path.stat().st_size:
        return from_numpy(np.memmap(path, dtype=numpy_dtype, mode="c", shape=shape), dtype)
    return from_numpy(np.fromfile(path, dtype=numpy_dtype).reshape(shape), dtype)
