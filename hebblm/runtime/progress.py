"""Progress bars of one look: description, share done, time taken, time left; on standard error."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from hebblm.runtime.ranks import leads
from hebblm.runtime.wording import worded

T = TypeVar("T")
QUIET = 60.0  # seconds between two lines of a log
BRIEF = 1.0  # seconds of passing work, whose bar disappears with its end
MIN_BAR_WIDTH, MAX_BAR_WIDTH = 6, 40  # of a bar itself
_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
# columns for a description and the numbers, before a bar may be longer than the shortest
NUMBERS = 83


class Description(ProgressColumn):
    """Description on one line: the only part of a bar that is cut if the terminal is too narrow."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class Done(MofNCompleteColumn):
    """Units done, of how many where that is known."""

    def render(self, task: Task) -> Text:
        return (
            Text(f"{task.completed:.0f}", "progress.download")
            if task.total is None
            else super().render(task)
        )


class Left(TimeRemainingColumn):
    """What follows the time elapsed: the time left, where the number of units is known."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("elapsed")
        return Text.assemble("elapsed, ", super().render(task), " left")


class Display(Progress):
    """A bar that writes a line from time to time if it cannot be drawn, so that a log shows how far
    the work is.
    """

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        # when a task was added, and how far it was
        self._begins: dict[TaskID, tuple[float, float]] = {}
        # when it first advanced, and how far it was then
        self._firsts: dict[TaskID, tuple[float, float]] = {}
        self._written = time.monotonic()
        self.passing = False

    def add_task(self, *args: Any, **options: Any) -> TaskID:
        task = super().add_task(*args, **options)
        self._begins[task] = (time.monotonic(), self._tasks[task].completed)
        return task

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._log(task_id)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._log(task_id)

    def start(self) -> None:
        _OPEN.add(self)
        super().start()

    def stop(self) -> None:
        """Stop as rich does; passing work that took no time leaves no bar."""
        _OPEN.discard(self)
        now = time.monotonic()
        for task_id, (begin, _) in self._begins.items():
            self._tasks[task_id].visible &= not self.passing or now - begin >= BRIEF
        if any(task.visible for task in self.tasks):
            super().stop()
        else:
            self.live.transient = True  # leaves no empty line either
            self.live.stop()

    def _log(self, task_id: TaskID) -> None:
        """Write how far a task is, unless a bar shows it or the last line is recent."""
        now, task = time.monotonic(), self._tasks[task_id]
        start, done = self._begins[task_id]
        if task.completed > done:
            self._firsts.setdefault(task_id, (now, task.completed))
        if (
            self.disable
            or self.console.is_terminal
            or not task.visible
            or task.finished
            or now - self._written < QUIET
        ):
            return
        self._written = now
        words = f"{task.description}: {task.completed:,.0f}"
        if task.total is not None:
            words += f" of {task.total:,.0f}"
        words += f" {task.fields.get('unit', '')}, {duration(now - start)} elapsed"
        if task.total is not None and task.completed > done:
            # If there are several steps, the first does not count for the pace: an earlier run may
            # have done it.
            first, after = self._firsts[task_id]
            if task.completed > after:
                start, done = first, after
            pace = (now - start) / (task.completed - done)
            words += f", {duration(pace * (task.total - task.completed))} left"
        self.console.print(words, soft_wrap=True, highlight=False, markup=False)


_OPEN: set[Display] = set()  # displays of this process that have begun and not ended


@contextmanager
def silence() -> Iterator[None]:
    """Print nothing in the block: it repeats work that has printed its lines before."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def progress_enabled() -> bool:
    """Return whether this process reports progress: only the first of several, and none if
    ``HEBBLM_QUIET`` is 1.
    """
    return leads() and os.environ.get("HEBBLM_QUIET") != "1"


def log(line: str) -> None:
    """Print a line next to the bars, on standard error; the first process prints a warning even if
    it is quiet.
    """
    if not _SILENT.get() and (progress_enabled() or (leads() and line.startswith("warning:"))):
        write(worded(line), Console(stderr=True))


@lru_cache(maxsize=1_000)
def log_once(line: str) -> None:
    """Print a line only once, however often its cause occurs; see :func:`say`."""
    log(line)


def write(line: str, console: Console) -> None:
    """Print a line as it is; a narrow terminal (or ``$COLUMNS``) breaks it between words."""
    if console.is_terminal or "COLUMNS" in os.environ:
        line = "\n".join(_wrapped(part, console.width) for part in line.split("\n"))
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def _wrapped(line: str, width: int) -> str:
    """Wrap a line and indent the lines after the first; text without a space, such as a path, stays
    whole.
    """
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def bar(*, passing: bool = False) -> Display:
    """Return a progress display, which is a context manager; only the first of several processes
    shows it.

    With ``passing`` work, no bar stays if it took less than a second.
    """
    console = Console(stderr=True, quiet=not progress_enabled())

    def whole() -> Column:
        return Column(no_wrap=True)

    display = Display(
        Description(),
        BarColumn(
            min(MAX_BAR_WIDTH, max(MIN_BAR_WIDTH, console.width - NUMBERS)), table_column=whole()
        ),
        Done(table_column=whole()),
        TextColumn("{task.fields[unit]}", table_column=whole()),
        TimeElapsedColumn(table_column=whole()),
        Left(table_column=whole()),
        console=console,
        transient=False,
        disable=not progress_enabled(),
    )
    display.passing = passing
    return display


@contextmanager
def passing_bar(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show passing work that nobody asked to follow: yield a function of (done, total) that moves
    its bar.

    There is a bar only on a terminal; none in a block of silence, and none within work that shows
    one already.
    """
    if _SILENT.get() or _OPEN or not progress_enabled() or not Console(stderr=True).is_terminal:
        yield lambda done, total: None
        return
    with bar(passing=True) as display:
        task = display.add_task(description, total=None, unit=unit)
        yield lambda done, total: display.update(task, completed=done, total=total)


def duration(seconds: float) -> str:
    """Return a length of time in the largest unit that it holds at least twice."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def track(
    iterable: Iterable[T],
    description: str,
    total: int | None,
    unit: str = "steps",
    announce: Callable[[float], None] | None = None,
) -> Iterator[T]:
    """Yield from ``iterable`` while a bar shows how far it is and how long it will take."""
    with bar() as progress:
        task = progress.add_task(description, total=total, unit=unit)
        began = time.monotonic()
        for item in iterable:
            yield item
            if announce is not None and total is not None:
                announce(total * (time.monotonic() - began))
                announce = None
            progress.advance(task)
