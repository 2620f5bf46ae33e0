"""Memory split over several processes, which finds the same entries as a single memory, in the same
order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.base import AnyMemory
from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.found import Found
from hebblm.memory.nearest import Ranked
from hebblm.memory.store import Entries, GrowingArray, squared_norms
from hebblm.runtime.ranks import Ranks

LAST = torch.iinfo(torch.int64).max


class ShardedMemory(AnyMemory):
    """The entries of all ranks; each rank keeps its own.

    The initial entries come first, by rank. The entries of each step follow, those of the first
    rank first. So an entry has the place that a single memory would give it, and equal distances
    are ordered alike.

    All ranks search, and :meth:`note` the written labels, the same number of times, even without
    queries.

    Args:
        own: this rank's entries; its index, if it has one, covers these.
        ranks: the ranks of the command.

    Raises:
        TypeError: a memory that forgets.
    """

    kind = "sharded"

    def __init__(self, memory: AnyMemory, ranks: Ranks) -> None:
        if memory.forgets:
            raise UserError(
                f"a memory of kind {memory.kind} forgets, so it is not divided over processes; use "
                "memory_scope=stream or one process"
            )
        self._own = memory
        self.signed_sqrt = memory.signed_sqrt
        self._ranks = ranks
        self._counts = torch.zeros(0, dtype=torch.int64, device=memory.segments()[0].values.device)
        self._base: tuple[Tensor, _Places] | None = None
        self._places = _Places(ranks, self._counts.device)
        self.observe_ranks(
            ranks.all_gather_rows(torch.cat([part.values for part in memory.segments()]))
        )

    @property
    def dim(self) -> int:
        return self._own.dim

    @property
    def dtype(self) -> torch.dtype:
        return self._own.dtype

    def __len__(self) -> int:
        return len(self._places)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries of this rank; they count after :meth:`note`."""
        self._own.add(keys, values, log_normalizers)

    def observe_ranks(self, labels: Sequence[Tensor]) -> None:
        self._places.append([len(rows) for rows in labels])
        written = torch.cat(list(labels)).to(self._counts.device)
        if len(written):
            counts = torch.bincount(written, minlength=len(self._counts))
            self._counts = counts + _widened(self._counts, len(counts))

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        asked = self._ranks.all_gather_rows(queries)  # by rank (N, D)
        sizes = [len(rows) for rows in asked]
        local = self._own.nearest(torch.cat(asked), k)
        answers = _packed(local.distances, self._places.of_own(local.ids))  # (sum N, bytes)
        received, _ = self._ranks.exchange(answers, sizes)  # from each rank N rows
        received = received.view(self._ranks.size, len(queries), answers.shape[1]).transpose(0, 1)
        pair = local.distances[:0], local.ids[:0]
        columns = _unpacked(received.reshape(-1, answers.shape[1]), *pair)
        distances, ids = (rows.view(len(queries), self._ranks.size * k) for rows in columns)
        order = torch.where(ids < 0, LAST, ids).argsort(dim=1)
        distances, ids = distances.gather(1, order), ids.gather(1, order)
        distances, order = distances.sort(dim=1, stable=True)
        return Ranked(distances[:, :k].contiguous(), ids.gather(1, order)[:, :k].contiguous())

    def find(self, queries: Tensor, k: int) -> Found:
        """Return the ``k`` nearest entries of each query (N, D); entries of other ranks are
        fetched, each once.
        """
        ranked = self.nearest(queries, k)
        wanted, place = torch.unique(ranked.ids, return_inverse=True)  # (U,), (N, K)
        if missing := int(len(wanted) > 0 and wanted[0] < 0):
            wanted = wanted[1:]
        keys, values, logs = self._fetched(wanted)
        entries = Entries(
            keys, values, squared_norms(keys), None if bool(logs.isnan().any()) else logs
        )
        # Without an entry the place is -1 again.
        return Found.at([entries], Ranked(ranked.distances, place - missing), queries.device)

    def _fetched(self, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys (U, D), labels (U,) and log-normalisers (U,), nan if missing, of entries at
        places (U,).
        """
        owners, numbers = self._places.owners(wanted)
        order = owners.argsort(stable=True)
        counts = torch.bincount(owners, minlength=self._ranks.size).tolist()
        asked, sizes = self._ranks.exchange(numbers[order], counts)
        nothing = torch.zeros(len(asked), 1, device=wanted.device)
        ranked = Ranked(nothing, asked[:, None])
        fetched = Found.at(self._own.segments(), ranked, wanted.device).neighbors(self.dtype)
        logs = fetched.log_normalizers
        if logs is None:
            logs = torch.full_like(nothing, torch.nan)
        given = fetched.keys[:, 0], fetched.values, logs
        received, _ = self._ranks.exchange(_packed(*given), sizes)
        keys, values, logs = _unpacked(received, *(column[:0] for column in given))
        back = order.argsort()
        return keys[back], values[back, 0], logs[back, 0]

    def segments(self) -> list[Entries]:
        """Return views of this rank's entries, oldest first."""
        return self._own.segments()

    def mark_base(self) -> None:
        self._own.mark_base()
        self._base = self._counts.clone(), copy.deepcopy(self._places)

    def reset(self) -> None:
        self._own.reset()
        if self._base is None:
            self._counts = self._counts[:0]
            self._places = _Places(self._ranks, self._counts.device)
        else:
            self._counts = self._base[0].clone()
            self._places = copy.deepcopy(self._base[1])

    def counts(self, classes: int) -> Tensor:
        return _widened(self._counts, classes).clone()

    def refresh(self) -> TrainedIndex | None:
        return self._own.refresh()

    def describe(self) -> dict[str, object]:
        return {**self._own.describe(), "entries": len(self)}

    def settings(self) -> dict[str, Any]:
        return self._own.settings()


class _Places:
    """Places of every rank's entries in one memory, as runs of entries that one rank wrote
    together.
    """

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self._rank = ranks.rank
        self._size = ranks.size
        self._total = 0
        self._sizes = [0] * self._size  # entries by rank
        # place, rank, number
        self._runs = GrowingArray(torch.empty(0, 3, dtype=torch.int64, device=device))
        # number, place
        self._own = GrowingArray(torch.empty(0, 2, dtype=torch.int64, device=device))

    def __len__(self) -> int:
        return self._total

    def append(self, counts: Sequence[int]) -> None:
        """Add ``sizes`` entries by rank, those of the first rank first."""
        rows = []
        for rank, count in enumerate(counts):
            if count:
                rows.append([self._total, rank, self._sizes[rank]])
                if rank == self._rank:
                    self._own.append(
                        self._own.view().new_tensor([[self._sizes[rank], self._total]])
                    )
                self._total += count
                self._sizes[rank] += count
        if rows:
            self._runs.append(self._runs.view().new_tensor(rows))

    def of_own(self, numbers: Tensor) -> Tensor:
        """Return the places of this rank's entries with some numbers, of any shape; -1 stays."""
        memory = self._own.view()
        if not len(memory):
            return numbers
        first = memory[
            torch.searchsorted(memory[:, 0].contiguous(), numbers.contiguous(), right=True)
            .sub_(1)
            .clamp_min_(0)
        ]
        return torch.where(numbers < 0, numbers, first[..., 1] + numbers - first[..., 0])

    def owners(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return for places (U,) the rank that holds each, and its number there."""
        runs = self._runs.view()
        first = runs[torch.searchsorted(runs[:, 0].contiguous(), places, right=True) - 1]
        return first[:, 1], first[:, 2] + places - first[:, 0]


def _packed(*columns: Tensor) -> Tensor:
    """Pack tensors (N, ...) side by side as bytes (N, bytes)."""
    packed = []
    for column in columns:
        width = column.shape[1:].numel() * column.element_size()
        if column.numel():
            packed.append(column.contiguous().view(torch.uint8).view(len(column), width))
        else:
            packed.append(column.new_empty(len(column), width, dtype=torch.uint8))
    return torch.cat(packed, dim=1)


def _unpacked(rows: Tensor, *like: Tensor) -> list[Tensor]:
    """Unpack tensors (N, ...) of the types of others; the inverse of :func:`_packed`."""
    # A single row would be contiguous in place, at an address that is not aligned.
    widths = [column.shape[1:].numel() * column.element_size() for column in like]
    unpacked = []
    for part, column in zip(torch.split(rows, widths, dim=1), like, strict=True):
        data = part.clone(memory_format=torch.contiguous_format).view(-1)
        unpacked.append(data.view(column.dtype).view(len(rows), *column.shape[1:]))
    return unpacked


def _widened(counts: Tensor, classes: int) -> Tensor:
    """Return counts (n,) with zeros added for at least so many classes."""
    return torch.nn.functional.pad(counts, (0, max(0, classes - len(counts))))
