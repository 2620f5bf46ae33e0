"""A file of known hash from the first address that has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hebblm.errors import UserError
from hebblm.locks import held
from hebblm.progress import bar

MIRROR = "HEBBLM_MIRROR"
CHUNK = 1 << 16
PATIENCE = 30  # seconds for a server to answer


def download(name: str, target: Path, *, place: str, mirrored: str, urls: Sequence[str], sha256: str) -> None:
    """Fetch a file; nothing is left at its place unless the hash is right.

    Args:
        name: of what is fetched, for people.
        target: where to keep it.
        place: where people may put it themselves, below a data folder.
        mirrored: below ``$HEBBLM_MIRROR``, which if set takes the place of all addresses.
        urls: addresses, tried in turn.
        sha256: of its bytes.

    Raises:
        UserError: no address answers, or one holds other bytes.
    """
    import pooch  # takes part of a second, so only where something is fetched

    mirror = os.environ.get(MIRROR)
    pooch.get_logger().setLevel("ERROR")
    failures = []
    for url in [f"{mirror.rstrip('/')}/{mirrored}"] if mirror else urls:
        try:
            with (
                held(target, name),
                _DownloadBar(name) as shown,
            ):  # what is there of this hash, is not fetched
                downloader = pooch.HTTPDownloader(progressbar=shown, timeout=PATIENCE, chunk_size=CHUNK)
                pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, downloader=downloader)
            return
        except ValueError as error:
            # requests' own errors for malformed addresses are ValueErrors as well as OSErrors.
            if isinstance(error, OSError):
                failures.append(f"{url}: {error}")
            else:
                raise UserError(f"{url} does not hold {name} (wrong sha256); try later") from error
        except OSError as error:
            failures.append(f"{url}: {error}")
    raise UserError(
        f"cannot download {name} ({'; '.join(failures)}); put it at {place} below a folder named by HEBBLM_DATA"
    )


class _DownloadBar:
    """Progress bar as pooch asks for it, drawn like every other one, once the first bytes are there."""

    def __init__(self, name: str) -> None:
        self.total = 0
        """Bytes to come; pooch sets it, to 0 where the server does not say."""
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
        self._progress.update(self._task, completed=self._done // 1000, total=self.total // 1000 or None)

    def reset(self) -> None:
        """Begin again, as pooch does before it fills the bar."""
        self._done = 0

    def close(self) -> None:
        """Fill the bar: the transfer is complete."""
        self.update(self.total)
