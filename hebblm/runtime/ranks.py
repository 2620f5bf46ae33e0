"""The processes of one command: the rank of this one, its part of the work, and what they exchange.

``torchrun`` starts the same command several times; each process finds its rank in the environment.
A process that is alone exchanges nothing: every function here then returns its argument.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hebblm.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
LOOK = 1.0  # seconds between two checks that the process that started this rank is alive
# to wait for busy ranks; a rank that dies breaks its connections, which ends the wait
PATIENCE = timedelta(days=30)


class LostRankError(RuntimeError):
    """Another rank is gone: it was killed, or ended with an error, which it has printed."""


def rank() -> int:
    """Return the number of this process among those of its command, from 0."""
    return _number("RANK") if size() > 1 else 0


def size() -> int:
    """Return P, the number of processes that run this command."""
    started = all(name in os.environ for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return max(1, _number("WORLD_SIZE")) if started else 1


def leads() -> bool:
    """Return whether this is the process that logs, draws bars and writes results."""
    return rank() == 0


def partition(count: int, part: int, parts: int) -> range:
    """Return the items of one of several equal parts of ``count`` items in a row; some parts have
    one item less.

    The longer parts come first.
    """
    least, longer = divmod(count, parts)
    begin = part * least + min(part, longer)
    return range(begin, begin + least + (part < longer))


@dataclass(slots=True)
class Traffic:
    """Bytes and time of what this rank sent."""

    sent: int = 0  # bytes, to other ranks
    seconds: float = 0.0  # in exchanges, waiting for other ranks included


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a command, as one of them sees them; all ranks call every method, in the same
    order.
    """

    rank: int = 0
    size: int = 1  # P
    backend: str | None = None  # gloo or nccl, None for a process that is alone
    traffic: Traffic = field(default_factory=Traffic)  # counted while they exchange

    @property
    def leads(self) -> bool:
        """Whether this is the first rank, which writes results."""
        return self.rank == 0

    def partition(self, count: int) -> range:
        """Return this rank's part of ``count`` items in a row; see :func:`partition`."""
        return partition(count, self.rank, self.size)

    def tasks(self, count: int) -> range:
        """Return this rank's tasks among ``count``: every P-th one, because earlier ones often take
        longer.
        """
        return range(self.rank, count, self.size)

    def exchange(self, rows: Tensor, counts: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Send each rank some of the rows (N, ...), and receive the rows that each has for this
        one.

        ``counts`` of the rows go to each rank, those for the first rank first. The received rows
        (M, ...), and their counts by rank, have the same order.
        """
        if self.size == 1:
            return rows, list(counts)
        import torch

        with self._counted():
            given = torch.tensor(list(counts), device=self._place())
            taken = torch.empty_like(given)
            torch.distributed.all_to_all_single(taken, given)
            arriving: list[int] = taken.tolist()
            raw = self._raw(rows)  # (N, bytes)
            received = raw.new_empty(sum(arriving), raw.shape[1])
            torch.distributed.all_to_all_single(received, raw, arriving, list(counts))
            self.traffic.sent += raw.shape[1] * (len(rows) - counts[self.rank]) + 8 * (
                self.size - 1
            )
        return _whole(received, rows), arriving

    def all_gather_rows(self, rows: Tensor) -> list[Tensor]:
        """Return the rows (N, ...) of every rank, by rank; N may differ."""
        if self.size == 1:
            return [rows]
        import torch

        with self._counted():
            count = torch.tensor([len(rows)], device=self._place())
            counts = [torch.empty_like(count) for _ in range(self.size)]
            torch.distributed.all_gather(counts, count)
            lengths = [int(length) for length in counts]
            raw = self._raw(rows)  # (N, bytes)
            padded = raw.new_zeros(max(lengths), raw.shape[1])
            padded[: len(raw)] = raw
            gathered = [torch.empty_like(padded) for _ in range(self.size)]
            torch.distributed.all_gather(gathered, padded)
            self.traffic.sent += (padded.numel() + 8) * (self.size - 1)
        return [_whole(raw[:length], rows) for raw, length in zip(gathered, lengths, strict=True)]

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks (N, ...) on the first rank, its own first, and no rows on
        the others.
        """
        return self.exchange(rows, [len(rows), *[0] * (self.size - 1)])[0]

    def all_gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks (N, ...), those of the first one first."""
        gathered = self.all_gather_rows(rows)
        if len(gathered) == 1:
            return gathered[0]
        import torch

        return torch.cat(gathered)

    def all_gather_object(self, value: T) -> list[T]:
        """Return a JSON value of every rank, by rank."""
        if self.size == 1:
            return [value]
        import torch

        words = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        return [json.loads(encoded.numpy().tobytes()) for encoded in self.all_gather_rows(words)]

    def wait(self) -> None:
        """Wait until every rank is here, however long that takes."""
        self.all_gather_object(None)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Run the block on the first rank, and then on the others, which find the files it has
        written.
        """
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Raise LostRankError if an exchange of torch's own fails in the block because another rank
        is gone.
        """
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_broken(error):
                raise
            raise LostRankError(_lost()) from error

    def _place(self) -> torch.device:
        import torch

        return torch.device("cuda" if self.backend == "nccl" else "cpu")

    def _raw(self, rows: Tensor) -> Tensor:
        """Return rows (N, ...) as bytes (N, bytes), which every backend takes."""
        import torch

        flat = (
            rows.detach().to(self._place()).reshape(len(rows), rows.shape[1:].numel()).contiguous()
        )
        return flat.view(torch.uint8)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count an exchange, and raise LostRankError if it fails."""
        started = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(_lost()) from error
        self.traffic.seconds += time.perf_counter() - started


ALONE = Ranks()
_current = ALONE


def current() -> Ranks:
    """Return the ranks that :func:`opened` has connected."""
    return _current


@contextlib.contextmanager
def opened(device: str = "cpu") -> Iterator[Ranks]:
    """Connect the ranks while the block computes; a process that is alone connects nothing and
    imports no torch.

    Tensors go through nccl if every process of a machine has its own GPU, else through gloo.
    """
    global _current
    if size() == 1:
        yield ALONE
        return
    if ":" in device:
        raise UserError(
            f"device = {device}: each of {size()} processes takes its own GPU; leave the number out"
        )
    _end_with_parent()
    import torch
    from torch import distributed
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    local = _number("LOCAL_WORLD_SIZE") or size()
    if local == size() and _is_local(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "gloo"
    if device != "cpu" and torch.cuda.is_available():
        torch.cuda.set_device(_number("LOCAL_RANK") % torch.cuda.device_count())
        backend = (
            "nccl"
            if local <= torch.cuda.device_count() and distributed.is_nccl_available()
            else "gloo"
        )
    try:
        store, *_ = next(rendezvous("env://", rank(), size()))
        # Processes that torchrun starts again find the entries of the former ones in its store.
        prefixed = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        distributed.init_process_group(
            backend, store=prefixed, rank=rank(), world_size=size(), timeout=PATIENCE
        )
    except RuntimeError as error:
        raise LostRankError(_lost()) from error
    _current = Ranks(rank(), size(), backend)
    try:
        yield _current
        _current.wait()  # the first rank to leave would break the others' connections
    finally:
        _current = ALONE
        distributed.destroy_process_group()


def end_rank(status: int) -> NoReturn:
    """End this process at once; its files are closed.

    A thread of gloo may still hold tensors of the last exchange, even without a process group. If
    it releases them while the interpreter ends, the process is aborted.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, full, closed
            stream.flush()
    os._exit(status)


def _end_with_parent() -> None:
    """End this process soon after its parent; a parent that was killed could not end it."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _lost() -> str:
    return f"rank {rank()} of {size()} lost the others: one was killed or failed"


def _is_broken(error: RuntimeError) -> bool:
    import torch

    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


def _whole(raw: Tensor, like: Tensor) -> Tensor:
    """Return bytes (N, bytes) as rows (N, ...) with the dtype and device of other rows."""
    if not raw.numel():
        return like.new_empty(len(raw), *like.shape[1:])
    return raw.contiguous().view(like.dtype).view(len(raw), *like.shape[1:]).to(like.device)


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
