"""The training text as memory entries: hidden states and labels, computed once and kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from awd_lstm import AWDLSTM
from awd_lstm.streams import Ids
from hebblm.files import hash_of
from hebblm.memory import MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.persistence import AnyMemory
from hebblm.progress import track
from hebblm.text.download import cache_dir

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
) -> AnyMemory:
    """Return a memory that holds the training text, from the cache if it was built before.

    Args:
        model: gives the keys.
        ids: (T,) the training stream.
        config: how entries are kept and searched.
        model_hash: identifies the weights.
        dictionary_hash: identifies the ids.
        device: where to compute, and where exact memories live.
    """
    key = hash_of([model_hash, dictionary_hash, asdict(config), len(ids)])
    folder = cache_dir() / "memory" / key
    if not folder.exists():
        memory = build_memory(model.config.embedding_dim, config, device)
        for keys, values in training_states(model, ids, device):
            memory.add(keys, values)
        save_memory(memory, folder, model_hash=model_hash, dictionary_hash=dictionary_hash)
    return load_memory(folder, model_hash=model_hash, dictionary_hash=dictionary_hash, device=device)
