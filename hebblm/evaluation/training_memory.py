"""The training text as memory entries: hidden states and labels, computed once and kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from awd_lstm import AWDLSTM
from awd_lstm.streams import Ids
from hebblm.adapt.functional import log_normalizers, with_rows
from hebblm.files import hash_of
from hebblm.memory import HybridMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.factory import DTYPES
from hebblm.memory.persistence import AnyMemory
from hebblm.progress import track
from hebblm.text.download import cache_dir
from hebblm.types import OutputHead

STREAMS = 40
SEGMENT = 256
WARM_UP = 256


@torch.no_grad()
def training_states(model: AWDLSTM, ids: Ids, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield hidden states (M, D) and the labels (M,) that follow them: every label of a stream but the first.

    The stream is read in up to 40 parts side by side. Each part but the first starts with the 256 tokens before
    it, whose states are thrown away, so that no state is that of a cold start.

    Args:
        model: in evaluation mode.
        ids: (T,) the training stream.
        device: where to compute.
    """
    total = len(ids) - 1
    streams = max(1, min(STREAMS, total // (4 * WARM_UP)))
    stride = -(-total // streams)
    begins = [b * stride for b in range(streams)]
    state = model.initial_state(streams)
    steps = range(-WARM_UP, stride, SEGMENT)
    for start in track(steps, "training states", len(steps), "segments"):
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
                real[row, first - low : high - low] = start >= 0
        out = model(block[:, :-1].to(device), state)
        # A part that starts at the very beginning of the text has no past: its state stays empty until position 0.
        state = tuple((_cold(h, start, begins), _cold(c, start, begins)) for h, c in out.state)
        keep = real.to(device)
        if bool(real.any()):
            yield out.hidden[keep], block[:, 1:].to(device)[keep]


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
    if not folder.exists():
        memory = build_memory(model.config.embedding_dim, config, device)
        for keys, values in training_states(model, ids, device):
            # Those of the keys as they are stored: what is followed has to add up with what is not.
            logs = None if head is None else log_normalizers(keys.to(DTYPES[config.dtype]), model_head(model))
            memory.add(keys, values, logs)
        save_memory(memory, folder, model_hash=model_hash, dictionary_hash=dictionary_hash)
    memory = load_memory(folder, model_hash=model_hash, dictionary_hash=dictionary_hash, device=device)
    if head is not None:
        _include_rows(memory, head, model.config.vocabulary_size)
    return memory


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
