"""Factory of memories, from a configuration or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

import torch

from hebblm.errors import UserError
from hebblm.memory import faiss_index
from hebblm.memory.base import AnyMemory
from hebblm.memory.config import MemoryConfig
from hebblm.memory.disk import DiskMemory
from hebblm.memory.exact import FlatMemory, RingMemory
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.persistence import (
    IndexManifest,
    Manifest,
    check_files,
    check_owner,
    read_entries,
    read_index,
    read_manifest,
)
from hebblm.memory.pq import FaissMemory, check_search
from hebblm.memory.store import KEY_DTYPES, EntryStore

MOVED_AT = 1 << 20  # entries in memory when they move to disk


def build_memory(
    dim: int, config: MemoryConfig, device: torch.device | str = "cpu", *, work: Path | None = None
) -> AnyMemory:
    """Build an empty memory for keys of width ``dim``.

    Args:
        dim: D.
        config: how to keep and search entries.
        device: device of entries and searches; a memory on disk is searched on the CPU.
        work: folder for preparing an index on disk; the process after one that was killed goes on
            there.

    Raises:
        UserError: a value out of range, values that exclude each other, or a configuration that
            needs a missing FAISS.
    """
    memory = _build(dim, config, device, work)
    memory.signed_sqrt = config.keys == "root"
    return memory


def _build(
    dim: int, config: MemoryConfig, device: torch.device | str, work: Path | None
) -> AnyMemory:
    dtype = KEY_DTYPES[config.dtype]
    check_search(config.rescore, config.nprobe)
    if config.store == "disk":
        return _on_disk(dim, config, dtype, work)
    if config.capacity is not None:
        if config.index not in ("auto", "exact"):
            raise UserError(
                f"memory.capacity={config.capacity} needs memory.index=exact, not {config.index}"
            )
        return RingMemory(dim, config.capacity, dtype=dtype, device=device)
    automatic = config.index == "auto"
    if config.index == "exact" or (automatic and not _index_pays(device)):
        if config.nprobe is not None and not automatic:
            raise UserError(
                f"memory.nprobe={config.nprobe} has no effect with memory.index=exact; leave it "
                "unset"
            )
        return FlatMemory(dim, dtype=dtype, device=device)
    bulk = FaissMemory(
        dim, config.index, dtype=dtype, rescore=config.rescore, nprobe=config.nprobe, device=device
    )
    return HybridMemory(bulk, FlatMemory(dim, dtype=dtype, device=device))


def _on_disk(dim: int, config: MemoryConfig, dtype: torch.dtype, work: Path | None) -> HybridMemory:
    """Return an empty memory that moves older entries to disk."""
    if config.capacity is not None or config.index == "exact":
        setting = f"capacity={config.capacity}" if config.capacity is not None else "index=exact"
        raise UserError(
            f"memory.{setting} does not go with memory.store=disk; leave one of them unset"
        )
    faiss_index.load_faiss("memory.store=disk")
    bulk = DiskMemory(
        dim, config.index, dtype=dtype, rescore=config.rescore, nprobe=config.nprobe, work=work
    )
    return HybridMemory(bulk, _recent(dim, dtype), flush_at=MOVED_AT)


def _recent(dim: int, dtype: torch.dtype) -> HybridMemory:
    """Return an empty memory for entries that have not moved to disk yet."""
    return HybridMemory(FaissMemory(dim, dtype=dtype), FlatMemory(dim, dtype=dtype, device="cpu"))


def load_memory(
    folder: Path,
    *,
    model_hash: str,
    dictionary_hash: str,
    mmap: bool = True,
    device: torch.device | str = "cpu",
) -> AnyMemory:
    """Load a memory from :func:`save_memory`; its entries become the base that ``reset`` returns
    to.

    Args:
        folder: the memory's folder.
        model_hash: hash of the model in use.
        dictionary_hash: hash of the dictionary in use.
        mmap: whether to map the keys instead of reading them; on the CPU only.
        device: device of entries and searches, except for a memory on disk. A GPU compares all
            entries if the index was chosen automatically.

    Raises:
        UserError: no memory there, another model or dictionary, or a missing, truncated or changed
            file.
    """
    manifest = read_manifest(folder)
    check_owner(manifest, folder, model_hash=model_hash, dictionary_hash=dictionary_hash)
    check_files(manifest, folder, quick=manifest.store == "disk")
    memory = _load(manifest, folder, mmap, device)
    memory.signed_sqrt = manifest.keys == "root"
    return memory


def _load(manifest: Manifest, folder: Path, mmap: bool, device: torch.device | str) -> AnyMemory:
    index, where = manifest.index, torch.device("cpu" if manifest.store == "disk" else device)
    if (
        index is not None
        and index.factory == "auto"
        and not (manifest.store == "disk" or _index_pays(where))
    ):
        index = None
    store = read_entries(manifest, folder, mmap=mmap, device=where)
    match manifest.kind:
        case "ring":
            assert manifest.capacity is not None  # read_manifest saw to it, as below
            return RingMemory(store.dim, manifest.capacity, dtype=store.dtype).over(store)
        case "exact" | "faiss" | "disk":
            return _bulk(manifest, index, store, folder)
        case "hybrid":
            assert manifest.flush_at is not None
            bulk = _bulk(manifest, index, store, folder)
            recent: FlatMemory | HybridMemory
            if manifest.store == "disk":
                recent = _recent(store.dim, store.dtype)
            else:
                recent = FlatMemory(store.dim, dtype=store.dtype, device=store.device)
            return HybridMemory(bulk, recent, flush_at=manifest.flush_at)
        case _ as unread:
            assert_never(unread)


def _bulk(
    manifest: Manifest, index: IndexManifest | None, store: EntryStore, folder: Path
) -> AnyMemory:
    """Return a memory over all entries of a folder, with its index if it has one."""
    if index is None:
        return FlatMemory(store.dim, dtype=store.dtype).over(store)
    kind = DiskMemory if manifest.store == "disk" else FaissMemory
    empty = kind(
        store.dim, index.factory, dtype=store.dtype, rescore=index.rescore, nprobe=index.nprobe
    )
    return empty.over(store, read_index(manifest, store, folder))


def _index_pays(device: torch.device | str) -> bool:
    """Return whether a trained index is available and faster: a GPU compares all entries in less
    time.
    """
    return torch.device(device).type == "cpu" and faiss_index.is_installed()
