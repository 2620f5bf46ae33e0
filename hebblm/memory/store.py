"""The entries of a memory, in arrays that grow by rows: in memory, or on disk in a mapped file."""

from __future__ import annotations

import math
import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from hebblm.errors import UserError, reason

CHUNK = 65_536  # rows that are written at once


def write_rows(stream: IO[bytes], rows: Tensor) -> None:
    """Write ``rows`` (n, ...) to a file as they lie in memory on little-endian machines, a chunk at
    a time.
    """
    for chunk in torch.split(rows, CHUNK):
        plain = chunk.cpu().contiguous()
        # NumPy does not know bfloat16: its bits are written.
        array = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
        stream.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


class GrowingArray:
    """Rows in memory; capacity doubles when it is exhausted, so that n appends copy O(n) rows.

    The array does not copy ``initial`` (n, ...) until it grows. A deep copy shares the rows, so it
    takes no time; before either array overwrites one of them, it gets rows of its own.
    """

    def __init__(self, initial: Tensor) -> None:
        self._data = initial
        self._length = len(initial)
        self._shared = 0  # rows that another array looks at too: they are never overwritten

    def __deepcopy__(self, memo: dict[int, Any]) -> GrowingArray:
        other = GrowingArray(self._data[: self._length])  # without room: its appends move it
        self._shared = other._shared = self._length
        return other

    def append(self, rows: Tensor) -> None:
        needed = self._length + len(rows)
        if needed > len(self._data):
            grown = self._data.new_empty((max(needed, 2 * self._length), *self._data.shape[1:]))
            grown[: self._length] = self._data[: self._length]
            self._data = grown
            self._shared = 0
        self._data[self._length : needed] = rows
        self._length = needed

    def truncate(self, length: int) -> None:
        self._length = min(self._length, length)
        if self._length < self._shared:  # later appends would overwrite rows of a copy
            self._data = self._data[: self._length].clone()
            self._shared = 0

    def view(self) -> Tensor:
        """Return all rows without a copy; valid until the next change."""
        return self._data[: self._length]


