"""Content of a run token by token: losses, gains over the base, and the neighbours that were retrieved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hebblm.errors import UserError
from hebblm.report import tokens
from hebblm.report.logged import read_table, recorded
from hebblm.report.methods import BASE, ordered
from hebblm.report.result import Result
from hebblm.report.tokens import TokenLosses
from hebblm.suggest import unknown

NEIGHBORS_FILE = "neighbors.parquet"
_KINDS = {
    **dict.fromkeys(("position", "rank", "place"), "whole numbers"),
    "from_stream": "true or false",
    **dict.fromkeys(("label", "context"), "text"),
    **dict.fromkeys(("distance", "closeness"), "numbers"),
}


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A memory entry that a token retrieved.

    Args:
        from_stream: whether it was read in the stream, or else in the training text.
        place: of its label in that text, tokens from 0.
        label: the word that followed its state.
        distance: squared L2 to the query.
        closeness: c_k of MbPA, 1 / (eps + distance), scaled as the run scaled it.
        context: the words before the label.
    """

    from_stream: bool
    place: int
    label: str
    distance: float
    closeness: float
    context: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run that was logged token by token.

    Args:
        result: the numbers.
        losses: of every token under every method.
        neighbors: by position in the stream, nearest first; empty where they were not logged.
    """

    result: Result
    losses: TokenLosses
    neighbors: dict[int, tuple[Neighbor, ...]]

    @classmethod
    def load(cls, folder: Path) -> Inspection:
        """Read the folder of a run.

        Raises:
            UserError: a file is missing or unreadable, or they are not of one run.
        """
        result = Result.load(folder)
        losses = TokenLosses.load(folder / tokens.FILE_NAME, result)
        tokens.check_same_run(result, losses)
        return cls(result, losses, load_neighbors(folder / NEIGHBORS_FILE, losses.words.size, result))

    def methods(self) -> list[str]:
        """Return the methods that can be held against the base.

        Raises:
            UserError: the base or any other method is missing.
        """
        others = [method for method in ordered(self.result.methods) if method != BASE]
        if BASE not in self.result.methods or not others:
            found = ",".join(self.result.methods)
            raise UserError(f"the run has {found}; evaluate {BASE} and a method to hold against it")
        return others

    def choose(self, method: str | None) -> str:
        """Return the method that is looked at: the one asked for, or the best.

        Raises:
            UserError: it was not evaluated.
        """
        others = self.methods()
        if method is None:
            return min(others, key=lambda name: self.result.methods[name].nll)
        if method not in others:
            raise unknown("method", method, others, f"choose from those that were evaluated: {', '.join(others)}")
        return method

    def gain(self, method: str) -> NDArray[np.float64]:
        """Return by how many nats (T,) a method lies below the base; 0 where both losses are infinite."""
        base, other = self.losses.nll[BASE], self.losses.nll[method]
        both = np.isinf(base) & np.isinf(other)
        return np.where(both, 0.0, np.where(both, 0.0, base) - np.where(both, 0.0, other))


def load_neighbors(path: Path, total: int, result: Result | None = None) -> dict[int, tuple[Neighbor, ...]]:
    """Read the file that ``hebblm-eval --log-neighbors`` wrote; without the file there are no neighbours.

    Args:
        path: of the file.
        total: tokens of the stream.
        result: of the same run, whose hash of the file is compared.

    Raises:
        UserError: it is unreadable, was changed, lacks a column, or is of another run.
    """
    if not path.exists() and not path.is_symlink() and (result is None or recorded(path, result) is None):
        return {}
    table = read_table(path, _KINDS, result)
    found: dict[int, list[Neighbor]] = {}
    order = table.sort_by([("position", "ascending"), ("rank", "ascending")])
    for row in order.select([name for name in _KINDS if name != "rank"]).to_pylist():
        found.setdefault(row.pop("position"), []).append(Neighbor(**row))
    if found and not 0 <= min(found) <= max(found) < total:
        raise UserError(f"{path} has position {max(found)}, the stream {total} tokens; they must be of one run")
    return {position: tuple(near) for position, near in found.items()}
