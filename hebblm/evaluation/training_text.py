"""Data from a model's training text, computed once and kept in the cache: memory entries, size of
gradients.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from hebblm.adapt.functional import log_normalizers, with_rows
from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import hash_of
from hebblm.io.groups import prefixed, under
from hebblm.io.locks import file_lock
from hebblm.io.tensors import placed, read_tensors, write_tensors
from hebblm.memory import AnyMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.store import CHUNK
from hebblm.models.base import Ids, State, TrainedModel, device_of, hash_of_ids
from hebblm.models.update import DynamicConfig
from hebblm.runtime.progress import bar, duration, log, track
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.types import OutputHead

KIND = "hebblm-part"
STATE = "state "
"""Prefix of the names of a base's state in a segment."""
GRADIENTS_SCHEMA = "hebblm-gradients/1"
GRADIENTS = "hebblm-gradients"


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of a long computation in a folder, numbered from 0: tensors by name.

    Each is whole or absent, so that an interrupted computation goes on after the last one.
    """

    folder: Path  # made when the first one is saved

    def finished(self) -> int:
        """Number of segments that are there, from the first on."""
        index = 0
        while self._path(index).is_file():
            index += 1
        return index

    def save(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        write_tensors(self._path(index), tensors, KIND)

    def load(self, index: int) -> dict[str, Tensor]:
        """Return a file's tensors, not yet :func:`hebblm.io.tensors.placed`; refuse a missing or
        changed file.
        """
        return read_tensors(self._path(index), KIND, f"delete {self.folder}; it is computed again")[
            0
        ]

    def locked(self, what: str) -> AbstractContextManager[bool]:
        """Lock the segments of ``what`` for this process, see :func:`hebblm.io.locks.file_lock`."""
        return file_lock(self.folder, what)

    def _path(self, index: int) -> Path:
        return self.folder / f"part-{index:05d}.safetensors"


def unpacked_state(tensors: Mapping[str, Tensor], device: torch.device) -> State:
    return {name: placed(tensor, device) for name, tensor in under(STATE, tensors).items()}


def training_states(model: TrainedModel, ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield hidden states (M, D) and the labels (M,) that follow them, segment by segment."""
    for segment in track(
        model.segments(ids), "training states", model.segment_count(len(ids) - 1), "segments"
    ):
        yield segment.keys, segment.labels


def training_memory(
    model: TrainedModel,
    ids: Ids,
    config: MemoryConfig,
    *,
    dictionary_hash: str,
    head: OutputHead | None = None,
    ranks: Ranks = ALONE,
) -> AnyMemory:
    """Return a memory of the training text (T,), or a rank's share of it, from the cache if it was
    built before.

    It is built in segments that are kept until it is whole: an interrupted build goes on where it
    stopped.

    Args:
        model: gives the keys.
        ids: (T,) the training stream.
        config: options of keeping and searching entries.
        dictionary_hash: identifies the ids.
        head: the softmax layer for the log-normalisers of the keys: the model's own, then rows of
            new words. None if it will learn, which would make them wrong.
        ranks: the ranks that share the memory.
    """
    memory = _whole_memory(
        model,
        ids,
        config,
        dictionary_hash=dictionary_hash,
        normalized=head is not None,
        ranks=ranks,
    )
    if ranks.size > 1:
        memory = _share(memory, config, device_of(model), ranks)
    if head is not None:
        _include_rows(memory, head, len(model.head.weight))
    return memory


