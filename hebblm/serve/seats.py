"""The seats over one state of a memory, for questions that come at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from hebblm.reader.seat import Seat
from hebblm.reader.session import ReaderSession


class Seats:
    """The seats over one state of a memory.

    Args:
        session: of that state; each seat has a copy.
        most: seats that are kept when nobody asks.
    """

    def __init__(self, session: ReaderSession, most: int = 4) -> None:
        self.session = session
        self._most, self._lock = most, Lock()
        self._free: list[Seat] = []  # the one used last at the end

    @contextmanager
    def take(self, ids: Sequence[int], *, begins: bool = True) -> Iterator[Seat]:
        """Give the seat whose text shares the most with some tokens; nobody else has it in the
        block.
        """
        with self._lock:
            seat = None
            if self._free:
                seat = max(self._free, key=lambda one: one.shared(ids, begins=begins))
                if not seat.shared(ids, begins=begins) and len(self._free) < self._most:
                    seat = None
                else:
                    self._free.remove(seat)
        if seat is None:
            seat = Seat(self.session.another())
        try:
            yield seat
        finally:
            with self._lock:
                self._free = [*self._free, seat][-self._most :]
