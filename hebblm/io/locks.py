"""Locks between processes: if two commands write to one place, the first makes the files and the
second uses them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from hebblm.errors import UserError, unwritable
from hebblm.io.files import umask
from hebblm.runtime.progress import log

_HELD: set[tuple[Path, int]] = set()  # places of this process, each by a thread


@contextlib.contextmanager
def file_lock(path: Path, what: str, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Lock a place while the block writes there; other processes wait until this one ends or dies.

    The system releases the lock of a killed process. Its file next to ``path`` stays, and the next
    process takes it over. Folders created for the file are removed again if they are empty. Yields
    whether another process had the place first: it may have written what this one needs. Without
    ``wait`` that is an error. With ``again`` the same thread may hold the lock already.
    """
    from filelock import FileLock, Timeout  # waits are rare, and the import takes a while

    lock_path = _lock_path(path)
    key = (lock_path, threading.get_ident())
    if again and key in _HELD:
        yield False
        return
    missing = [folder for folder in lock_path.parents if not folder.exists()]
    try:
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        lock_path.touch()  # without permission FileLock would wait as it does for a process
        lock = FileLock(lock_path, mode=0o666 & ~umask())
        waited = False
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            busy = f"{_holder(lock_path)} is at work on {what} ({path})"
            if not wait:
                raise UserError(f"{busy}; wait until it ends, or choose another folder") from error
            waited = True
            log(f"{busy}: waiting until it ends")
            lock.acquire()
        lock_path.write_text(f"{Path(sys.argv[0]).name} (process {os.getpid()})", encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
    _HELD.add(key)
    try:
        yield waited
    finally:
        _HELD.discard(key)
        # A process that waits for a file that is gone makes another one.
        with contextlib.suppress(OSError):
            lock_path.unlink()
        lock.release()
        with contextlib.suppress(OSError):  # folders with files stay
            for folder in missing:
                folder.rmdir()


def remove_left(path: Path) -> None:
    """Remove the lock of a process that was killed after it had written everything."""
    if _lock_path(path).exists():
        with contextlib.suppress(UserError), file_lock(path, "", wait=False):
            pass


def _lock_path(path: Path) -> Path:
    path = path.absolute()  # the present folder, ".", has no name
    return path.with_name(f".{path.name}.lock")


def _holder(lock_path: Path) -> str:
    try:
        return lock_path.read_text(encoding="utf-8")[:200] or "another process"
    except (OSError, ValueError):
        return "another process"
