"""Resuming a run that was killed at any moment: its checkpoints, and how long they are kept."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import awd_lstm
from hebblm.adapt.methods import SOURCES
from hebblm.errors import UserError
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.scenario import Scenario
from hebblm.io.download import cache_dir
from hebblm.io.files import hash_of, hash_of_code, sha256
from hebblm.io.locks import file_lock
from hebblm.runtime.interrupts import handled
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import current

SCHEMA = "hebblm-position/3"
FORGOTTEN = 30 * 86_400  # seconds after which a run counts as abandoned
PACKAGES = Path(awd_lstm.__path__[0]), Path(__file__).parents[1]


@contextlib.contextmanager
def resumable(
    scenario: Scenario,
    settings: Hyperparameters,
    provenance: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> Iterator[RunCheckpoint | None]:
    """Yield the checkpoint of a scenario's passes, for the block that makes them; remove it when
    the block ends well.

    It is in the cache under a hash of everything that the numbers depend on; None if another
    process has it.

    Args:
        scenario: the opened scenario.
        settings: hyper-parameters.
        provenance: versions, device, threads.
        asked: everything else that the numbers depend on, as JSON.
    """
    stream = scenario.stream
    counts = scenario.stream.train_counts
    ranks = current()
    ids = hashlib.sha256(np.ascontiguousarray(stream.ids).tobytes())
    ids.update(np.ascontiguousarray(counts).tobytes())
    made_with = dict(provenance)
    for name in ("command", "commit"):  # "code" says more
        made_with.pop(name, None)
    identity = {
        "schema": SCHEMA,
        **made_with,
        "code": hash_of_code(*PACKAGES),
        "methods": {name: sha256(path) for name, path in SOURCES.items() if path.is_file()},
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
            stack.enter_context(file_lock(folder, "this evaluation"))
        except UserError as error:
            log(f"{error}; if this run is interrupted, it starts again from the beginning")
            yield None
            return
        _forget(folder)
        checkpoint = RunCheckpoint(folder)
        with handled(checkpoint.interrupt):
            yield checkpoint
        checkpoint.clear()
    with contextlib.suppress(OSError):  # it may hold checkpoints of other runs
        folder.parent.rmdir()


def _forget(folder: Path) -> None:
    """Remove the files of abandoned runs next to a folder."""
    now = time.time()
    for other in folder.parent.glob("*"):
        with contextlib.suppress(OSError):  # another process may do the same
            if other == folder or now - other.stat().st_mtime <= FORGOTTEN:
                continue
            if other.is_dir():
                shutil.rmtree(other)
            else:
                other.unlink()
