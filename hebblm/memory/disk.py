"""Memory on disk: mapped arrays, and an index whose inverted lists FAISS keeps in a file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.io.files import atomic_path
from hebblm.memory import faiss_index
from hebblm.memory.faiss_index import CHUNK, TrainedIndex, load_faiss
from hebblm.memory.nearest import Ranked
from hebblm.memory.pq import FaissMemory
from hebblm.memory.store import EntryStore, MappedArray, accumulation_dtype

INDEX, LISTS = "index.faiss", "lists.bin"
# entries that are encoded at once; an interrupted build encodes at most so many again
SHARD = 1 << 18
READ_AT_ONCE = 1 << 13  # keys read between two releases; each may load 64 kB around it
RELEASED_FROM = 1 << 30  # bytes of keys; fewer may stay in memory


@dataclass(frozen=True, slots=True)
class ListsOnDisk(TrainedIndex):
    """An index whose inverted lists are in a file."""

    empty: npt.NDArray[np.uint8]  # (n,) uint8, the same index without entries, as FAISS writes it


class DiskMemory(FaissMemory):
    """Entries in memory-mapped files, found by inverted lists in a file, with exact distances.

    A search keeps few pages of keys in memory: it frees them as it goes on. Lists never change: the
    lists of new entries are merged with the old ones into another file. So several processes can
    read a saved memory, and :meth:`reset` finds the state that it returns to.

    Args:
        dim: D; ``dtype``, ``rescore`` and ``nprobe`` are those of
            :class:`~hebblm.memory.FaissMemory`.
        factory: "auto" (exact below 20,000 entries, ``IVF{n},SQ4`` above) or a factory string of
            inverted lists.
        work: folder that keeps the finished parts of an index for the next process that makes the
            same one; None for a temporary folder.

    Raises:
        UserError: FAISS is missing, or an argument is out of range or not understood.
    """

    kind = "disk"

    def __init__(
        self,
        dim: int,
        factory: str = "auto",
        *,
        dtype: torch.dtype = torch.float32,
        rescore: int = 5,
        nprobe: int | None = None,
        work: Path | None = None,
    ) -> None:
        super().__init__(dim, factory, dtype=dtype, rescore=rescore, nprobe=nprobe, spill_bytes=0)
        if factory != "auto":
            _check_lists(dim, factory)
        self._work = work

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        keys = self.entries().keys
        if keys.numel() * keys.element_size() < RELEASED_FROM or not len(queries):
            return super().nearest(queries, k)
        ranked = []
        for block in torch.split(queries, max(1, READ_AT_ONCE // (self.rescore * max(1, k)))):
            self._store.release()
            ranked.append(super().nearest(block, k))
        self._store.release()
        return Ranked(*map(torch.cat, zip(*ranked, strict=True)))

    def refresh(self) -> TrainedIndex | None:
        if self._trained is None or len(self) != len(self._trained):
            with tempfile.TemporaryDirectory(prefix="hebblm-memory-") as temporary:
                # Mapped lists stay readable after their file is deleted.
                self._trained = self._index(self._store, Path(temporary, "lists"), Path(temporary))
        return self._trained

    def write_index(self, folder: Path) -> TrainedIndex | None:
        count = (folder / "values.bin").stat().st_size // 8
        with tempfile.TemporaryDirectory(prefix="hebblm-memory-") as temporary:
            return self._index(
                saved_entries(folder, self.dtype, count, self.dim), folder, Path(temporary)
            )

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "store": "disk"}

    def _index(self, store: EntryStore, folder: Path, temporary: Path) -> TrainedIndex | None:
        """Make an index of all entries of a store; extend this memory's index if it was trained on
        half of them.

        The lists go to ``folder``. Intermediate files go to ``temporary``, or to ``work`` if there
        is one.
        """
        count = len(store)
        trained = self._trained
        work = self._work or temporary
        if trained is None or count >= 2 * trained.trained:
            spec = auto_spec(count) if self.factory == "auto" else self.factory
            if spec is None or count < self._minimum:
                return None
            trained = self._train(store, spec, work)
        assert isinstance(trained, ListsOnDisk), "the index of a memory on disk stands there"
        extended = _extended(trained, store, folder, work)
        faiss_index.set_nprobe(extended.index, self.nprobe)
        return extended

    def _train(self, store: EntryStore, spec: str, work: Path) -> ListsOnDisk:
        path = work / f"{spec}-{len(store)}.faiss"
        if not path.is_file():
            index = faiss_index.make_index(self.dim, spec)
            faiss_index.train(index, store.entries().keys, store.release)
            _write(index, path)
        index = load_faiss().read_index(str(path))
        return ListsOnDisk(index, spec, len(store), load_faiss().serialize_index(index))


def auto_spec(count: int) -> str | None:
    """Return a factory string for ``count`` keys on disk, None if exact search is as fast.

    It uses four bits a dimension in about sqrt(2 n) inverted lists. FAISS cannot keep the 4-bit
    product quantisation of a memory in RAM in lists on disk, and training an 8-bit one takes a
    hundred times as long.
    """
    if count < faiss_index.EXACT_BELOW:
        return None
    return f"IVF{2 ** round(np.log2(np.sqrt(2 * count)))},SQ4"


def open_lists(folder: Path, spec: str, trained: int) -> ListsOnDisk:
    """Open a folder's saved index, made from ``spec`` and trained on ``trained`` entries; its lists
    are only read.
    """
    faiss = load_faiss()
    flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY
    with _silent():
        index, empty = (faiss.read_index(str(folder / INDEX), flags) for _ in range(2))
    inverted = faiss.extract_index_ivf(empty)
    lists = faiss.ArrayInvertedLists(inverted.nlist, inverted.code_size)
    inverted.replace_invlists(lists, True)
    lists.this.disown()
    empty.ntotal = inverted.ntotal = 0
    return ListsOnDisk(index, spec, trained, faiss.serialize_index(empty))


def saved_entries(folder: Path, dtype: torch.dtype, count: int, dim: int) -> EntryStore:
    """Return the entries of a saved memory, ``count`` keys of ``dtype`` and width ``dim``; all
    arrays are mapped.
    """
    return EntryStore.mapped(
        MappedArray.open(folder / "keys.bin", dtype, (count, dim)),
        MappedArray.open(folder / "values.bin", torch.int64, (count,)),
        MappedArray.open(folder / "norms.bin", accumulation_dtype(dtype), (count,)),
        MappedArray.open(folder / "log_normalizers.bin", torch.float32, (count,)),
    )


def _extended(trained: ListsOnDisk, store: EntryStore, folder: Path, work: Path) -> ListsOnDisk:
    """Return an index of all entries of a store, and write its lists and head to ``folder``.

    Entries that ``trained`` lacks are encoded shard by shard. Each shard stays in ``work``, for a
    process that makes the same index.
    """
    faiss = load_faiss()
    keys = store.entries().keys
    paths = []
    for begin in range(len(trained), len(keys), SHARD):
        path = work / f"{trained.spec}-{trained.trained}-{begin}.faiss"
        if not path.is_file():
            shard = faiss.deserialize_index(trained.empty)
            rows = keys[begin : begin + SHARD]
            for start in range(0, len(rows), CHUNK):
                chunk = faiss_index.as_float32(rows[start : start + CHUNK])
                shard.add_with_ids(chunk, np.arange(begin + start, begin + start + len(chunk)))
                store.release()
            _write(shard, path)
        paths.append(path)
    folder.mkdir(parents=True, exist_ok=True)
    index = faiss.deserialize_index(trained.empty)
    inverted = faiss.extract_index_ivf(index)
    lists = _merged(trained.index, paths, folder / LISTS)
    index.ntotal = inverted.ntotal = len(keys)
    inverted.replace_invlists(lists, True)
    lists.this.disown()
    lists.filename = LISTS  # a saved index names no other folder
    _write(index, folder / INDEX)
    return ListsOnDisk(index, trained.spec, trained.trained, trained.empty)


def _merged(first: Any, paths: Sequence[Path], merged: Path) -> Any:
    """Merge the inverted lists of several indexes into a file, each list after the same list of the
    index before.

    FAISS' own merging maps everything that it reads and writes, so all of it is resident at once.
    This one opens one index at a time and uses plain writes: for each list the codes, then the
    numbers of the entries.
    """
    faiss = load_faiss()

    def inverted_lists() -> Iterator[Any]:
        yield faiss.extract_index_ivf(first).invlists
        for path in paths:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
            yield faiss.extract_index_ivf(index).invlists

    # (parts, lists)
    sizes = np.array(
        [[part.list_size(number) for number in range(part.nlist)] for part in inverted_lists()]
    )
    totals = sizes.sum(0)
    width = faiss.extract_index_ivf(first).code_size
    begins = (np.cumsum(totals) - totals) * (width + 8)  # (lists,) bytes
    with atomic_path(merged) as temporary, temporary.open("wb") as stream:
        for part, count, before in zip(
            inverted_lists(), sizes, np.cumsum(sizes, 0) - sizes, strict=True
        ):
            for number in np.flatnonzero(count).tolist():
                size = int(count[number])
                codes = faiss.rev_swig_ptr(part.get_codes(number), size * width)
                ids = faiss.rev_swig_ptr(part.get_ids(number), size)
                stream.seek(begins[number] + before[number] * width)
                stream.write(codes)
                stream.seek(begins[number] + totals[number] * width + before[number] * 8)
                stream.write(ids)
    lists = faiss.OnDiskInvertedLists(len(totals), width, str(merged))
    counts = totals.astype(np.uint64)
    lists.set_all_lists_sizes(faiss.swig_ptr(counts))  # a pointer does not keep what it points at
    lists.totsize = merged.stat().st_size
    lists.read_only = True
    lists.do_mmap()
    return lists


def _write(index: Any, path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(memoryview(load_faiss().serialize_index(index)))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep FAISS' messages about files off standard output, where a command's results go."""
    flush = ctypes.CDLL(None).fflush
    if sys.stdout is not None:
        sys.stdout.flush()
    flush(None)
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _check_lists(dim: int, factory: str) -> None:
    """Refuse an index that FAISS cannot keep on disk: without inverted lists, or with blocks
    scanned at once.
    """
    # the index owns the extracted lists
    faiss = load_faiss()
    index = faiss_index.make_index(dim, factory)
    inverted = faiss.try_extract_index_ivf(index)
    if inverted is None or hasattr(faiss.downcast_index(inverted), "bbs"):
        raise UserError(
            f"memory.index={factory} cannot be kept on disk; use auto, or inverted lists of codes "
            "such as IVF1024,SQ4"
        )
