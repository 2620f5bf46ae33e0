"""Session of one command: its measurement from settings to file, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec
import torch

from hebblm.bench.configs import BenchConfig
from hebblm.bench.machine import cpu_name, use_threads
from hebblm.bench.record import BenchResult, Case, Rounds, Row
from hebblm.files import check_writable
from hebblm.models.device import pick_device
from hebblm.progress import bar
from hebblm.provenance import provenance

C = TypeVar("C", bound=BenchConfig)


def run_bench(
    kind: str,
    config: C,
    cases: Callable[[C, Rounds], list[Case]],
    *,
    command: str,
    finished: Callable[[Row], Row],
) -> None:
    """Measure every case with a progress bar; what is finished is on disk even if the rest is not.

    Args:
        kind: ``adapt``, ``retrieve``, ``eval`` or ``train``.
        config: the options.
        cases: opens what is measured, perhaps under a bar of its own, and returns the cases, which tick once a round.
        command: as it can be typed again.
        finished: called with each row while what it measured is there; returns the row that is kept.

    Raises:
        UserError: a value out of range, or a file that cannot be written.
    """
    device = pick_device(config.device)
    if config.json is not None:
        check_writable(config.json.parent)
    use_threads(config.threads)
    record = {**provenance(command, device=str(device), seed=config.seed), "cpu": cpu_name()}
    if device.type == "cuda":
        record["gpu"] = torch.cuda.get_device_name(device)
    result = BenchResult(kind, record, msgspec.to_builtins(config, enc_hook=str), (), complete=False)
    progress = bar()
    waiting = cases(config, Rounds(device, config.repeats, lambda: progress.advance(task)))
    task = progress.add_task(f"bench {kind}", total=len(waiting) * (config.repeats + 1), unit="rounds")
    with progress:
        while waiting:
            row = replace(finished(waiting.pop(0)()), measured={})
            result = replace(result, rows=(*result.rows, row), complete=not waiting)
            if config.json is not None:
                result.save(config.json)
