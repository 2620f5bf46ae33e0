"""A run that is killed at any moment and run again goes on from where it stood: what is kept, and for how long."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import awd_lstm
from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.notes import KeptObserver
from hebblm.evaluation.position import SCHEMA, STATE, Position
from hebblm.evaluation.scenario import Scenario
from hebblm.files import hash_of, hash_of_code
from hebblm.interrupts import handled
from hebblm.locks import held
from hebblm.models.base import StreamBase
from hebblm.progress import say
from hebblm.ranks import current

FORGOTTEN = 30 * 86_400  # seconds after which nobody comes back to a run
PACKAGES = Path(awd_lstm.__path__[0]), Path(__file__).parents[1]


@dataclass(slots=True)
class Saved:
    """The positions of a run's passes over its text, one after the other; see :func:`going_on`.

    Args:
        folder: of the run.
        started: when this process began.
        last: when something was saved last.
        passes: how many were begun.
        within: whether one is under way, which is saved before an interruption ends it.
        stopped: whether it is to end.
    """

    folder: Path
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    passes: int = 0
    within: bool = False
    stopped: bool = False

    def position(self, title: str, base: StreamBase, observers: Sequence[KeptObserver] = ()) -> Position:
        """Return the position of the next pass.

        Args:
            title: of the pass, for people.
            base: that reads.
            observers: observers whose notes are kept.
        """
        self.passes += 1
        return Position(self, self.folder / f"{self.passes:04d}", title, base, tuple(observers))

    def interrupt(self, number: int, frame: Any) -> None:
        """Let a pass that is under way be saved first; the second time, or outside of one, end at once."""
        if not self.within or self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
        say("interrupted: the position is saved behind these tokens; Ctrl-C again ends at once")

    def clear(self) -> None:
        """Remove everything, first what the rest belongs to: a part of it is never taken for the whole."""
        for state in self.folder.glob(f"*/*{STATE}"):
            state.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def going_on(
    scenario: Scenario, settings: Hyperparameters, provenance: Mapping[str, Any], asked: Mapping[str, Any]
) -> Iterator[None]:
    """Save where the scenario's passes stand while the block runs; what is saved is removed when it ends well.

    It is kept in the cache under a hash of everything that the numbers depend on.

    Args:
        scenario: opened.
        settings: hyper-parameters.
        provenance: versions, device, threads.
        asked: what else the numbers depend on, as JSON.

    Raises:
        UserError: what was saved was changed.
    """
    stream, counts, ranks = scenario.stream, scenario.stream.train_counts, current()
    ids = hashlib.sha256(np.ascontiguousarray(stream.ids).tobytes())
    ids.update(np.ascontiguousarray(counts).tobytes())
    identity = {
        "schema": SCHEMA,
        **{name: value for name, value in provenance.items() if name not in ("command", "commit")},
        "code": hash_of_code(*PACKAGES),
        "scenario": {name: str(value) for name, value in asdict(scenario.config).items()},
        "model": [scenario.model.sha256, scenario.model.reading()],
        "dictionary": scenario.dictionary.hash(),
        "stream": ids.hexdigest(),
        "data": scenario.data_sha256,
        "settings": settings.document(),
        "asked": dict(asked),
        "rank": [ranks.rank, ranks.size],
    }
    folder = cache_dir() / "positions" / hash_of(identity)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(folder, "this evaluation"))
        except UserError as error:
            say(f"{error}; if this run is interrupted, it begins anew")
            yield
            return
        _forget(folder)
        scenario.saved = saved = Saved(folder)
        try:
            with handled(saved.interrupt):
                yield
        finally:
            scenario.saved = None
        saved.clear()
    with contextlib.suppress(OSError):  # it holds those of other runs
        folder.parent.rmdir()


def _forget(folder: Path) -> None:
    """Remove what runs that nobody came back to left beside a folder."""
    now = time.time()
    for other in folder.parent.glob("*"):
        with contextlib.suppress(OSError):  # another process may do the same
            if other != folder and now - other.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(other) if other.is_dir() else other.unlink()
