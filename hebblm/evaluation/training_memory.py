"""The training text as memory entries: hidden states and labels, computed once and kept in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from hebblm.adapt.functional import log_normalizers, with_rows
from hebblm.download import cache_dir
from hebblm.evaluation.parts import STATE, Parts, unpacked_state
from hebblm.files import hash_of
from hebblm.memory import AnyMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.models.base import Ids, TrainedModel, device_of, hash_of_ids
from hebblm.progress import bar, say, track
from hebblm.ranks import ALONE, Ranks
from hebblm.tensors import prefixed
from hebblm.types import OutputHead


def training_states(model: TrainedModel, ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield hidden states (M, D) and the labels (M,) that follow them; see :meth:`TrainedModel.segments`."""
    for segment in track(model.segments(ids), "training states", model.segment_count(len(ids) - 1), "segments"):
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
    """Return a memory that holds the training text, or a rank's share of it, from the cache if it was built before.

    It is built in parts that are kept until it is whole: an interrupted build goes on where it was.

    Args:
        model: gives the keys.
        ids: (T,) the training stream.
        config: how entries are kept and searched.
        dictionary_hash: identifies the ids.
        head: the softmax layer whose log-normalisers of the keys are wanted: the model's own and rows of new words
            behind it. None if it will move, which would make them wrong.
        ranks: that divide it.
    """
    whole = partial(_whole, model, ids, config, dictionary_hash=dictionary_hash, normalized=head is not None)
    memory = whole(ranks=ranks)
    if ranks.size > 1:
        memory = _share(memory, config, device_of(model), ranks)
    if head is not None:
        _include_rows(memory, head, len(model.head.weight))
    return memory


def _whole(
    model: TrainedModel,
    ids: Ids,
    config: MemoryConfig,
    *,
    dictionary_hash: str,
    normalized: bool,
    ranks: Ranks,
) -> AnyMemory:
    """Return the memory of all the training text, with log-normalisers of the model's own rows if that is wanted.

    Ranks read it together, and all of them find it in the cache.
    """
    device, model_hash = device_of(model), model.sha256
    identity = [model_hash, dictionary_hash, config.identity(), hash_of_ids(ids), *model.reading().values()]
    folders = [cache_dir() / "memory" / hash_of(key) for key in (identity, [*identity, "log-normalizers"])]
    folder = folders[normalized or folders[1].exists()]
    parts = Parts(folder.with_name(f"{folder.name}.parts"))
    if not ranks.all_gather_object(folder.exists())[0]:
        memory = build_memory(model.key_width, config, device, work=parts.folder if ranks.leads else None)
        with parts.held("the memory of the training text") if ranks.leads else nullcontext():
            if not ranks.all_gather_object(folder.exists())[0]:  # another process may have built it meanwhile
                save = partial(save_memory, memory, folder, model_hash=model_hash, dictionary_hash=dictionary_hash)
                _build(memory, model, ids, parts, normalized=normalized, save=save, ranks=ranks)
    else:
        say(f"the memory of the training text is there from an earlier run ({folder})")
    if ranks.leads:
        shutil.rmtree(parts.folder, ignore_errors=True)
    return load_memory(folder, model_hash=model_hash, dictionary_hash=dictionary_hash, device=device)


def _build(
    memory: AnyMemory,
    model: TrainedModel,
    ids: Ids,
    parts: Parts,
    *,
    normalized: bool,
    save: Callable[[], None],
    ranks: Ranks,
) -> None:
    """Fill a memory with the training text, and save it; parts that are there are not computed again.

    Ranks read their shares of each part; the first one fills and saves.
    """
    total, done = model.segment_count(len(ids) - 1), ranks.all_gather_object(parts.finished())[0]
    whence = f"goes on from part {done + 1:,} of {total:,}" if done else f"is read once, in {total:,} parts"
    say(
        f"the memory of the training text {whence}; if it is interrupted, the same command goes on, and with "
        "--training-entries N it remembers the last N tokens alone"
    )
    with bar() as progress:
        resumed = f", going on from part {done + 1:,}" if done else ""
        task = progress.add_task(f"training memory{resumed}", total=total + 1, completed=done, unit="parts")
        for index, part in enumerate(
            saved_segments(model, ids, parts, memory.dtype, normalized=normalized, ranks=ranks)
        ):
            if ranks.leads:
                memory.fill(part["keys"], part["labels"], part.get("log-normalizers"))
            progress.advance(task, int(index >= done))
        if ranks.leads:
            save()  # with the index, the last step
        ranks.wait()
        progress.advance(task)


def saved_segments(
    model: TrainedModel,
    ids: Ids,
    parts: Parts,
    dtype: torch.dtype,
    *,
    normalized: bool = False,
    ranks: Ranks = ALONE,
) -> Iterator[dict[str, Tensor]]:
    """Yield the entries of a text, segment by segment; those in ``parts`` from before are not computed again.

    Args:
        model: gives the keys.
        ids: (T,) the text.
        parts: receives each segment, with the state that the next one begins with.
        dtype: of the keys.
        normalized: whether to give the log-normalisers of the keys, too.
        ranks: that read their shares of each segment; the first one saves it, and has all of it.

    Yields:
        ``keys`` (M, D), ``labels`` (M,) and, where they are wanted, ``log-normalizers`` (M,), with the state.
    """
    done, part = ranks.all_gather_object(parts.finished())[0], {}
    for part in map(parts.load, range(done)):
        yield part
    state = unpacked_state(part, device_of(model)) if done else None
    for index, segment in enumerate(model.segments(ids, done, state, ranks.rank, ranks.size), done):
        part = {"keys": segment.keys.to(dtype), "labels": segment.labels}
        if normalized:
            # Those of the keys as they are stored: what is followed has to add up with what is not.
            part["log-normalizers"] = log_normalizers(part["keys"], model.head)
        part = {name: ranks.gather(rows) for name, rows in (part | prefixed(STATE, segment.state)).items()}
        yield part  # first: what cannot be remembered is not kept
        if ranks.leads:
            parts.save(index, part)


def _share(whole: AnyMemory, config: MemoryConfig, device: torch.device, ranks: Ranks) -> AnyMemory:
    """Return a memory of a rank's own, which holds its share of the entries of another: a run of them."""
    memory, place = build_memory(whole.dim, config, device), 0
    mine = ranks.partition(len(whole))
    for part in whole.segments():
        some = part.run(max(0, mine.start - place), max(0, mine.stop - place))
        memory.fill(some.keys, some.values, some.log_normalizers)
        place += len(part)
    memory.mark_base()
    return memory


def _include_rows(memory: AnyMemory, head: OutputHead, known: int) -> None:
    """Make the log-normalisers of a loaded memory those of ``head``, of which the first ``known`` rows are counted."""
    new = OutputHead(head.weight[known:], None if head.bias is None else head.bias[known:])
    if not len(new.weight):
        return
    for part in memory.segments():
        if part.log_normalizers is not None:
            where = part.keys.device
            rows = OutputHead(new.weight.to(where), None if new.bias is None else new.bias.to(where))
            part.log_normalizers.copy_(with_rows(part.log_normalizers, part.keys, rows))
    memory.mark_base()
