"""Files of known content, in a data folder or downloaded to the user's cache, and data sets of the
Hugging Face hub.
"""

from __future__ import annotations

import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hebblm.errors import UserError, unreadable
from hebblm.io.files import sha256
from hebblm.io.locks import file_lock
from hebblm.runtime.folders import cache_dir as cache_dir
from hebblm.runtime.progress import bar, log

MIRROR = "HEBBLM_MIRROR"
CHUNK = 1 << 16
PATIENCE = 30  # seconds for a server to answer
HUB_PATIENCE = 10  # seconds for the hub to do so


def data_dirs() -> tuple[Path, ...]:
    """Return the folders to search for data: ``$HEBBLM_DATA``, ``data/``, the cache."""
    usual = (Path("data"), cache_dir() / "data")
    named = os.environ.get("HEBBLM_DATA")
    if not named:
        return usual
    return Path(named), *usual


def find(
    folders: Sequence[Path],  # where to look
    paths: Sequence[str],  # of the file below each of them, in the order of preference
    downloads: Path | None,  # folder to put it below; None downloads nothing
    *,
    name: str,  # of what is looked for, for people
    urls: Sequence[str],  # of the first of the paths, tried in turn
    known: str,  # sha256 of its bytes
    # its path below ``$HEBBLM_MIRROR``, which replaces all addresses if set; None for the same path
    mirrored: str | None = None,
) -> Path:
    """Return the first file that exists; if there is no such file, download the first of the
    paths.
    """
    for folder in folders:
        for path in paths:
            if (folder / path).is_file():
                return folder / path
    if downloads is None:
        places = ", ".join(map(str, folders))
        raise UserError(
            f"no {name} in {places}; put it at {paths[0]} below a folder named by HEBBLM_DATA"
        )
    mirror = os.environ.get(MIRROR)
    if mirror:
        urls = [f"{mirror.rstrip('/')}/{mirrored or paths[0]}"]
    _download(
        name,
        downloads / paths[0],
        urls,
        known,
        f"put it at {paths[0]} below a folder named by HEBBLM_DATA",
    )
    return downloads / paths[0]


def checked(path: Path, known: str | None, *, required: bool = False) -> str:
    """Return the hash of a file, and warn if it is not the known one.

    With ``required`` another hash is an error, for formats that can do harm.
    """
    try:
        digest = sha256(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if known is not None and digest != known:
        if required:
            raise UserError(
                f"{path} has sha256 {digest}, not {known}; remove it or put the original file there"
            )
        log(f"{path} is not the original file (its sha256 is {digest}, not {known})")
    return digest


def load_dataset(identifier: str, config: str | None, *, name: str, remedy: str) -> Any:
    """Load a data set from the hub, from the cache of ``datasets``, or from a folder in its
    layout.
    """
    import datasets  # takes a second, so only if it is needed
    from datasets.exceptions import DatasetGenerationError

    try:
        with quiet_hub(), _without_bars() if Path(identifier).is_dir() else _without_retries():
            return datasets.load_dataset(identifier, config)
    except (OSError, ValueError, RuntimeError, DatasetGenerationError) as error:
        if isinstance(error, DatasetGenerationError) and error.__cause__:
            cause = error.__cause__
        else:
            cause = error
        reason = str(cause).strip().split("\n", maxsplit=1)[0]
        raise UserError(f"cannot load {name} ({reason}); {remedy}") from error


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Silence the logs of the hub and ``datasets``, which would bury the one line that says what is
    wrong.
    """
    levels = {"huggingface_hub": logging.ERROR, "datasets": logging.CRITICAL}
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Switch off the bars of ``datasets``: a local folder is read at once."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


@contextmanager
def _without_retries() -> Iterator[None]:
    """Make the libraries use their local copies if the hub is out of reach, instead of retrying."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    if not any(before) and not hub_reachable():
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def hub_reachable() -> bool:
    """Return whether the hub may be asked, and answers."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _reachable(constants.ENDPOINT)


def _reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=HUB_PATIENCE
        ):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _download(name: str, target: Path, urls: Sequence[str], known: str, remedy: str) -> None:
    """Fetch a file from the first address that has it, and keep it only if the hash is right."""
    import pooch  # takes part of a second, so only to fetch a file

    pooch.get_logger().setLevel("ERROR")
    failures = []
    for url in urls:
        try:
            # a file with this hash is not fetched again
            with file_lock(target, name), _DownloadBar(name) as shown:
                downloader = pooch.HTTPDownloader(
                    progressbar=shown, timeout=PATIENCE, chunk_size=CHUNK
                )
                pooch.retrieve(
                    url, f"sha256:{known}", target.name, target.parent, downloader=downloader
                )
            return
        except ValueError as error:
            # requests' own errors for malformed addresses are ValueErrors as well as OSErrors.
            if isinstance(error, OSError):
                failures.append(f"{url}: {error}")
            else:
                raise UserError(f"{url} does not hold {name} (wrong sha256); try later") from error
        except OSError as error:
            failures.append(f"{url}: {error}")
    raise UserError(f"cannot download {name} ({'; '.join(failures)}); {remedy}")


class _DownloadBar:
    """Progress bar for pooch that looks like every other one, from the first bytes on."""

    def __init__(self, name: str) -> None:
        self.total = 0
        """Bytes of the file; pooch sets it, to 0 if the server does not say."""
        self._progress = bar()
        self._task = self._progress.add_task(f"download {name}", total=None, unit="kB")
        self._done = 0

    def __enter__(self) -> _DownloadBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress.live.is_started:
            self._progress.stop()

    def update(self, received: int) -> None:
        """Count bytes; pooch reports whole chunks, so the last may overshoot."""
        self._progress.start()
        self._done += received
        if self.total:
            self._done = min(self._done, self.total)
        self._progress.update(
            self._task, completed=self._done // 1000, total=self.total // 1000 or None
        )

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        self.update(self.total)
