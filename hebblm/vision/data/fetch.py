"""Files of a data set that no folder has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hebblm.download import download


@dataclass(frozen=True, slots=True)
class Remote:
    """A file and where it can be had.

    Args:
        path: below a data folder, and below a mirror.
        urls: tried in turn.
        sha256: of its bytes.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str


def fetch(remote: Remote, folder: Path) -> Path:
    """Download a file into a folder and return its path there.

    Raises:
        UserError: no address answers, or the bytes are others.
    """
    target = folder / remote.path
    download(
        target.name, target, place=remote.path, mirrored=remote.path, urls=remote.urls, sha256=remote.sha256
    )
    return target
