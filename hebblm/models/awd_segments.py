"""The training text as an AWD-LSTM reads it: in parts side by side, for keys and for the size of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from awd_lstm import AWDLSTM, State, detach
from awd_lstm.loss import linear_cross_entropy
from awd_lstm.streams import ParallelStreams
from hebblm.models import base
from hebblm.models.base import Ids, Segment
from hebblm.progress import track
from hebblm.ranks import partition

STREAMS = 40
SEGMENT = 256
WARM_UP = 256


@torch.no_grad()
def read_segments(
    model: AWDLSTM,
    ids: Ids,
    done: int = 0,
    before: base.State | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[Segment]:
    """Read the training stream; its segments hold every label but the first, once.

    The stream is read in up to 40 parts side by side, of which a segment is the next 256 tokens each. Each part but
    the first starts with the 256 tokens before it, whose states are thrown away, so that no state is that of a cold
    start.

    Args:
        model: in evaluation mode.
        ids: (T,) the training stream.
        done: segments that were read before.
        before: the network's state behind them.
        rank: of several processes, over which the parts are divided in their order.
        ranks: how many they are.
    """
    device = model.bias.device
    total = len(ids) - 1
    streams, stride = streams_of(total)
    mine = partition(streams, rank, ranks)
    begins = [b * stride for b in mine]
    state = model.initial_state(len(mine))
    if before is not None:
        state = tuple((h[mine.start : mine.stop], c[mine.start : mine.stop]) for h, c in layers_of(before))
    for start in range(done * SEGMENT if done else -WARM_UP, stride, SEGMENT):
        stop = min(start + SEGMENT, stride)
        block = torch.zeros(len(mine), stop - start + 1, dtype=torch.int64)
        real = torch.zeros(len(mine), stop - start, dtype=torch.bool)
        for row, begin in enumerate(begins):
            low, high = begin + start, min(begin + stop, total)
            first = max(low, 0)
            if high > first:
                block[row, first - low : high - low + 1] = torch.from_numpy(ids[first : high + 1].astype("int64"))
                real[row, first - low : high - low] = True
        if not mine:
            if start >= 0:
                yield Segment(model.embedding[:0], block.new_zeros(0, device=device), named_state(state))
            continue
        out = model(block[:, :-1].to(device), state)
        # A part that starts at the very beginning of the text has no past: its state stays empty until position 0.
        state = tuple((_cold(h, start, begins), _cold(c, start, begins)) for h, c in out.state)
        if start >= 0:
            keep = real.to(device)
            yield Segment(out.hidden[keep], block[:, 1:].to(device)[keep], named_state(state))


def streams_of(total: int) -> tuple[int, int]:
    """Return how many parts are read side by side, and how many of ``total`` labels each holds at most."""
    streams = max(1, min(STREAMS, total // (4 * WARM_UP)))
    return streams, -(-total // streams)


def segment_count(total: int) -> int:
    """Return the number of segments that hold ``total`` labels."""
    return -(-streams_of(total)[1] // SEGMENT)


def label_places(total: int) -> npt.NDArray[np.int64]:
    """Return the place (total,) of each label in the training text, in the order of :func:`read_segments`."""
    streams, stride = streams_of(total)
    runs = [
        np.arange(begin + start, min(begin + min(start + SEGMENT, stride), total))
        for start in range(0, stride, SEGMENT)
        for begin in range(0, streams * stride, stride)
    ]
    return np.concatenate(runs) + 1 if runs else np.empty(0, np.int64)


def named_state(state: State) -> base.State:
    """Return the LSTM's state by name."""
    return {
        f"{layer} {name}": tensor for layer, pair in enumerate(state) for name, tensor in zip("hc", pair, strict=True)
    }


def layers_of(state: base.State) -> State:
    """Return the LSTM's state from its tensors by name; the inverse of :func:`named_state`."""
    return tuple((state[f"{layer} h"], state[f"{layer} c"]) for layer in range(len(state) // 2))


def gradient_mean_squares(
    model: AWDLSTM, train: Ids, segment: int, announce: Callable[[float], None] | None = None
) -> list[Tensor]:
    """Return the mean over training segments of the squared gradient of a segment's mean loss, by parameter.

    Args:
        model: in evaluation mode.
        train: (T,) training ids, read as 20 parallel streams.
        segment: tokens a step.
        announce: told behind the first step how many seconds all of them are going to take.
    """
    streams = ParallelStreams(train, min(20, max(1, len(train) // 2)))
    parameters = list(model.parameters())
    sums = [torch.zeros_like(p) for p in parameters]
    state = model.initial_state(streams.batch_size)
    starts = range(0, len(streams), segment)
    for start in track(starts, "gradient statistics", len(starts), "segments", announce):
        inputs, targets = streams.segment(start, segment, parameters[0].device)
        out = model(inputs, state)
        state = detach(out.state)
        hidden = out.hidden.reshape(-1, out.hidden.shape[-1])
        loss = linear_cross_entropy(hidden, model.embedding, model.bias, targets.reshape(-1), model.bias.dtype)
        for total, g in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total += g.square()
    return [total / len(starts) for total in sums]


def _cold(state: Tensor, start: int, begins: list[int]) -> Tensor:
    """Clear the state (B, H) of the part without a past while the others warm up."""
    if start >= 0:
        return state
    past = torch.tensor([begin > 0 for begin in begins], device=state.device)
    return state * past[:, None]
