"""Observers of a pass over a text, and notes that a later process can load from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch


class Observer(Protocol):
    """Observer of every mini-batch before its labels are learned from; no score depends on it."""

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Record a mini-batch and its labels (N,)."""


class Kept(Protocol):
    """Notes that can be saved."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the notes since the last call."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the notes of an earlier process's :meth:`state_dict`; several in their order."""


class KeptObserver(Observer, Kept, Protocol):
    """An observer whose notes can be saved."""


@dataclass(slots=True, kw_only=True)
class Notes:
    """Columns; each mini-batch adds some rows."""

    # by name, the rows of a mini-batch each
    parts: list[dict[str, npt.NDArray[Any]]] = field(default_factory=list)
    _kept: int = 0  # parts that state_dict() gave already

    def add(self, columns: Mapping[str, Tensor]) -> None:
        self.parts.append({name: column.cpu().numpy() for name, column in columns.items()})

    def columns(self, since: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Return all rows, or those since a part; empty without rows."""
        parts = self.parts[since:]
        if not parts:
            return {}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def state_dict(self) -> dict[str, Tensor]:
        columns = self.columns(self._kept)
        self._kept = len(self.parts)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if state:
            self.add(state)
        self._kept = len(self.parts)