def _whole_memory(
    model: TrainedModel,
    ids: Ids,
    config: MemoryConfig,
    *,
    dictionary_hash: str,
    normalized: bool,
    ranks: Ranks,
) -> AnyMemory:
    """Return a memory of all the training text, with log-normalisers of the model's own rows if
    requested.

    Ranks read it together, and all of them find it in the cache.
    """
    device = device_of(model)
    model_hash = model.sha256
    identity = [
        model_hash,
        dictionary_hash,
        config.identity(),
        hash_of_ids(ids),
        *model.reading().values(),
    ]
    folders = [
        cache_dir() / "memory" / hash_of(key) for key in (identity, [*identity, "log-normalizers"])
    ]
    folder = folders[normalized or folders[1].exists()]
    segments = Segments(folder.with_name(f"{folder.name}.parts"))
    if not ranks.all_gather_object(folder.exists())[0]:
        memory = build_memory(
            model.key_width, config, device, work=segments.folder if ranks.leads else None
        )
        with segments.locked("the memory of the training text") if ranks.leads else nullcontext():
            # another process may have built it meanwhile
            if not ranks.all_gather_object(folder.exists())[0]:
                save = partial(
                    save_memory,
                    memory,
                    folder,
                    model_hash=model_hash,
                    dictionary_hash=dictionary_hash,
                )
                _build(memory, model, ids, segments, normalized=normalized, save=save, ranks=ranks)
    else:
        log(f"the memory of the training text comes from an earlier run ({folder})")
    if ranks.leads:
        shutil.rmtree(segments.folder, ignore_errors=True)
    return load_memory(
        folder, model_hash=model_hash, dictionary_hash=dictionary_hash, device=device
    )


def _build(
    memory: AnyMemory,
    model: TrainedModel,
    ids: Ids,
    segments: Segments,
    *,
    normalized: bool,
    save: Callable[[], None],
    ranks: Ranks,
) -> None:
    """Fill a memory with the training text, and save it; segments that are there are not computed
    again.

    Ranks read their shares of each segment; the first one fills and saves.
    """
    total = model.segment_count(len(ids) - 1)
    done = ranks.all_gather_object(segments.finished())[0]
    if done:
        whence = f"goes on from part {done + 1:,} of {total:,}"
    else:
        whence = f"is read once, in {total:,} parts"
    log(
        f"the memory of the training text {whence}; if it is interrupted, run the same command to "
        "continue, and with "
        "training_entries=N it remembers only the last N tokens"
    )
    with bar() as progress:
        resumed = f", going on from part {done + 1:,}" if done else ""
        task = progress.add_task(
            f"training memory{resumed}", total=total + 1, completed=done, unit="parts"
        )
        for index, tensors in enumerate(
            saved_segments(model, ids, segments, memory, normalized=normalized, ranks=ranks)
        ):
            if ranks.leads:
                memory.fill(tensors["keys"], tensors["labels"], tensors.get("log-normalizers"))
            progress.advance(task, int(index >= done))
        if ranks.leads:
            save()  # with the index, the last step
        ranks.wait()
        progress.advance(task)


def saved_segments(
    model: TrainedModel,
    ids: Ids,
    segments: Segments,
    memory: AnyMemory,
    *,
    normalized: bool = False,
    ranks: Ranks = ALONE,
) -> Iterator[dict[str, Tensor]]:
    """Yield the entries of a text (T,) for a memory, segment by segment; saved segments are not
    computed again.

    Each is saved with the state that the next one begins with. Ranks read their shares of each; the
    first rank saves it, and has all of it.

    Yields:
        ``keys`` (M, D), ``labels`` (M,) and, if ``normalized``, ``log-normalizers`` (M,), with the
        state.
    """
    done = ranks.all_gather_object(segments.finished())[0]
    tensors = {}
    for tensors in map(segments.load, range(done)):
        yield tensors
    state = unpacked_state(tensors, device_of(model)) if done else None
    for index, segment in enumerate(model.segments(ids, done, state, ranks.rank, ranks.size), done):
        tensors = {"keys": memory.keys_of(segment.keys).to(memory.dtype), "labels": segment.labels}
        if normalized:
            # Normalisers of the keys as stored: followed and other classes must add up to 1.
            tensors["log-normalizers"] = log_normalizers(
                memory.states_of(tensors["keys"].to(segment.keys.dtype)), model.head
            )
        tensors = {
            name: ranks.gather(rows)
            for name, rows in (tensors | prefixed(STATE, segment.state)).items()
        }
        yield tensors  # before saving: entries that the memory refuses are not saved
        if ranks.leads:
            segments.save(index, tensors)


