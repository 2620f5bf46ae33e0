"""Choice of the best of many points from their losses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.functional.shares import LearnedShare
from hebblm.errors import UserError, reason
from hebblm.ranks import current
from hebblm.tuning.grid import Point

Losses = npt.NDArray[np.float64]


class LossTable:
    """Losses by token and point, in an unnamed temporary file, as they outgrow memory; only their sums are held.

    Args:
        own: the points whose losses this process computes; the others' stand in the tables of other ranks, in order.
    """

    def __init__(self, own: range) -> None:
        self.own = own
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="hebblm-losses-")  # noqa: SIM115 - lives as long as self
        self._sums = np.zeros(len(own))
        self._tokens = self._told = 0

    def append(self, losses: npt.NDArray[np.float32]) -> None:
        """Add the own points' losses (p, N) of the next tokens, nats.

        Raises:
            UserError: the temporary folder has no space left.
        """
        self._sums += losses.sum(1, dtype=np.float64)
        self._tokens += losses.shape[1]
        try:
            self._file.write(np.ascontiguousarray(losses.T, dtype=np.float32).tobytes())
        except OSError as error:
            raise UserError(
                f"the losses of the grid do not fit in {tempfile.gettempdir()}: {reason(error)}; "
                "point TMPDIR to a larger disk"
            ) from error

    def noted(self) -> dict[str, Tensor]:
        """Return the losses (N, p) that were added since this was asked last, and the sums (p,) of all."""
        new, self._told = self._table()[self._told :].copy(), self._tokens
        return {"losses": torch.from_numpy(new), "sums": torch.from_numpy(self._sums.copy())}

    def restore(self, noted: dict[str, Tensor]) -> None:
        """Take over such losses of an earlier process."""
        self.append(noted["losses"].cpu().numpy().T)
        self._sums = noted["sums"].cpu().numpy()  # in the order in which they were added
        self._told = self._tokens

    def means(self) -> Losses:
        """Return the mean loss (P,) of each point; not finite where one of its losses is not."""
        return _joined(self._sums / max(1, self._tokens))

    def of(self, point: int) -> Losses:
        """Return the losses (T,) of one point."""
        return _joined(self._table()[:, self.own.index(point)].astype(np.float64) if point in self.own else np.zeros(0))

    def _table(self) -> npt.NDArray[np.float32]:
        """Return the losses (T, p) as they lie in the file."""
        self._file.flush()
        shape = self._tokens, len(self._sums)
        return (
            np.memmap(self._file, dtype=np.float32, mode="r", shape=shape)
            if all(shape)
            else np.empty(shape, np.float32)
        )


def _joined(own: Losses) -> Losses:
    """Return the numbers (n,) of all ranks, those of the first one first."""
    joined: Losses = current().joined(torch.from_numpy(own)).numpy()
    return joined


def divided(count: int, compute: Callable[[Sequence[int]], Mapping[int, Losses]]) -> list[Losses]:
    """Return the losses (T,) of some points, each computed by one of the ranks; every rank gets all.

    Args:
        count: of the points.
        compute: returns the losses of those points whose numbers it is given.
    """
    ranks = current()
    own = ranks.tasks(count)
    losses = compute(own)
    if ranks.size == 1 or not count:
        return [losses[index] for index in own]
    tokens = max(ranks.told(max((len(each) for each in losses.values()), default=0)))
    rows = np.stack([losses[index] for index in own]) if len(own) else np.zeros((0, tokens))
    found = [part.numpy() for part in ranks.gather(torch.from_numpy(rows))]  # by rank (n, T)
    return [found[index % ranks.size][index // ranks.size] for index in range(count)]


@dataclass(slots=True)
class Best:
    """The best point of a grid so far.

    Args:
        loss: mean loss, nats.
        values: by dotted name.
        losses: (T,) of that point.
        tried: every point's values and mean loss.
        fixed: values by dotted name that a point must have where it has that name.
    """

    loss: float = float("inf")
    values: Point = field(default_factory=dict)
    losses: Losses = field(default_factory=lambda: np.zeros(0))
    tried: list[Point] = field(default_factory=list)
    fixed: Mapping[str, float | str] = field(default_factory=dict)

    def offer(self, values: Point, losses: Losses) -> None:
        """Take over a point if it is better; a loss that is not finite never is."""
        if self._improves(values, float(losses.mean())):
            self.losses = losses

    def offer_table(self, points: Sequence[Point], table: LossTable) -> None:
        """Take over the best point of a table if it is better; few points' losses are read."""
        for index, (values, mean) in enumerate(zip(points, table.means().tolist(), strict=True)):
            if self._improves(values, mean):
                self.losses = table.of(index)

    def _improves(self, values: Point, mean: float) -> bool:
        """Note a point, and whether it is the best one so far of those that have the fixed values."""
        self.tried.append({**values, "nll": mean if np.isfinite(mean) else float("inf")})
        allowed = all(values.get(name, value) == value for name, value in self.fixed.items())
        if not allowed or not mean < self.loss:
            return False
        self.loss, self.values = mean, values
        return True


def mixed(memory: Losses, base: Losses, weight: float | str, every: int) -> Losses:
    """Return the loss of ``weight`` memory and ``1 - weight`` base from the two losses (T,), nats.

    Args:
        memory: of the memory.
        base: of what it lies over.
        weight: a number, or learned online as a context learns it.
        every: tokens between two updates.
    """
    shares: float | Losses
    if isinstance(weight, str):
        learned = LearnedShare()
        shares = np.empty(len(base))
        for start in range(0, len(base), every):
            now = slice(start, start + every)
            shares[now] = learned.value
            learned = learned.after((base[now] - memory[now]).tolist())
    else:
        shares = weight
    losses: Losses = -np.logaddexp(np.log(shares) - memory, np.log1p(-shares) - base)
    return losses


def with_shares(
    found: Iterable[tuple[Point, Losses]], base: Losses, name: str, shares: Iterable[float | str], every: int
) -> Iterator[tuple[Point, Losses]]:
    """Yield each point once a share ``name`` of its distribution, with the losses (T,) where the base has the rest."""
    for point, losses in found:
        for share in shares:
            yield {**point, name: share}, mixed(losses, base, share, every)