class MappedArray:
    """Rows in a file that is read through a memory map, for arrays that do not fit into memory.

    Without a file they are in an unnamed temporary one, and can grow; ``initial`` (n, ...), on the
    CPU, is copied there. Rows are written with plain writes, so that a full disk raises an error
    instead of a fault of the map.
    """

    def __init__(self, initial: Tensor, file: IO[bytes] | None = None) -> None:
        self._row_shape = tuple(initial.shape[1:])
        self._row_bytes = initial[:0].element_size() * math.prod(self._row_shape)
        self._file = tempfile.TemporaryFile(prefix="hebblm-memory-") if file is None else file  # noqa: SIM115 - lives as long as self
        self._length = 0
        self._mapped: mmap.mmap | None = None
        self._view: Tensor = initial[:0]
        if len(initial):
            self.append(initial)

    @classmethod
    def open(cls, path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> MappedArray:
        """Open the rows of a saved file, which never changes; they are read at random, a page at a
        time.
        """
        array = cls(torch.empty(0, *shape[1:], dtype=dtype), path.open("rb"))
        array._map(shape[0])
        if array._mapped is not None:
            array._mapped.madvise(mmap.MADV_RANDOM)
        return array

    def append(self, rows: Tensor) -> None:
        try:
            self._file.seek(self._length * self._row_bytes)
            write_rows(self._file, rows)
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"the memory does not fit in {tempfile.gettempdir()}: {reason(error)}; point "
                "TMPDIR to a larger disk"
            ) from error
        self._map(self._length + len(rows))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows; the next append overwrites the later ones."""
        self._length = min(self._length, length)
        self._view = self._view[: self._length]

    def view(self) -> Tensor:
        return self._view

    def release(self) -> None:
        """Free the pages that were read; later reads come from the system's cache, or from the
        disk.
        """
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def __reduce__(self) -> tuple[Any, ...]:
        """Give a copy its own temporary file."""
        return MappedArray, (self._view,)

    def _map(self, length: int) -> None:
        self._length = length
        self._mapped = None
        self._view = self._view.new_empty(0, *self._row_shape)
        size = length * self._row_bytes
        if size:
            # Copy-on-write: torch asks for writable memory, and nothing here ever writes to it.
            self._mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_COPY)
            self._view = torch.frombuffer(self._mapped, dtype=self._view.dtype).view(
                length, *self._row_shape
            )


RowArray = GrowingArray | MappedArray


KEY_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
SPILL_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Entries:
    """A view of n entries, oldest first."""

    keys: Tensor  # (n, D) as stored
    values: Tensor  # (n,) int64
    # (n,) squared L2 norms of the keys as stored; float64 for float64 keys, else float32
    norms: Tensor
    log_normalizers: Tensor | None  # (n,) float32 in nats, or None unless every entry has one
    largest: Tensor | None = None  # () of these norms, or of more; None if not computed yet

    def __len__(self) -> int:
        return len(self.keys)

    def run(self, begin: int, end: int | None = None) -> Entries:
        """Return a view from one position to another, or to the end."""
        logs = self.log_normalizers
        rows = slice(begin, end)
        return Entries(
            self.keys[rows],
            self.values[rows],
            self.norms[rows],
            None if logs is None else logs[rows],
        )


class EntryStore:
    """Growing arrays of keys, values and log-normalisers.

    Entries on the CPU whose keys outgrow ``spill_bytes`` move to memory-mapped temporary files.
    Without ``device`` the store takes that of the first keys added.
    """

    def __init__(
        self,
        dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        spill_bytes: int = SPILL_BYTES,
    ) -> None:
        if dtype not in KEY_DTYPES.values():
            raise UserError(
                f"memory keys cannot be stored as {dtype}; use float32, float16 or bfloat16"
            )
        self.dim = dim
        self.dtype = dtype
        self._spill_bytes = spill_bytes
        self._device = None if device is None else torch.device(device)
        where = self.device
        self._keys: RowArray = GrowingArray(torch.empty(0, dim, dtype=dtype, device=where))
        self._values: RowArray = GrowingArray(torch.empty(0, dtype=torch.int64, device=where))
        self._norms: RowArray = GrowingArray(
            torch.empty(0, dtype=accumulation_dtype(dtype), device=where)
        )
        self._logs: RowArray = GrowingArray(torch.empty(0, dtype=torch.float32, device=where))
        self._largest: Tensor | None = None  # () of the norms of all entries ever added
        self._lacking = 0  # entries without a log-normaliser, held as nan
        self._saved = False  # whether the files belong to a memory that others may read, too

    @classmethod
    def from_tensors(
        cls, keys: Tensor, values: Tensor, log_normalizers: Tensor | None
    ) -> EntryStore:
        """Return a store over ``keys`` (n, D), ``values`` (n,), ``log_normalizers`` (n,), without
        copying.
        """
        store = cls(keys.shape[1], dtype=keys.dtype, device=keys.device)
        logs = values.new_full((len(keys),), float("nan"), dtype=torch.float32)
        tensors = (
            keys,
            values,
            squared_norms(keys),
            logs if log_normalizers is None else log_normalizers,
        )
        store._hold(*map(GrowingArray, tensors))
        return store

    @classmethod
    def mapped(
        cls, keys: MappedArray, values: MappedArray, norms: MappedArray, logs: MappedArray
    ) -> EntryStore:
        """Return a store over the files of a saved memory; new entries go to temporary files."""
        store = cls(keys.view().shape[1], dtype=keys.view().dtype, device="cpu", spill_bytes=0)
        store._saved = True
        store._hold(keys, values, norms, logs)
        return store

    def _hold(self, keys: RowArray, values: RowArray, norms: RowArray, logs: RowArray) -> None:
        self._keys = keys
        self._values = values
        self._norms = norms
        self._logs = logs
        self._note(norms.view())
        self._lacking = int(logs.view().isnan().sum())

    def __len__(self) -> int:
        return len(self._values.view())

    @property
    def device(self) -> torch.device:
        """Device of the entries; the CPU before the first keys come."""
        return self._device or torch.device("cpu")

    def append(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Add keys (M, D), integer labels (M,) and, in nats, the logsumexp (M,) of each key's base
        logits.
        """
        self._check(keys, values, log_normalizers)
        if self._device is None:
            self._device = keys.device  # that of the first keys; the arrays are still empty
            self._keys, self._values, self._norms, self._logs = (
                GrowingArray(array.view().to(self._device))
                for array in (self._keys, self._values, self._norms, self._logs)
            )
        stored = keys.detach().to(device=self._device, dtype=self.dtype)  # (M, D)
        norms = squared_norms(stored)  # (M,)
        if not bool(norms.isfinite().all()):
            name = str(self.dtype).removeprefix("torch.")
            if self.dtype == torch.float16:
                remedy = "use memory.dtype=float32"
            else:
                remedy = "look at the model that made it"
            raise UserError(f"a memory key is not finite as {name}; {remedy}")
        if log_normalizers is None:
            logs = torch.full((len(keys),), float("nan"), dtype=torch.float32, device=self._device)
        else:
            logs = log_normalizers.detach().to(device=self._device, dtype=torch.float32)
        self._spill_if_large(len(keys))
        labels = values.detach().to(device=self._device, dtype=torch.int64)
        before = len(self)
        try:
            self._keys.append(stored)
            self._values.append(labels)
            self._norms.append(norms)
            self._logs.append(logs)
        except BaseException:  # a full disk, or Ctrl-C: keys and labels stay side by side
            self.truncate(before)
            raise
        self._note(norms)
        self._lacking += int(logs.isnan().sum())

    def truncate(self, length: int) -> None:
        for array in (self._keys, self._values, self._norms, self._logs):
            array.truncate(length)
        self._lacking = int(self._logs.view().isnan().sum())

    def release(self) -> None:
        if isinstance(self._keys, MappedArray):
            self._keys.release()

    def entries(self, latest: int | None = None) -> Entries:
        """Return a view of all entries, or of the ``latest`` ones; valid until the next change."""
        start = 0 if latest is None else max(0, len(self) - latest)
        logs = self._logs.view()[start:]
        complete = not self._lacking or (start > 0 and not bool(logs.isnan().any()))
        return Entries(
            self._keys.view()[start:],
            self._values.view()[start:],
            self._norms.view()[start:],
            logs if complete else None,
            None if start else self._largest,
        )

    def copy(self, latest: int) -> EntryStore:
        """Return a store with its own copy of the ``latest`` entries."""
        start = max(0, len(self) - latest)
        keys, values, logs = (
            a.view()[start:].clone() for a in (self._keys, self._values, self._logs)
        )
        return EntryStore.from_tensors(keys, values, logs)

    def _note(self, norms: Tensor) -> None:
        if len(norms):
            largest = norms.max()
            if self._largest is None:
                self._largest = largest
            else:
                self._largest = torch.maximum(largest, self._largest)

    def _check(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None) -> None:
        check_tensors(keys=keys, values=values, log_normalizers=log_normalizers)
        if keys.ndim != 2 or keys.shape[1] != self.dim:
            raise ValueError(
                f"keys of shape {tuple(keys.shape)} do not fit a memory of width {self.dim}"
            )
        for name, array in (("values", values), ("log_normalizers", log_normalizers)):
            if array is not None and array.shape != keys.shape[:1]:
                raise ValueError(f"{name} of shape {tuple(array.shape)} for {len(keys)} keys")
        if not torch.can_cast(values.dtype, torch.int64) or bool((values < 0).any()):
            raise UserError(
                f"the labels {values.tolist()!s:.60} of a memory must be whole numbers of at least "
                "0"
            )

    def _spill_if_large(self, added: int) -> None:
        keys = self._keys.view()
        on_disk = isinstance(self._keys, MappedArray) and not self._saved
        size = (len(keys) + added) * self.dim * keys.element_size()
        if keys.device.type == "cpu" and not on_disk and size > self._spill_bytes:
            self._keys, self._values, self._norms, self._logs = (
                MappedArray(array.view())
                for array in (self._keys, self._values, self._norms, self._logs)
            )
            self._saved = False


def check_tensors(**arrays: object) -> None:
    for name, array in arrays.items():
        if array is not None and not isinstance(array, Tensor):
            raise UserError(
                f"{name} of type {type(array).__name__} are not a tensor; give torch.as_tensor of "
                "them"
            )


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type for norms and distances of keys of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def squared_norms(keys: Tensor) -> Tensor:
    """Return ``||h_k||^2`` (n,) of keys (n, D), in chunks, so that half-precision keys are not all
    widened at once.
    """
    dtype = accumulation_dtype(keys.dtype)
    norms = torch.empty(len(keys), dtype=dtype, device=keys.device)
    for rows, out in zip(torch.split(keys, 16384), torch.split(norms, 16384), strict=True):
        torch.sum(rows.to(dtype).square(), dim=-1, out=out)
    return norms