def _share(whole: AnyMemory, config: MemoryConfig, device: torch.device, ranks: Ranks) -> AnyMemory:
    """Return a rank's own memory, with its share of another memory's entries: a run of them."""
    memory = build_memory(whole.dim, config, device)
    start = 0
    mine = ranks.partition(len(whole))
    for part in whole.segments():
        entries = part.run(max(0, mine.start - start), max(0, mine.stop - start))
        memory.fill(entries.keys, entries.values, entries.log_normalizers)
        start += len(part)
    memory.mark_base()
    return memory


def _include_rows(memory: AnyMemory, head: OutputHead, known: int) -> None:
    """Add to a loaded memory's log-normalisers the rows of ``head`` after the first ``known``."""
    new = OutputHead(head.weight[known:], None if head.bias is None else head.bias[known:])
    if not len(new.weight):
        return
    device = memory.segments()[0].keys.device
    rows = OutputHead(new.weight.to(device), None if new.bias is None else new.bias.to(device))
    for part in memory.segments():
        for begin in range(0, len(part), CHUNK):
            run = part.run(begin, begin + CHUNK)
            if run.log_normalizers is not None:
                states = memory.states_of(run.keys.to(rows.weight.dtype))
                run.log_normalizers.copy_(with_rows(run.log_normalizers, states, rows))
    memory.mark_base()


def gradient_statistics(
    model: TrainedModel, config: DynamicConfig, training: Callable[[], Ids]
) -> list[Tensor] | None:
    """Return dynamic evaluation's statistics of the gradients on training text, one tensor per
    parameter.

    Args:
        model: reads the text.
        config: holds the rule.
        training: returns the training ids (T,).

    Returns:
        Mean squares; None if the rule needs none, or if it is auto and there is no such text, which
        prints a line.

    Raises:
        UserError: the rule needs a training text that is not available.
    """
    if not config.needs_statistics:
        return None
    try:
        ids = training()
    except UserError as error:
        if config.rule != "auto":
            raise
        log(
            "dynamic evaluation finds its rate on the text that it reads, as dynamic.rule=stream "
            f"does: {error}"
        )
        return None
    return mean_squares(model, ids[: config.statistics], config.segment)


def mean_squares(model: TrainedModel, ids: Ids, segment: int) -> list[Tensor]:
    """Return mean squares of a model's gradients on training ids (T,), ``segment`` tokens a step,
    or cached ones.
    """
    weights = []
    for name, weight in model.base().parameters().items():
        weights.append([name, str(weight.dtype), list(weight.shape)])
    identity = [
        GRADIENTS_SCHEMA,
        torch.__version__,
        torch.get_num_threads(),
        device_of(model).type,
        model.sha256,
        model.reading(),
        segment,
        hash_of_ids(ids),
        weights,
    ]
    path = cache_dir() / "gradients" / f"{hash_of(identity)}.safetensors"
    if not path.exists():
        with file_lock(path, "the gradient statistics"):
            if not path.exists():  # another process may have computed them meanwhile
                squares = model.mean_squares(ids, segment, _announce)
                write_tensors(
                    path, {f"{i:05d}": tensor for i, tensor in enumerate(squares)}, GRADIENTS
                )
                return squares
    log(f"the gradient statistics of dynamic evaluation come from an earlier run ({path})")
    tensors, _ = read_tensors(path, GRADIENTS, "delete it, it is computed anew")
    return [placed(tensors[name], device_of(model)) for name in sorted(tensors)]


def _announce(seconds: float) -> None:
    log(
        f"dynamic evaluation needs the gradients of the training text: about {duration(seconds)}, "
        "once for this model; "
        "the other `methods` do without"
    )
