"""Progress bars of an experiment, one a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hebblm.progress import bar


@contextmanager
def stage(description: str, total: int, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and yield what advances it.

    Args:
        description: what is being done.
        total: pictures that there are.
        done: how many an interrupted run had finished; left out, because they say nothing about the speed.
    """
    with bar() as progress:
        task = progress.add_task(description, total=total - done, unit="pictures")
        yield lambda count: progress.advance(task, count)
