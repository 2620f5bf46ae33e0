"""One look for every progress bar: description, share done, rate, time left; on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")


def bar() -> Progress:
    """Return a progress display to be used as a context manager."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=False,
    )


def duration(seconds: float) -> str:
    """Return a length of time in the largest unit that gives at least two of it."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def track(iterable: Iterable[T], description: str, total: int | None, unit: str = "steps") -> Iterator[T]:
    """Yield from ``iterable`` while a bar shows how far it is and how long it will take."""
    with bar() as progress:
        task = progress.add_task(description, total=total, unit=unit)
        for item in iterable:
            yield item
            progress.advance(task)
