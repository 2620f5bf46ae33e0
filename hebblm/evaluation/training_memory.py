"""The training text as memory entries: hidden states and labels, computed once and kept in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from awd_lstm import AWDLSTM
from awd_lstm.model import State
from awd_lstm.streams import Ids
from hebblm.adapt.functional import log_normalizers, with_rows
from hebblm.evaluation.parts import Parts, packed_state, unpacked_state
from hebblm.files import hash_of
from hebblm.memory import HybridMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.persistence import AnyMemory
from hebblm.progress import bar, say, track
from hebblm.text.download import cache_dir
from hebblm.types import OutputHead

STREAMS = 40
SEGMENT = 256
WARM_UP = 256


class Segment(NamedTuple):
    """Hidden states ``keys`` (M, D), the ``labels`` (M,) that follow them, and the network's state behind them."""

    keys: Tensor
    labels: Tensor
    state: State


def training_states(model: AWDLSTM, ids: Ids, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield hidden states (M, D) and the labels (M,) that follow them; see :func:`read_segments`."""
    segments = read_segments(model, ids, device)
    for segment in track(segments, "training states", _segments(len(ids) - 1), "segments"):
        yield segment.keys, segment.labels


@torch.no_grad()
def read_segments(
    model: AWDLSTM, ids: Ids, device: torch.device, done: int = 0, state: State | None = None
) -> Iterator[Segment]:
    """Read the training stream; its segments hold every label but the first, once.

    The stream is read in up to 40 parts side by side, of which a segment is the next 256 tokens each. Each part but
    the first starts with the 256 tokens before it, whose states are thrown away, so that no state is that of a cold
    start.

    Args:
        model: in evaluation mode.
        ids: (T,) the training stream.
        device: where to compute.
        done: segments that were read before.
        state: the network's behind them.
    """
    total = len(ids) - 1
    streams, stride = streams_of(total)
    begins = [b * stride for b in range(streams)]
    state = model.initial_state(streams) if state is None else state
    for start in range(done * SEGMENT if done else -WARM_UP, stride, SEGMENT):
        stop = min(start + SEGMENT, stride)
        block = torch.zeros(streams, stop - start + 1, dtype=torch.int64)
        real = torch.zeros(streams, stop - start, dtype=torch.bool)
        for row, begin in enumerate(begins):
            low, high = begin + start, min(begin + stop, total)
            first = max(low, 0)
            if high > first:
                block[row, first - low : high - low + 1] = torch.from_numpy(
                    ids[first : high + 1].astype("int64")
                )
                real[row, first - low : high - low] = True
        out = model(block[:, :-1].to(device), state)
        # A part that starts at the very beginning of the text has no past: its state stays empty until position 0.
        state = tuple((_cold(h, start, begins), _cold(c, start, begins)) for h, c in out.state)
        if start >= 0:
            keep = real.to(device)
            yield Segment(out.hidden[keep], block[:, 1:].to(device)[keep], state)


def streams_of(total: int) -> tuple[int, int]:
    """Return how many parts are read side by side, and how many of ``total`` labels each holds at most."""
    streams = max(1, min(STREAMS, total // (4 * WARM_UP)))
    return streams, -(-total // streams)


def _segments(total: int) -> int:
    """Return the number of segments that hold ``total`` labels."""
    return -(-streams_of(total)[1] // SEGMENT)


def _cold(state: Tensor, start: int, begins: list[int]) -> Tensor:
    """Clear the state (B, H) of the part without a past while the others warm up."""
    if start >= 0:
        return state
    past = torch.tensor([begin > 0 for begin in begins], device=state.device)
    return state * past[:, None]


def training_memory(
    model: AWDLSTM,
    ids: Ids,
    config: MemoryConfig,
    *,
    model_hash: str,
    dictionary_hash: str,
    device: torch.device,
    head: OutputHead | None = None,
) -> AnyMemory:
    """Return a memory that holds the training text, from the cache if it was built before.

    It is built in parts that are kept until it is whole: an interrupted build goes on where it was.

    Args:
        model: gives the keys.
        ids: (T,) the training stream.
        config: how entries are kept and searched.
        model_hash: identifies the weights.
        dictionary_hash: identifies the ids.
        device: where to compute, and where exact memories live.
        head: the softmax layer whose log-normalisers of the keys are wanted: the model's own and rows of new words
            behind it. None if it will move, which would make them wrong.
    """
    identity = [model_hash, dictionary_hash, asdict(config), len(ids)]
    folders = [cache_dir() / "memory" / hash_of(key) for key in (identity, [*identity, "log-normalizers"])]
    folder = folders[head is not None or folders[1].exists()]
    parts = Parts(folder.with_name(f"{folder.name}.parts"))
    if not folder.exists():
        memory = build_memory(model.config.embedding_dim, config, device)
        with parts.held():
            if not folder.exists():  # another process may have built it meanwhile
                for half in folder.parent.glob(
                    f".{folder.name}.*"
                ):  # of a process that was killed while it saved
                    shutil.rmtree(half)
                save = partial(
                    save_memory, memory, folder, model_hash=model_hash, dictionary_hash=dictionary_hash
                )
                _build(memory, model, ids, parts, device, normalized=head is not None, save=save)
    else:
        say(f"the memory of the training text is there from an earlier run ({folder})")
    shutil.rmtree(parts.folder, ignore_errors=True)
    memory = load_memory(folder, model_hash=model_hash, dictionary_hash=dictionary_hash, device=device)
    if head is not None:
        _include_rows(memory, head, model.config.vocabulary_size)
    return memory


def _build(
    memory: AnyMemory,
    model: AWDLSTM,
    ids: Ids,
    parts: Parts,
    device: torch.device,
    *,
    normalized: bool,
    save: Callable[[], None],
) -> None:
    """Fill a memory with the training text, and save it; parts that are there are not computed again."""
    total, done = _segments(len(ids) - 1), parts.finished()
    parts.check(done)
    state = unpacked_state(parts.load(done - 1), device) if done else None
    for part in map(parts.load, range(done)):
        memory.add(part["keys"], part["labels"], part.get("log-normalizers"))
    whence = f"goes on from part {done + 1:,} of {total:,}" if done else f"is read once, in {total:,} parts"
    say(f"the memory of the training text {whence}; if it is interrupted, the same command goes on")
    with bar() as progress:
        resumed = f", going on from part {done + 1:,}" if done else ""
        task = progress.add_task(f"training memory{resumed}", total=total + 1, completed=done, unit="parts")
        for index, segment in enumerate(read_segments(model, ids, device, done, state), done):
            tensors = {"keys": segment.keys.to(memory.dtype), "labels": segment.labels}
            if normalized:
                # Those of the keys as they are stored: what is followed has to add up with what is not.
                tensors["log-normalizers"] = log_normalizers(tensors["keys"], model_head(model))
            memory.add(tensors["keys"], tensors["labels"], tensors.get("log-normalizers"))
            parts.save(index, {**tensors, **packed_state(segment.state)})
            progress.advance(task)
        save()  # with the index, the last step
        progress.advance(task)


def model_head(model: AWDLSTM) -> OutputHead:
    """Return the model's softmax layer."""
    return OutputHead(model.embedding.detach(), model.bias.detach())


def _include_rows(memory: AnyMemory, head: OutputHead, known: int) -> None:
    """Make the log-normalisers of a loaded memory those of ``head``, of which the first ``known`` rows are counted."""
    new = OutputHead(head.weight[known:], None if head.bias is None else head.bias[known:])
    if not len(new.weight):
        return
    parts = memory.parts() if isinstance(memory, HybridMemory) else [memory.entries()]
    for part in parts:
        if part.log_normalizers is not None:
            where = part.keys.device
            rows = OutputHead(new.weight.to(where), None if new.bias is None else new.bias.to(where))
            part.log_normalizers.copy_(with_rows(part.log_normalizers, part.keys, rows))
    memory.mark_base()
