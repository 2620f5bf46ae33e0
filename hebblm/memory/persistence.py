"""Saving and loading a memory: a folder of raw little-endian arrays with a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import atomic_path
from hebblm.memory.arrays import from_numpy, to_numpy
from hebblm.memory.faiss_index import TrainedIndex, load_faiss
from hebblm.memory.flat import FlatMemory
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.manifest import (
    DTYPES,
    SCHEMA,
    IndexManifest,
    Manifest,
    check_files,
    check_owner,
    describe_files,
    read_manifest,
)
from hebblm.memory.pq import FaissMemory
from hebblm.memory.ring import RingMemory
from hebblm.memory.store import EntryStore

AnyMemory: TypeAlias = FlatMemory | RingMemory | FaissMemory | HybridMemory
CHUNK = 65_536


def save_memory(memory: AnyMemory, folder: Path, *, model_hash: str, dictionary_hash: str) -> None:
    """Write ``memory`` to ``folder``, whole or not at all.

    Recent entries of a :class:`HybridMemory` are written behind its bulk and belong to the bulk when loaded.

    Args:
        memory: what to save; it does not change.
        folder: created, or replaced if it holds a saved memory.
        model_hash: of the model that made the keys.
        dictionary_hash: of the dictionary that the values refer to.

    Raises:
        UserError: ``folder`` holds something else, or cannot be written.
    """
    if folder.exists():
        _check_replaceable(folder)
    bulk = memory.bulk if isinstance(memory, HybridMemory) else memory
    trained = bulk.refresh() if isinstance(bulk, FaissMemory) else None
    parts = memory.parts() if isinstance(memory, HybridMemory) else [memory.entries()]
    with atomic_path(folder, directory=True) as temporary:
        _write_rows(temporary / "keys.bin", [part.keys for part in parts])
        _write_rows(temporary / "values.bin", [part.values for part in parts])
        logs = [part.log_normalizers for part in parts if part.log_normalizers is not None]
        if len(logs) == len(parts):
            _write_rows(temporary / "log_normalizers.bin", logs)
        if trained is not None:
            _write_index(trained, temporary / "index.faiss")
        Manifest(
            schema=SCHEMA,
            kind=memory.kind,
            model_hash=model_hash,
            dictionary_hash=dictionary_hash,
            dtype=str(parts[0].keys.dtype).removeprefix("torch."),
            count=len(memory),
            dim=memory.dim,
            capacity=memory.capacity if isinstance(memory, RingMemory) else None,
            flush_at=memory.flush_at if isinstance(memory, HybridMemory) else None,
            index=_describe_index(bulk, trained) if isinstance(bulk, FaissMemory) else None,
            files=describe_files(temporary),
        ).write(temporary)


def load_memory(
    folder: Path,
    *,
    model_hash: str,
    dictionary_hash: str,
    mmap: bool = True,
    device: torch.device | str = "cpu",
) -> AnyMemory:
    """Read a memory written by :func:`save_memory`; what it holds is the base that ``reset`` returns to.

    Args:
        folder: where it was saved.
        model_hash: of the model in use.
        dictionary_hash: of the dictionary in use.
        mmap: map the keys instead of reading them; on the CPU only.
        device: where exact and ring memories live.

    Raises:
        UserError: no memory there, another model or dictionary, or a missing, truncated or changed file.
    """
    manifest = read_manifest(folder)
    check_owner(manifest, folder, model_hash=model_hash, dictionary_hash=dictionary_hash)
    check_files(manifest, folder)
    indexed = manifest.index is not None
    store = _load_store(manifest, folder, mmap=mmap, device=torch.device("cpu" if indexed else device))
    if manifest.kind == "ring" and manifest.capacity is not None:
        return RingMemory.over(store, manifest.capacity)
    bulk = (
        _load_faiss(manifest.index, store, folder) if manifest.index is not None else FlatMemory.over(store)
    )
    if manifest.kind == "hybrid" and manifest.flush_at is not None:
        recent = FlatMemory(store.dim, dtype=store.dtype, device=store.device)
        return HybridMemory(bulk, recent, flush_at=manifest.flush_at)
    return bulk


def _check_replaceable(folder: Path) -> None:
    """Refuse to delete what is not a saved memory."""
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the memory")
    if any(folder.iterdir()):
        try:
            read_manifest(folder)
        except UserError as error:
            raise UserError(f"{folder} holds something else than a memory; choose another folder") from error


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


def _describe_index(memory: FaissMemory, trained: TrainedIndex | None) -> IndexManifest:
    return IndexManifest(
        factory=memory.factory,
        rescore=memory.rescore,
        nprobe=memory.nprobe,
        spec=None if trained is None else trained.spec,
        trained=0 if trained is None else trained.trained,
    )


def _load_store(manifest: Manifest, folder: Path, *, mmap: bool, device: torch.device) -> EntryStore:
    """Return the entries; keys are mapped copy-on-write, so that the files never change."""
    dtype = DTYPES[manifest.dtype]
    shape = (manifest.count, manifest.dim)
    keys = _read_rows(folder / "keys.bin", dtype, shape, mmap=mmap).to(device)
    values = _read_rows(folder / "values.bin", torch.int64, shape[:1], mmap=False).to(device)
    logs = None
    if "log_normalizers.bin" in manifest.files:
        logs = _read_rows(folder / "log_normalizers.bin", torch.float32, shape[:1], mmap=False).to(device)
    return EntryStore.from_tensors(keys, values, logs)


def _read_rows(path: Path, dtype: torch.dtype, shape: tuple[int, ...], *, mmap: bool) -> Tensor:
    numpy_dtype = to_numpy(torch.empty(0, dtype=dtype)).dtype.newbyteorder("<")
    if mmap and path.stat().st_size:
        return from_numpy(np.memmap(path, dtype=numpy_dtype, mode="c", shape=shape), dtype)
    return from_numpy(np.fromfile(path, dtype=numpy_dtype).reshape(shape), dtype)


def _load_faiss(index: IndexManifest, store: EntryStore, folder: Path) -> FaissMemory:
    """Return a FAISS memory over ``store``; the sha256 of the index file was checked before."""
    trained = None
    if index.spec is not None:
        path = folder / "index.faiss"
        faiss = load_faiss()
        try:
            loaded = faiss.read_index(str(path))
        except RuntimeError as error:
            raise UserError(
                f"this FAISS ({faiss.__version__}) cannot read {path}; build the memory anew"
            ) from error
        if loaded.d != store.dim or loaded.ntotal > len(store):
            raise UserError(f"{path} does not belong to the keys beside it; build the memory anew")
        trained = TrainedIndex(loaded, index.spec, index.trained)
    return FaissMemory.over(store, trained, factory=index.factory, rescore=index.rescore, nprobe=index.nprobe)
