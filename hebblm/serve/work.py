"""Work that is done in threads for requests: bounded in number and time, and ended when a client
goes away.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from starlette.requests import Request

from hebblm.serve.answers import GoneError
from hebblm.serve.config import Limits
from hebblm.serve.errors import ApiError

T = TypeVar("T")
THREADS = 8
LOOK = 0.25  # seconds between two looks whether a client is still there
AHEAD = 256  # steps that a stream may be ahead of its client


class Workers:
    """Threads that answer requests.

    Args:
        limits: of their number and time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="answer")
        self._stopping = threading.Event()
        self.waiting = 0

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Count a request, and refuse one too many."""
        if self.waiting >= self._limits.waiting:
            raise ApiError(429, "too many requests wait; send it later", code="busy")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def run(self, request: Request, work: Callable[[threading.Event], T]) -> T:
        """Do a piece of work, which stops when its event is set, and return its result.

        Raises:
            ApiError: too many requests wait, or it takes too long.
        """
        gone = threading.Event()
        with self._place():
            future = asyncio.get_running_loop().run_in_executor(self._threads, work, gone)
            end = asyncio.get_running_loop().time() + self._limits.seconds
            late = False
            while not future.done():
                await asyncio.wait({future}, timeout=LOOK)
                late = asyncio.get_running_loop().time() > end
                if late or self._stopping.is_set() or await request.is_disconnected():
                    gone.set()
            try:
                return future.result()
            except GoneError as error:
                if late:
                    raise ApiError(
                        504, f"the answer takes more than {self._limits.seconds:g} s"
                    ) from error
                raise ApiError(503, "the server ends, or the client is gone") from error

    async def stream(self, steps: Callable[[threading.Event], Iterator[T]]) -> AsyncIterator[T]:
        """Yield the steps of a piece of work as they come; it stops when nobody takes them.

        Raises:
            ApiError: it takes too long, or the server ends.
        """
        loop = asyncio.get_running_loop()
        with self._place():
            steps_of = _Steps(loop, steps)
            future = loop.run_in_executor(self._threads, steps_of.work)
            end = loop.time() + self._limits.seconds
            try:
                while True:
                    try:
                        step = await asyncio.wait_for(steps_of.found.get(), LOOK)
                    except TimeoutError:
                        if loop.time() > end or self._stopping.is_set():
                            steps_of.gone.set()
                        continue
                    if isinstance(step, _End):
                        step.check()
                        return
                    steps_of.room.release()
                    yield step
            finally:
                steps_of.gone.set()
                await asyncio.shield(future)

    def stop(self) -> None:
        """End all work that goes on."""
        self._stopping.set()

    def close(self) -> None:
        self.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)


class _End:
    """The end of some steps.

    Args:
        error: that ended them, None if they were finished.
    """

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def check(self) -> None:
        if isinstance(self._error, GoneError):
            raise ApiError(503, "the answer was not finished") from self._error
        if self._error is not None:
            raise self._error


class _Steps(Generic[T]):
    """Steps that a thread makes and a coroutine takes.

    Args:
        loop: of the coroutine.
        steps: makes them until its event is set.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, steps: Callable[[threading.Event], Iterator[T]]
    ) -> None:
        self._loop, self._steps = loop, steps
        self.gone = threading.Event()
        self.found: asyncio.Queue[T | _End] = asyncio.Queue()
        self.room = threading.Semaphore(AHEAD)

    def work(self) -> None:
        """Make all steps; runs in the thread."""
        error: BaseException | None = None
        try:
            for step in self._steps(self.gone):
                while not self.room.acquire(timeout=LOOK):
                    if self.gone.is_set():
                        raise GoneError
                self._put(step)
        except BaseException as ended:  # it is raised where the steps are taken
            error = ended
        self._put(_End(error))

    def _put(self, step: T | _End) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.found.put_nowait, step)
