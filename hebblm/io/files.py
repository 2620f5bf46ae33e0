"""Files that are either whole or absent: atomic writes, hashes, JSON."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, TypeVar

import msgspec

from hebblm.errors import UserError, unreadable, unwritable

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
"""A whole number that counts something."""

CHECKSUM = "document_sha256"
"""The key of a JSON object's hash of all its other keys."""

_UMASK = Lock()
_LONGEST = 1 << 26  # bytes of a JSON file
_FORMER = ".former"  # suffix of a folder that a new one replaces
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


@contextlib.contextmanager
def atomic_path(path: Path, *, directory: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that takes its place only if the block succeeds.

    It is the name of a file to write or, with ``directory``, a new folder.
    """
    temporary: Path | None = None
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        prefix = f".{path.name}.{_HOST}-{os.getpid()}."
        if directory:
            temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
        else:
            handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
            os.close(handle)
            temporary = Path(name)
        # mkstemp gives 0600; a result should be as readable as any other new file.
        temporary.chmod((0o777 if directory else 0o666) & ~umask())
        yield temporary
        _take_place(temporary, path, directory=directory)
    except OSError as error:
        _remove(temporary)
        if (
            error.filename2 is None
            and error.filename is not None
            and not _concerns(error.filename, path, temporary)
        ):
            raise
        raise unwritable(path, error) from error
    except BaseException:  # Ctrl-C too leaves no temporary file
        _remove(temporary)
        raise


def _take_place(temporary: Path, path: Path, *, directory: bool) -> None:
    """Rename to ``path``; a folder that is there moves away for it, and comes back if that
    fails.
    """
    former = temporary.with_name(f"{temporary.name}{_FORMER}")
    try:
        if directory and path.is_dir():
            os.replace(path, former)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too brings the former folder back
        if former.exists() and not path.exists():
            os.replace(former, path)
        raise
    _remove(former)


def recover(path: Path) -> None:
    """Put back a folder that a killed process moved away to make place for a new one."""
    with contextlib.suppress(OSError):  # a process that may not write there has left nothing
        _sweep(path)


def check_own(folder: Path, expected: Collection[str]) -> None:
    """Refuse to replace a folder that holds files other than those written there."""
    if not folder.is_dir():
        return
    others = sorted(path.name for path in folder.iterdir() if path.name not in expected)
    if others:
        raise UserError(
            f"{folder} holds other files ({others[0]}), which would be overwritten; choose another "
            "folder"
        )


def umask() -> int:
    """Return the permissions that new files of this process do not get."""
    with _UMASK:  # it can only be read by setting it
        mask = os.umask(0)
        os.umask(mask)
    return mask


def _concerns(filename: object, path: Path, temporary: Path | None) -> bool:
    """Return whether an OSError that names ``filename`` is about the place being written."""
    if not isinstance(filename, (str, bytes, os.PathLike)):
        return False
    named = Path(os.fsdecode(filename))
    if named in (path, temporary) or named in path.parents:
        return True
    return named.parent in (path, path.parent)


def _sweep(path: Path) -> None:
    """Delete the files that killed processes of this machine left next to ``path``.

    A process that was killed between its two renames left the only whole folder, which is moved
    back.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.{_HOST}-*"):
        number = left.name.removeprefix(f".{path.name}.{_HOST}-").partition(".")[0]
        if (
            number.isdecimal()
            and not Path("/proc", number).exists()
            and Path("/proc/self").exists()
        ):
            if left.name.endswith(_FORMER) and not path.exists():
                os.replace(left, path)
            else:
                _remove(left)


def _remove(path: Path | None) -> None:
    if path is None:
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return path


def write_json(path: Path, value: Any, *, seal: bool = False) -> None:
    """Write ``value`` as indented JSON, atomically; a nan or infinity is refused rather than
    written.

    ``seal`` adds to an object the hash of its content, which :func:`read_json` compares.
    """
    if seal:
        value = sealed(value)
    data = (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
    if len(data) > _LONGEST:
        raise UserError(
            f"{path} would have {len(data):,} bytes, more than the {_LONGEST:,} that can be read; "
            "leave some of it out"
        )
    write_bytes(path, data)


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, CHECKSUM: _checksum_of(value)}


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; an object's seal is checked and left out."""
    try:
        value = json.loads(read_bytes(path, _LONGEST).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not valid JSON ({error}); restore or recreate it") from error
    if isinstance(value, dict) and CHECKSUM in value and value.pop(CHECKSUM) != _checksum_of(value):
        raise UserError(f"{path} was changed since it was written; restore or recreate it")
    return value


def read_record(kind: type[T], path: Path, remedy: str, *schemas: str) -> T:
    """Read a JSON file of one of some schemas, or of any if none is given, as a dataclass, a
    msgspec struct or another type that msgspec knows.
    """
    value = read_json(path)
    own_schema = value.get("schema") if isinstance(value, dict) else None
    if schemas and own_schema not in schemas:
        raise UserError(f"{path} is not of schema {schemas[0]} but {own_schema!r:.60}; {remedy}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path} does not fit ({error}); {remedy}") from error


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of a plain file; pipes and devices may never end and are refused."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} {lack(path)}; name a file")
        if status.st_size > most:
            raise UserError(
                f"{path} has {status.st_size:,} bytes, more than {most:,}; name another file"
            )
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def lack(path: Path) -> str:
    """Return in words why a path is not a file."""
    if path.is_dir():
        return "is a folder"
    return "is not a plain file" if os.path.lexists(path) else "does not exist"


def _checksum_of(value: dict[str, Any]) -> str:
    """Return the hash of a JSON object, whatever the order of its keys."""
    plain = json.loads(json.dumps(value))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_of(value: Any) -> str:
    """Return a short hash of a JSON value, for the names of cache entries."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def hash_of_code(*sources: Path) -> str:
    """Return the hash of Python files or folders of them; a commit does not show changes of the
    checkout.
    """
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*.py")) or [source]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check_writable(folder: Path) -> None:
    """Try to write to ``folder``, so that a long run does not fail at its end.

    A folder that this creates is removed again.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
