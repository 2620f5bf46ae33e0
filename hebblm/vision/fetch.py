"""Files of a data set that no folder has: downloaded once, kept only if their hash is right."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from hebblm.errors import UserError
from hebblm.files import atomic_path
from hebblm.progress import bar

MIRROR = "HEBBLM_MIRROR"
CHUNK = 1 << 16
PATIENCE = 30  # seconds for a server to answer


@dataclass(frozen=True, slots=True)
class Remote:
    """A file and where it can be had.

    Args:
        path: below a data folder.
        urls: tried in turn; with ``$HEBBLM_MIRROR`` set, ``path`` below that address alone.
        sha256: of its bytes.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str


def fetch(remote: Remote, folder: Path) -> Path:
    """Download a file into a folder and return its path there.

    Raises:
        UserError: no address answers, the bytes are others, or there is no space.
    """
    target = folder / remote.path
    mirror = os.environ.get(MIRROR)
    failures = []
    for url in (f"{mirror.rstrip('/')}/{remote.path}",) if mirror else remote.urls:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as response:
                _keep(response, remote, target, url)
            return target
        except (_BrokenOffError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            failures.append(f"{url}: {error}")
    raise UserError(
        f"no {target.name} in the data folders, and it cannot be downloaded ({'; '.join(failures)}); put it at "
        f"{remote.path} below a folder named by HEBBLM_DATA"
    )


class _BrokenOffError(Exception):
    """A download that ended too early; no OSError, which would be taken for one of the disk."""


def _keep(response: HTTPResponse, remote: Remote, target: Path, url: str) -> None:
    """Write what a server sends, and keep it if it is what was asked for."""
    length = response.headers.get("Content-Length")
    digest = hashlib.sha256()
    with atomic_path(target) as temporary, temporary.open("wb") as stream, bar() as progress:
        total = int(length) // 1000 if length else None
        task = progress.add_task(f"download {target.name}", total=total, unit="kB")
        while chunk := _read(response):
            stream.write(chunk)
            digest.update(chunk)
            progress.update(task, completed=stream.tell() // 1000)
        if digest.hexdigest() != remote.sha256:
            raise UserError(
                f"{url} holds another file (sha256 {digest.hexdigest()}, not {remote.sha256}); try later"
            )


def _read(response: HTTPResponse) -> bytes:
    """Return the next bytes."""
    try:
        return response.read(CHUNK)
    except (HTTPException, OSError) as error:
        raise _BrokenOffError(str(error)) from error
