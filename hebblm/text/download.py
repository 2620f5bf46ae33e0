"""Finding a file of the manifest: data folders first, then a verified download into the user's cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pooch

from hebblm.errors import UserError
from hebblm.files import sha256
from hebblm.progress import bar
from hebblm.text.manifest import CorpusEntry, FileEntry


def cache_dir() -> Path:
    """Return the user's cache: ``$HEBBLM_CACHE``, or ``~/.cache/hebblm``."""
    return Path(os.environ.get("HEBBLM_CACHE") or Path.home() / ".cache" / "hebblm")


def data_dirs() -> tuple[Path, ...]:
    """Return the folders where data is looked for: ``$HEBBLM_DATA``, ``data/``, the cache."""
    named = os.environ.get("HEBBLM_DATA")
    return (*((Path(named),) if named else ()), Path("data"), cache_dir() / "data")


def locate(entry: CorpusEntry, split: str, folders: Sequence[Path]) -> Path:
    """Return the verified path of one split, downloading it if no folder has it.

    Args:
        entry: the corpus.
        split: the split.
        folders: where to look, first come first served.

    Raises:
        UserError: a file found or fetched is not the one of the manifest, or it cannot be fetched.
    """
    file = entry.files[split]
    for folder in folders:
        path = folder / file.path
        if path.is_file():
            return _verified(path, file)
    return _download(entry, split, file)


def _verified(path: Path, file: FileEntry) -> Path:
    """Return the path if its bytes are those of the manifest."""
    try:
        found = sha256(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if found != file.sha256:
        raise UserError(
            f"{path} has sha256 {found}, not {file.sha256}; remove it or put the original file there"
        )
    return path


def _download(entry: CorpusEntry, split: str, file: FileEntry) -> Path:
    """Fetch one file into the cache; nothing is left there unless its hash is right."""
    mirror = os.environ.get("HEBBLM_MIRROR")
    urls = [f"{mirror.rstrip('/')}/{entry.name}/{split}.txt"] if mirror else list(file.urls)
    target = cache_dir() / "data" / file.path
    pooch.get_logger().setLevel("ERROR")
    failures = []
    for url in urls:
        try:
            with _DownloadBar(f"{entry.name} {split}", file.bytes) as shown:
                downloader = pooch.HTTPDownloader(progressbar=shown, timeout=30, chunk_size=1 << 16)
                pooch.retrieve(
                    url, f"sha256:{file.sha256}", target.name, target.parent, downloader=downloader
                )
            return target
        except ValueError as error:
            # requests' own errors for malformed addresses are ValueErrors as well as OSErrors.
            if isinstance(error, OSError):
                failures.append(f"{url}: {error}")
            else:
                raise UserError(
                    f"{url} does not hold the {split} split of {entry.name} (wrong sha256)"
                ) from error
        except OSError as error:
            failures.append(f"{url}: {error}")
    raise UserError(
        f"cannot download the {split} split of {entry.name} ({'; '.join(failures)}); "
        f"put it at {file.path} below a folder named by HEBBLM_DATA"
    )


class _DownloadBar:
    """What pooch asks of a progress bar, drawn like every other one."""

    def __init__(self, description: str, size: int) -> None:
        self.total = size
        self._size = size
        self._progress = bar()
        self._task = self._progress.add_task(f"download {description}", total=size // 1000, unit="kB")
        self._done = 0

    def __enter__(self) -> _DownloadBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, received: int) -> None:
        """Count bytes; pooch reports whole chunks, so the last may overshoot."""
        self._done = min(self._done + received, self._size)
        self._progress.update(self._task, completed=self._done // 1000)

    def reset(self) -> None:
        """Begin again, as pooch does before it fills the bar."""
        self._done = 0

    def close(self) -> None:
        """Fill the bar: the transfer is complete."""
        self.update(self._size)
