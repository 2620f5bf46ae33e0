"""Observers of a pass over a text, and notes that can be kept on disk and taken over by a later process."""

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
    """Observer of every mini-batch before its labels are learned from; no method's score depends on it."""

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Look at a mini-batch and its labels (N,)."""


class KeptObserver(Observer, Protocol):
    """An observer whose notes can be kept."""

    def state_dict(self) -> dict[str, Tensor]:
        """What was noted since this was asked last."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what :meth:`state_dict` gave in an earlier process; several in their order."""


@dataclass(slots=True, kw_only=True)
class Notes:
    """Columns, to which each mini-batch adds some rows."""

    parts: list[dict[str, npt.NDArray[Any]]] = field(default_factory=list)  # by name, the rows of a mini-batch each
    _kept: int = 0  # parts that state_dict() gave already

    def add(self, columns: Mapping[str, Tensor]) -> None:
        self.parts.append({name: column.cpu().numpy() for name, column in columns.items()})

    def columns(self, since: int = 0) -> dict[str, npt.NDArray[Any]]:
        """All rows, or those since a part; nothing where there is none."""
        parts = self.parts[since:]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def state_dict(self) -> dict[str, Tensor]:
        columns = self.columns(self._kept)
        self._kept = len(self.parts)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if state:
            self.add(state)
        self._kept = len(self.parts)
