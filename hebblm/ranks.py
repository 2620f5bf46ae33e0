"""The processes of one command: which of them this one is, what is its part, and what they tell each other.

``torchrun`` starts the same command several times; each process finds its rank in the environment. A process that is
alone tells nobody anything: every function here then returns what it was given.
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
LOOK = 1.0  # seconds between two looks at whether whoever started this rank is there
PATIENCE = timedelta(days=30)  # for others at work: a rank that dies breaks its connections, and is not waited for


class LostRankError(RuntimeError):
    """Another rank is gone: it was killed, or ended with an error of its own, which it has told."""


def rank() -> int:
    """Number of this process among those of its command, from 0."""
    return _number("RANK") if size() > 1 else 0


def size() -> int:
    """P, how many processes run this command."""
    started = all(name in os.environ for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return max(1, _number("WORLD_SIZE")) if started else 1


def leads() -> bool:
    """Whether this is the process that logs, draws bars and writes results."""
    return rank() == 0


def partition(count: int, part: int, parts: int) -> range:
    """Which of ``count`` things in a row are those of one of several parts: as many as any other's, or one less.

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
    """The ranks of a command, as one of them sees them; every method is called by all, in the same order."""

    rank: int = 0
    size: int = 1  # P
    backend: str | None = None  # gloo or nccl, None for a process that is alone
    traffic: Traffic = field(default_factory=Traffic)  # counted while they exchange

    @property
    def leads(self) -> bool:
        """Whether this is the first rank, which writes results."""
        return self.rank == 0

    def partition(self, count: int) -> range:
        """Which of ``count`` things in a row are this rank's; see :func:`partition`."""
        return partition(count, self.rank, self.size)

    def tasks(self, count: int) -> range:
        """Which of ``count`` tasks are this rank's: every P-th one, as earlier ones often take longer."""
        return range(self.rank, count, self.size)

    def exchange(self, rows: Tensor, counts: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Give each rank some of the rows (N, ...), and take what each has for this one.

        The rows for the first rank come first, then those for the second, ``counts`` of them, and so on; what comes
        back, (M, ...) and how many rows by rank, has the same order.
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
            self.traffic.sent += raw.shape[1] * (len(rows) - counts[self.rank]) + 8 * (self.size - 1)
        return _whole(received, rows), arriving

    def all_gather_rows(self, rows: Tensor) -> list[Tensor]:
        """Rows (N, ...) of every rank, by rank; N may differ."""
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
        """On the first rank the rows of all (N, ...), its own first; on others none."""
        return self.exchange(rows, [len(rows), *[0] * (self.size - 1)])[0]

    def all_gather(self, rows: Tensor) -> Tensor:
        """Rows of all ranks (N, ...), those of the first one first."""
        gathered = self.all_gather_rows(rows)
        if len(gathered) == 1:
            return gathered[0]
        import torch

        return torch.cat(gathered)

    def all_gather_object(self, value: T) -> list[T]:
        """What every rank has to say, by rank: values as JSON has them."""
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
        """Let the first rank do what is inside, and then the others, which find what it has kept."""
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Tell what it means that an exchange of torch's own fails inside."""
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
        """Rows (N, ...) as bytes (N, bytes): every backend takes these."""
        import torch

        flat = rows.detach().to(self._place()).reshape(len(rows), rows.shape[1:].numel()).contiguous()
        return flat.view(torch.uint8)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count an exchange, and tell what it means that it fails."""
        started = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(_lost()) from error
        self.traffic.seconds += time.perf_counter() - started


ALONE = Ranks()
_current = ALONE


def current() -> Ranks:
    """Ranks of the command, those that :func:`opened` has connected."""
    return _current


@contextlib.contextmanager
def opened(device: str = "cpu") -> Iterator[Ranks]:
    """Connect the ranks while the block computes; a process that is alone connects nothing and imports no torch.

    Tensors go through nccl where every process of a machine has a GPU of its own, else through gloo.
    """
    global _current
    if size() == 1:
        yield ALONE
        return
    if ":" in device:
        raise UserError(f"device = {device}: each of {size()} processes takes a GPU of its own; leave the number out")
    _end_with_parent()
    import torch
    from torch import distributed
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    here = _number("LOCAL_WORLD_SIZE") or size()
    if here == size() and _is_local(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "gloo"
    if device != "cpu" and torch.cuda.is_available():
        torch.cuda.set_device(_number("LOCAL_RANK") % torch.cuda.device_count())
        backend = "nccl" if here <= torch.cuda.device_count() and distributed.is_nccl_available() else "gloo"
    try:
        store, *_ = next(rendezvous("env://", rank(), size()))
        # Processes that torchrun starts again find what those before them have left in its store.
        prefixed = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        distributed.init_process_group(backend, store=prefixed, rank=rank(), world_size=size(), timeout=PATIENCE)
    except RuntimeError as error:
        raise LostRankError(_lost()) from error
    _current = Ranks(rank(), size(), backend)
    try:
        yield _current
        _current.wait()  # whoever leaves first would break the others' connections
    finally:
        _current = ALONE
        distributed.destroy_process_group()


def end_rank(status: int) -> NoReturn:
    """End this process, all of whose files are closed, at once.

    A thread of gloo may still hold tensors of the last exchange, whatever becomes of the process group; if it lets go
    of them while the interpreter ends, the process is aborted.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, full, closed
            stream.flush()
    os._exit(status)


def _end_with_parent() -> None:
    """End this process soon after the one that started it, which was killed if it did not end this one itself."""
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
    """Bytes (N, bytes) as rows (N, ...) of the kind and place of others."""
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
