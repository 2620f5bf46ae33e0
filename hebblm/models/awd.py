"""The AWD-LSTM as a trained model and as a base."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import awd_lstm
from awd_lstm import AWDLSTM, detach, grow_vocabulary, read_config
from awd_lstm.loss import linear_cross_entropy
from awd_lstm.model import parameter_count
from awd_lstm.streams import ParallelStreams
from hebblm.models.base import (
    GradientBase,
    Ids,
    NewRows,
    Segment,
    State,
    TrainedModel,
    mean_squares_of,
)
from hebblm.models.update import BaseUpdate
from hebblm.runtime.blocks import one_thread
from hebblm.runtime.progress import track
from hebblm.runtime.ranks import partition
from hebblm.types import OutputHead

STREAMS = 40  # parts of a training stream that are read side by side, at most
SEGMENT = 256  # tokens of each that are read at once
WARM_UP = 256  # tokens before each, whose states are thrown away
GRADIENT_STREAMS = 20
DRAFT = 64  # the most tokens read at once if some may be forgotten
SMALL = 1 << 18  # weights of the largest matrix: a megabyte, which lies in a core's own cache


class AwdBase(GradientBase):
    """An AWD-LSTM that reads one stream, fixed or learning, or several side by side.

    The model, in evaluation mode, is never changed: a base that learns or grows copies it first.
    The other arguments are those of :meth:`hebblm.models.base.TrainedModel.base`.
    """

    def __init__(
        self,
        model: AWDLSTM,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> None:
        super().__init__(update, streams)
        self.init = init
        self.seed = seed
        self._trained = model
        self._rows = rows
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.model = self._trained
        if self.tracked:
            self._own()
        self._generator = torch.Generator(self.model.bias.device).manual_seed(self.seed)
        self._state = self.model.initial_state(self._streams)
        self.grow(self._rows)

    @property
    def head(self) -> OutputHead:
        return _head(self.model)

    def parameters(self) -> dict[str, nn.Parameter]:
        self._own()  # whoever asks for them may change them
        return dict(self.model.named_parameters())

    def _own(self) -> None:
        """Copy the model before its first change."""
        if self.model is self._trained:
            self.model = copy.deepcopy(self._trained)

    def _states(self, ids: Tensor) -> Tensor:
        self._before = self._state, ids
        with one_thread_if_small(self.model.layers, self._streams):
            out = self.model(ids, self._state)
        self._state = detach(out.state)
        hidden: Tensor = out.hidden
        return hidden

    @property
    def max_rewind(self) -> int:
        return DRAFT

    @torch.no_grad()
    def rewind(self, count: int) -> None:
        """Go back to the state before the tokens read last, and read again those that stay."""
        self._state, ids = self._before
        if ids.shape[1] > count:
            self._states(ids[:, : ids.shape[1] - count])

    @torch.no_grad()
    def continuations(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of all continuations at once, the shorter ones padded at their
        end.
        """
        ids = pad_sequence(list(rows), batch_first=True)
        state = tuple((h.repeat(len(rows), 1), c.repeat(len(rows), 1)) for h, c in self._state)
        hidden = self.model(ids, state).hidden
        return [hidden[b, : len(row)] for b, row in enumerate(rows)]

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(
            hidden, self.model.embedding, self.model.bias, targets, self.model.bias.dtype
        )

    def grow(self, rows: int) -> None:
        if rows:
            self._own()
            grow_vocabulary(self.model, rows, self.init, self._generator)
            self._optimizer = None  # its tensors have the old shape

    def stream_state(self) -> State:
        return _named(self._state)

    def load_stream_state(self, state: State) -> None:
        self._state = _layers(state)

    @property
    def changed(self) -> bool:
        return self.tracked or len(self.model.bias) > len(self._trained.bias) + self._rows

    def state_dict(self) -> State:
        """Return the state with the random generator of new rows."""
        return {**super().state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        if "weight bias" in state:
            self.grow(len(state["weight bias"]) - len(self.model.bias))
        self._generator.set_state(state["generator"].cpu())
        super().load_state_dict(state)

    def frozen(self) -> AwdBase:
        return AwdBase(self.model, init=self.init, seed=self.seed)


@dataclass(frozen=True, slots=True)
class AwdModel(TrainedModel):
    """A trained AWD-LSTM and its origin."""

    model: AWDLSTM  # in evaluation mode
    folder: Path  # its checkpoint
    origin: str  # shipped, trained (in the cache) or checkpoint (named by the user)
    sha256: str  # of the weights file

    @property
    def head(self) -> OutputHead:
        return _head(self.model)

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> AwdBase:
        return AwdBase(self.model, rows=rows, init=init, update=update, seed=seed, streams=streams)

    def mean_squares(
        self, train: Ids, segment: int, announce: Callable[[float], None] | None = None
    ) -> list[Tensor]:
        streams = ParallelStreams(train, min(GRADIENT_STREAMS, max(1, len(train) // 2)))
        parameters = list(self.model.parameters())

        def losses() -> Iterator[Tensor]:
            state = self.model.initial_state(streams.batch_size)
            starts = range(0, len(streams), segment)
            for start in track(starts, "gradient statistics", len(starts), "segments", announce):
                inputs, targets = streams.segment(start, segment, parameters[0].device)
                out = self.model(inputs, state)
                state = detach(out.state)
                hidden = out.hidden.reshape(-1, out.hidden.shape[-1])
                bias = self.model.bias
                yield linear_cross_entropy(
                    hidden, self.model.embedding, bias, targets.reshape(-1), bias.dtype
                )

        return mean_squares_of(losses(), parameters)

    @torch.no_grad()
    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream in up to 40 parts side by side; a segment is the next 256 tokens
        of each.

        Each part except the first starts with the 256 tokens before it, whose states are thrown
        away, so that no part starts cold. Several processes divide the parts in their order.
        """
        device = self.model.bias.device
        total = len(ids) - 1
        streams, stride = _parts(total)
        mine = partition(streams, rank, ranks)
        begins = [part * stride for part in mine]
        behind = self.model.initial_state(len(mine))
        if state is not None:
            behind = tuple(
                (h[mine.start : mine.stop], c[mine.start : mine.stop]) for h, c in _layers(state)
            )
        for start in range(done * SEGMENT if done else -WARM_UP, stride, SEGMENT):
            stop = min(start + SEGMENT, stride)
            block = torch.zeros(len(mine), stop - start + 1, dtype=torch.int64)
            real = torch.zeros(len(mine), stop - start, dtype=torch.bool)
            for row, begin in enumerate(begins):
                low, high = begin + start, min(begin + stop, total)
                first = max(low, 0)
                if high > first:
                    block[row, first - low : high - low + 1] = torch.from_numpy(
                        ids[first : high + 1].astype("int64")
                    )
                    real[row, first - low : high - low] = True
            if not mine:
                if start >= 0:
                    yield Segment(
                        self.model.embedding[:0], block.new_zeros(0, device=device), _named(behind)
                    )
                continue
            out = self.model(block[:, :-1].to(device), behind)
            # A part that starts at the very beginning of the text has no past: its state stays
            # empty until position 0.
            behind = tuple((_cold(h, start, begins), _cold(c, start, begins)) for h, c in out.state)
            if start >= 0:
                keep = real.to(device)
                yield Segment(out.hidden[keep], block[:, 1:].to(device)[keep], _named(behind))

    def segment_count(self, total: int) -> int:
        return -(-_parts(total)[1] // SEGMENT)

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        streams, stride = _parts(total)
        runs = [np.empty(0, np.int64)]
        for start in range(0, stride, SEGMENT):
            stop = min(start + SEGMENT, stride)
            for begin in range(0, streams * stride, stride):
                runs.append(np.arange(begin + start, min(begin + stop, total)))
        return np.concatenate(runs) + 1

    def describe(self) -> dict[str, Any]:
        training = read_config(self.folder).get("training", {})
        return {
            "arch": "awd_lstm",
            **self.model.config.to_dict(),
            "parameters": parameter_count(self.model),
            "origin": self.origin,
            "weights_sha256": self.sha256,
            "valid_perplexity": training.get("valid_perplexity"),
            "epochs": training.get("epoch"),
            "training_seconds": training.get("seconds"),
        }


@contextmanager
def one_thread_if_small(layers: nn.Module, streams: int) -> Iterator[None]:
    """Run the block on one thread if it reads one stream and no matrix of the layers is large.

    Reading one stream multiplies each matrix by one vector after the other. A second thread gains
    next to nothing on these, but the first must wait for it after every product. Next to a busy
    process that can take long.
    """
    if (
        streams > 1
        or torch.get_num_threads() == 1
        or max(part.numel() for part in layers.parameters()) > SMALL
    ):
        yield
        return
    with one_thread():
        yield


def _head(model: AWDLSTM) -> OutputHead:
    return OutputHead(model.embedding.detach(), model.bias.detach())


def _named(state: awd_lstm.State) -> State:
    named = {}
    for layer, (hidden, cell) in enumerate(state):
        named[f"{layer} h"] = hidden
        named[f"{layer} c"] = cell
    return named


def _layers(state: State) -> awd_lstm.State:
    return tuple((state[f"{layer} h"], state[f"{layer} c"]) for layer in range(len(state) // 2))


def _parts(total: int) -> tuple[int, int]:
    """Return the number of parts to read side by side, and the most labels of ``total`` that each
    holds.
    """
    streams = max(1, min(STREAMS, total // (4 * WARM_UP)))
    return streams, -(-total // streams)


def _cold(state: Tensor, start: int, begins: list[int]) -> Tensor:
    """Return the state (B, H), empty for the part without a past while the others warm up."""
    if start >= 0:
        return state
    past = torch.tensor([begin > 0 for begin in begins], device=state.device)
    return state * past[:, None]
