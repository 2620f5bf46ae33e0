"""Sweeps: states and neighbours, which no method's hyper-parameters change, computed once and kept
in the cache.

A fixed base's hidden states, and which entries are nearest to them, are the same for every point of
a grid. They are written to ``sweeps/<hash>`` in parts: the states, and distances and positions of
the neighbours; their keys are in the memory. A part is whole or absent, and an interrupted sweep
goes on after its last part.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt.block import Block
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Progress
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.training_text import STATE, Segments, unpacked_state
from hebblm.io.download import cache_dir
from hebblm.io.files import hash_of
from hebblm.io.groups import prefixed
from hebblm.io.locks import file_lock
from hebblm.io.tensors import placed
from hebblm.memory import AnyMemory, faiss_index
from hebblm.memory.causal import WrittenBlock
from hebblm.memory.nearest import Ranked
from hebblm.models.base import StreamBase, hash_of_ids
from hebblm.online.layout import Pace
from hebblm.runtime.progress import log
from hebblm.text import EvaluationStream

SCHEMA = "hebblm-sweep/1"
PART = 5_000  # tokens a part, about
LIMIT_BYTES = 4 << 30  # of all sweeps in the cache


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Plan of a sweep: its identity, and its way of computation."""

    identity: dict[str, Any]  # everything that the numbers depend on besides the pace, as JSON
    pace: Pace  # how the stream is cut
    write: bool  # whether what was observed is written to the memory
    k: int  # neighbours a token

    @property
    def part(self) -> int:
        """Tokens a part: whole blocks, so that a later run cuts the stream at the same places."""
        return max(1, PART // self.pace.ahead) * self.pace.ahead

    def folder(self) -> Path:
        """Where the sweep is kept."""
        plan = [
            SCHEMA,
            torch.__version__,
            self.part,
            asdict(self.pace),
            self.write,
            self.k,
            self.identity,
        ]
        return cache_dir() / "sweeps" / hash_of(plan)


class Sweep:
    """States and neighbours of a stream, read part by part.

    Args:
        plan: plan of the sweep.
        device: device of all computation.
    """

    def __init__(self, plan: SweepPlan, device: torch.device) -> None:
        self.part = plan.part
        self._parts = Segments(plan.folder())
        self._device = device
        self._held = -1
        self._tensors: dict[str, Tensor] = {}

    def states(self, begin: int, end: int) -> Tensor:
        """Hidden states (n, D) of a run of tokens within one part."""
        return self._rows("states", begin, end)

    def ranked(self, begin: int, end: int) -> Ranked:
        """Distances and positions (n, K) of the neighbours of a run of tokens within one part."""
        return Ranked(self._rows("distances", begin, end), self._rows("ids", begin, end).long())

    def _rows(self, name: str, begin: int, end: int) -> Tensor:
        index = begin // self.part
        if index != self._held:
            self._tensors = self._parts.load(index)
            self._held = index
            os.utime(self._parts.folder)  # what is being read makes room last
        start = index * self.part
        return placed(self._tensors[name][begin - start : end - start], self._device)


def sweep_plan(scenario: Scenario, settings: Hyperparameters) -> SweepPlan:
    """Plan of a scenario's sweep under some hyper-parameters."""
    config = scenario.config
    stream = scenario.stream
    remembered = None  # the hash of the training ids in the memory, if it holds any
    if config.memory_content != "test":
        remembered = hash_of_ids(scenario.training_ids()[-config.training_entries - 1 :])
    identity = {
        "model": scenario.model.sha256,
        **scenario.model.reading(),
        "dictionary": scenario.dictionary.hash(),
        "stream": hash_of_ids(stream.ids),
        "first": stream.eos,
        "rows": [scenario.novel_rows, config.new_rows, config.seed],
        "memory": asdict(settings.memory),
        "faiss": faiss_index.load_faiss().__version__ if faiss_index.is_installed() else None,
        "content": config.memory_content,
        "remembered": remembered,
        "device": scenario.device.type,
    }
    return SweepPlan(identity, Pace.of(config.update_every, ahead=True), scenario.writes, config.k)


@torch.no_grad()
def prepare_sweep(
    base: StreamBase,
    memory: AnyMemory,
    stream: EvaluationStream,
    plan: SweepPlan,
    progress: Progress,
) -> Sweep | None:
    """Return the sweep of a stream, from the cache as far as it is there; base and memory are reset
    afterwards.

    None if the base learns, or if the sweep would not fit the cache's limit.
    """
    total = len(stream)
    weight = base.head.weight
    size = total * (weight.shape[1] * weight.element_size() + plan.k * (weight.element_size() + 4))
    if base.trains_online or size > LIMIT_BYTES:
        return None
    parts = Segments(plan.folder())
    if parts.finished() * plan.part < total:
        with parts.locked("states and neighbours"):
            _make_room(parts.folder, size)
            _fill(base, memory, stream, plan, parts, progress)
    else:
        log(
            f"states and neighbours of the {total:,} tokens come from an earlier run "
            f"({parts.folder})"
        )
        progress(total)
    os.utime(parts.folder)
    base.reset()
    memory.reset()
    return Sweep(plan, weight.device)


def _fill(
    base: StreamBase,
    memory: AnyMemory,
    stream: EvaluationStream,
    plan: SweepPlan,
    parts: Segments,
    progress: Progress,
) -> None:
    """Write the parts that are not there yet; another process may have written some or all of
    them.
    """
    total = len(stream)
    pace = plan.pace
    done = parts.finished()
    if done:
        log(
            f"the reading continues after its first {min(total, done * plan.part):,} of {total:,} "
            "tokens"
        )
    progress(min(total, done * plan.part))
    if done * plan.part >= total:
        return
    _resume(base, memory, stream, plan, parts, done)
    device = base.head.weight.device
    inputs = torch.from_numpy(stream.inputs).to(device)
    for index in range(done, -(-total // plan.part)):
        states: list[Tensor] = []
        neighbors: list[Ranked] = []
        stop = min((index + 1) * plan.part, total)
        for begin in range(index * plan.part, stop, pace.ahead):
            states.append(base.read(inputs[begin : min(begin + pace.ahead, stop)]))
            for rows, block in _blocks(states[-1], begin, memory, stream, plan):
                keys = memory.keys_of(rows)
                neighbors.append(
                    WrittenBlock(memory, keys, block.labels, block.in_memory).nearest(plan.k)
                )
                if plan.write:
                    memory.add(keys, block.labels)
                progress(len(rows))
        tensors = {
            "states": torch.cat(states),
            "distances": torch.cat([ranked.distances for ranked in neighbors]),
            "ids": torch.cat([ranked.ids for ranked in neighbors]).int(),
            **prefixed(STATE, base.stream_state()),
        }
        parts.save(index, tensors)


def _blocks(
    states: Tensor, begin: int, memory: AnyMemory, stream: EvaluationStream, plan: SweepPlan
) -> Iterator[tuple[Tensor, Block]]:
    """Yield states (N, D) and block of the tokens that are predicted together, from the states at
    ``begin`` on.
    """
    for first, last in plan.pace.blocks(begin, begin + len(states), [memory] if plan.write else []):
        labels = torch.from_numpy(stream.targets[first:last]).to(states.device)
        yield states[first - begin : last - begin], Block.of(labels, plan.pace.every, plan.write)


def _resume(
    base: StreamBase,
    memory: AnyMemory,
    stream: EvaluationStream,
    plan: SweepPlan,
    parts: Segments,
    done: int,
) -> None:
    """Bring base and memory to their state after the finished parts."""
    device = base.head.weight.device
    for index in range(done):
        tensors = parts.load(index)
        states = placed(tensors["states"], device)
        for offset in range(0, len(states) if plan.write else 0, plan.pace.ahead):
            run = states[offset : offset + plan.pace.ahead]
            for rows, block in _blocks(run, index * plan.part + offset, memory, stream, plan):
                memory.refresh()  # trained when it would have been searched
                memory.add(memory.keys_of(rows), block.labels)
        base.load_stream_state(unpacked_state(tensors, device))


def _make_room(folder: Path, needed: int) -> None:
    """Delete the sweeps that were used longest ago until another ``needed`` bytes fit the limit.

    Those that another process fills stay. One that is being read has no lock, since several may
    read it at once.
    """
    others: list[tuple[float, Path, int]] = []  # when it was used, where, bytes
    for sweep in folder.parent.glob("*"):
        if sweep.is_dir() and sweep != folder:
            with contextlib.suppress(FileNotFoundError):  # another process makes room as well
                others.append((sweep.stat().st_mtime, sweep, sum(map(_size, sweep.iterdir()))))
    total = needed + sum(size for *_, size in others)
    for _, sweep, size in sorted(others):
        if total <= LIMIT_BYTES:
            return
        with contextlib.suppress(UserError), file_lock(sweep, "states and neighbours", wait=False):
            shutil.rmtree(sweep, ignore_errors=True)
            total -= size


def _size(file: Path) -> int:
    """Return the bytes of a file, 0 for one that got its final name meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size
    return 0
