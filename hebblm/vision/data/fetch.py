"""Files of a data set: in a folder, or downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hebblm.download import download
from hebblm.errors import UserError, unreadable
from hebblm.files import sha256
from hebblm.progress import say


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


def checked(path: Path, known: str | None, *, required: bool = False) -> str:
    """Return the sha256 of a file, and say so where it is not the known one.

    Args:
        path: the file.
        known: sha256 of the original, None where there is none.
        required: no other file may be read, such as one whose format can do harm.

    Raises:
        UserError: unreadable, or another file where the original is required.
    """
    try:
        found = sha256(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if known is not None and found != known:
        if required:
            raise UserError(f"{path} has sha256 {found}, not {known}; get the original file")
        say(f"{path} is not the original file (its sha256 is {found}, not {known})")
    return found


def find(
    folders: Sequence[Path], names: Iterable[str], remote: Remote, downloads: Path | None, *, put: str
) -> Path:
    """Return the first file that there is, downloaded where there is none.

    Args:
        folders: where to look, below each in the folder of ``remote.path``.
        names: of the file, in the order of preference.
        remote: what is downloaded.
        downloads: where to put it; None downloads nothing.
        put: what a user has to put there, in words.

    Raises:
        UserError: no such file, no address answers, or the bytes are others.
    """
    place, names = Path(remote.path).parent, tuple(names)
    for folder in folders:
        for name in names:
            if (folder / place / name).is_file():
                return folder / place / name
    if downloads is not None:
        return fetch(remote, downloads)
    places = ", ".join(str(folder / place) for folder in folders)
    raise UserError(f"no {names[0]} in {places}; put {put} into {place}/ below a folder named by HEBBLM_DATA")
