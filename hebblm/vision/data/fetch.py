"""Files of a data set: in a folder, or downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hebblm.download import download
from hebblm.errors import UserError, unreadable
from hebblm.files import sha256
from hebblm.progress import say


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
    folders: Sequence[Path],
    place: str,
    names: Sequence[str],
    downloads: Path | None,
    *,
    urls: Sequence[str],
    known: str,
    put: str,
) -> Path:
    """Return the first file that there is; where there is none, the first of the names is downloaded.

    Args:
        folders: where to look.
        place: the folder below each of them.
        names: of the file, in the order of preference.
        downloads: where to put it; None downloads nothing.
        urls: of the first of the names, tried in turn.
        known: sha256 of its bytes.
        put: what a user has to put there, in words.

    Raises:
        UserError: no such file, no address answers, or the bytes are others.
    """
    for folder in folders:
        for name in names:
            if (folder / place / name).is_file():
                return folder / place / name
    if downloads is not None:
        path = f"{place}/{names[0]}"
        download(names[0], downloads / path, place=path, mirrored=path, urls=urls, sha256=known)
        return downloads / path
    places = ", ".join(str(folder / place) for folder in folders)
    raise UserError(f"no {names[0]} in {places}; put {put} into {place}/ below a folder named by HEBBLM_DATA")
