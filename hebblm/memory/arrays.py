"""Arrays that grow by rows: in memory by amortised doubling, on disk by appending to a mapped file."""

from __future__ import annotations

import math
import mmap
import tempfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from hebblm.errors import UserError, reason

CHUNK = 65_536  # rows that are written at once


def write_rows(stream: IO[bytes], rows: Tensor) -> None:
    """Write ``rows`` (n, ...) to a file as they lie in memory on little-endian machines, a chunk at a time."""
    for chunk in torch.split(rows, CHUNK):
        plain = chunk.cpu().contiguous()
        # NumPy does not know bfloat16: its bits are written.
        array = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
        stream.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


class GrowingArray:
    """Rows in memory; capacity doubles when it is exhausted, so that n appends copy O(n) rows.

    ``initial`` (n, ...) are not copied until the array grows.
    """

    def __init__(self, initial: Tensor) -> None:
        self._data = initial
        self._length = len(initial)

    def append(self, rows: Tensor) -> None:
        needed = self._length + len(rows)
        if needed > len(self._data):
            grown = self._data.new_empty((max(needed, 2 * self._length), *self._data.shape[1:]))
            grown[: self._length] = self._data[: self._length]
            self._data = grown
        self._data[self._length : needed] = rows
        self._length = needed

    def truncate(self, length: int) -> None:
        self._length = min(self._length, length)

    def view(self) -> Tensor:
        """All rows without a copy; valid until the next change."""
        return self._data[: self._length]

    def release(self) -> None:
        """Keep everything: it stands nowhere else."""


class MappedArray:
    """Rows in a file that is read through a memory map; for what is too large for memory.

    Without a file they stand in an unnamed temporary one, and can grow; ``initial`` (n, ...), on the CPU, is copied
    there. Rows are written with plain writes, so that a full disk is an error that can be told, not a fault of the map.
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
        """Rows of a saved file, which never changes; they are read at random, a page at a time."""
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
                f"the memory does not fit in {tempfile.gettempdir()}: {reason(error)}; point TMPDIR to a larger disk"
            ) from error
        self._map(self._length + len(rows))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows, as they are in memory; later ones are overwritten by the next append."""
        self._length = min(self._length, length)
        self._view = self._view[: self._length]

    def view(self) -> Tensor:
        return self._view

    def release(self) -> None:
        """Let go of the pages that were read; what is read again comes from the system's cache, or from the disk."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a temporary file of its own."""
        return MappedArray, (self._view,)

    def _map(self, length: int) -> None:
        self._length, self._mapped = length, None
        self._view = self._view.new_empty(0, *self._row_shape)
        size = length * self._row_bytes
        if size:
            # Copy-on-write: torch asks for writable memory, and nothing here ever writes to it.
            self._mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_COPY)
            self._view = torch.frombuffer(self._mapped, dtype=self._view.dtype).view(length, *self._row_shape)


RowArray = GrowingArray | MappedArray
