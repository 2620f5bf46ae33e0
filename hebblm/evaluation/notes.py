"""Notes of observers, such that they can be kept on disk and taken over by a later process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.evaluation.loop import Observer


class KeptObserver(Observer, Protocol):
    """An observer whose notes can be kept."""

    def noted(self) -> dict[str, Tensor]:
        """Return what was noted since this was asked last."""

    def restore(self, noted: dict[str, Tensor]) -> None:
        """Take over such notes of an earlier process, in their order."""


@dataclass(slots=True, kw_only=True)
class Notes:
    """Columns, to which each mini-batch adds some rows.

    Args:
        parts: by name, the rows of a mini-batch each.
    """

    parts: list[dict[str, npt.NDArray[Any]]] = field(default_factory=list)
    _told: int = 0

    def add(self, columns: Mapping[str, Tensor]) -> None:
        """Note the rows of a mini-batch."""
        self.parts.append({name: column.cpu().numpy() for name, column in columns.items()})

    def columns(self, since: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Return what was noted, all rows or those since a part; nothing where there is none."""
        parts = self.parts[since:]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def noted(self) -> dict[str, Tensor]:
        """Return what was noted since this was asked last."""
        found = self.columns(self._told)
        self._told = len(self.parts)
        return {name: torch.from_numpy(column) for name, column in found.items()}

    def restore(self, noted: dict[str, Tensor]) -> None:
        """Take over such notes of an earlier process."""
        if noted:
            self.add(noted)
        self._told = len(self.parts)
