"""Arrays that grow by rows: in memory by amortised doubling, on disk by appending to a mapped file."""

from __future__ import annotations

import tempfile
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.errors import UserError, reason


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a CPU tensor's memory as an array; bfloat16, which NumPy does not know, as its bits in int16."""
    array: npt.NDArray[Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def from_numpy(array: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
    """Return the tensor of ``dtype`` over an array's memory; the inverse of :func:`to_numpy`."""
    tensor = torch.from_numpy(array)
    return tensor.view(dtype) if dtype == torch.bfloat16 else tensor


class RowArray(Protocol):
    """A tensor whose first dimension can grow and shrink at its end."""

    def append(self, rows: Tensor) -> None:
        """Add rows at the end."""

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows."""

    def view(self) -> Tensor:
        """Return all rows without a copy; valid until the next change."""


class GrowingArray:
    """Rows in memory; capacity doubles when it is exhausted, so that n appends copy O(n) rows.

    Args:
        initial: (n, ...) the rows to begin with, not copied until the array grows.
    """

    def __init__(self, initial: Tensor) -> None:
        self._data = initial
        self._length = len(initial)

    def append(self, rows: Tensor) -> None:
        """Add ``rows`` (m, ...) at the end."""
        needed = self._length + len(rows)
        if needed > len(self._data):
            grown = self._data.new_empty((max(needed, 2 * self._length), *self._data.shape[1:]))
            grown[: self._length] = self._data[: self._length]
            self._data = grown
        self._data[self._length : needed] = rows
        self._length = needed

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows."""
        self._length = min(self._length, length)

    def view(self) -> Tensor:
        """Return all rows without a copy."""
        return self._data[: self._length]


class MappedArray:
    """Rows in an unnamed temporary file that is read through a memory map; for keys too large for memory.

    Rows are written with plain writes, so that a full disk is an error that can be told, not a fault of the
    map.

    Args:
        initial: (n, ...) the rows to begin with, on the CPU; they are copied to the file.

    Raises:
        UserError: the temporary folder has no space left.
    """

    def __init__(self, initial: Tensor) -> None:
        self._row_shape = tuple(initial.shape[1:])
        self._row_bytes = initial[:0].element_size() * int(np.prod(self._row_shape, dtype=np.int64))
        self._dtype = initial.dtype
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="hebblm-memory-")  # noqa: SIM115 - lives as long as self
        self._length = 0
        self._view: Tensor = initial[:0]
        self.append(initial)

    def append(self, rows: Tensor) -> None:
        """Add ``rows`` (m, ...) at the end of the file."""
        try:
            self._file.seek(self._length * self._row_bytes)
            for chunk in torch.split(rows, 65536):
                self._file.write(to_numpy(chunk).tobytes())
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"the memory does not fit in {tempfile.gettempdir()}: {reason(error)}; "
                "point TMPDIR to a larger disk"
            ) from error
        self._map(self._length + len(rows))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` rows; later ones are overwritten by the next append."""
        self._map(min(self._length, length))

    def view(self) -> Tensor:
        """Return all rows, mapped."""
        return self._view

    def _map(self, length: int) -> None:
        self._length = length
        if length == 0:
            self._view = self._view[:0]
            return
        # Copy-on-write: torch asks for writable memory, and nothing here ever writes to it.
        like = to_numpy(torch.empty(0, dtype=self._dtype))
        mapped = np.memmap(self._file, dtype=like.dtype, mode="c", shape=(length, *self._row_shape))
        self._view = from_numpy(mapped, self._dtype)
