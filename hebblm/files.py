"""Files that are either whole or absent: atomic writes, hashes, JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hebblm.errors import UserError


@contextlib.contextmanager
def atomic_path(path: Path, *, directory: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that takes its place only if the block succeeds.

    Args:
        path: where the finished file (or, with ``directory``, the finished folder) shall stand.
        directory: yield a new folder instead of the name of a file to be written.

    Raises:
        UserError: the place cannot be written to (no permission, no space left).
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if directory:
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        else:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            temporary = Path(name)
        # mkstemp gives 0600; a result should be as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod((0o777 if directory else 0o666) & ~umask)
        yield temporary
        if directory and path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except OSError as error:
        _remove(temporary)
        if (
            error.filename2 is None
            and error.filename is not None
            and not _concerns(error.filename, path, temporary)
        ):
            raise
        reason = error.strerror or str(error)
        raise UserError(f"cannot write {path}: {reason}; choose a place with space and permission") from error
    except BaseException:
        _remove(temporary)
        raise


def _concerns(filename: object, path: Path, temporary: Path | None) -> bool:
    """Say whether an OSError that names ``filename`` is about the place being written."""
    named = Path(os.fsdecode(filename)) if isinstance(filename, (str, bytes, os.PathLike)) else None
    places = [path, path.parent, *path.parents] + ([temporary] if temporary else [])
    return named is not None and (
        named in places or named.parent in places[:1] or named.parent == path.parent
    )


def _remove(path: Path | None) -> None:
    """Delete a temporary file or folder, if there is one."""
    if path is None:
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, data: bytes) -> Path:
    """Write ``data`` atomically and return its path."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return path


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; a nan or infinity is refused rather than written."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); restore or recreate it") from error


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes as lower-case hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_of(value: Any) -> str:
    """Return a short hash of a JSON value, for the names of cache entries."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def check_writable(folder: Path) -> None:
    """Try to write to ``folder``, so that a long run does not fail at its end; a folder made for that is removed again.

    Raises:
        UserError: it cannot be made or written to.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror}; choose a place with space and permission"
        ) from error
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()
