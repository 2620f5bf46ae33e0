"""The losses of many grid points, kept on disk: points times tokens outgrow memory."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError

Losses = npt.NDArray[np.float64]


class LossTable:
    """Losses by token and point, in an unnamed temporary file; only their sums are held.

    Args:
        points: P.
    """

    def __init__(self, points: int) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="hebblm-losses-")  # noqa: SIM115 - lives as long as self
        self._sums = np.zeros(points)
        self._tokens = 0

    def append(self, losses: npt.NDArray[np.float32]) -> None:
        """Add the losses (P, N) of the next tokens, nats.

        Raises:
            UserError: the temporary folder has no space left.
        """
        self._sums += losses.sum(1, dtype=np.float64)
        self._tokens += losses.shape[1]
        try:
            self._file.write(np.ascontiguousarray(losses.T, dtype=np.float32).tobytes())
        except OSError as error:
            raise UserError(
                f"the losses of the grid do not fit in {tempfile.gettempdir()}: {error.strerror}; "
                "point TMPDIR to a larger disk"
            ) from error

    def means(self) -> Losses:
        """Return the mean loss (P,) of each point; not finite where one of its losses is not."""
        return self._sums / max(1, self._tokens)

    def of(self, point: int) -> Losses:
        """Return the losses (T,) of one point."""
        self._file.flush()
        table = np.memmap(self._file, dtype=np.float32, mode="r", shape=(self._tokens, len(self._sums)))
        return table[:, point].astype(np.float64)
