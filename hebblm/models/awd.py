"""The AWD-LSTM as a base: it reads one stream, fixed or moving."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from awd_lstm import AWDLSTM, detach, grow_vocabulary, read_config
from awd_lstm import model as network
from awd_lstm.loss import linear_cross_entropy
from hebblm.models import awd_segments
from hebblm.models.base import Ids, NewRows, Segment, State
from hebblm.models.learning import GradientBase
from hebblm.models.one_thread import one_thread_if_small
from hebblm.models.update import BaseUpdate
from hebblm.types import OutputHead


class AwdBase(GradientBase):
    """An AWD-LSTM that reads one stream, fixed or moving, or several side by side.

    Args:
        model: as trained; it is copied, never changed.
        rows: words appended to its vocabulary from the start (the union policy).
        init: initial value of new rows.
        update: how it learns while it reads.
        seed: of ``uniform`` rows.
        streams: B, how many are read; several must not move.
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
        super().__init__(update)
        self.init = init
        self.seed = seed
        self._trained = model
        self._rows = rows
        self._streams = streams
        self.reset()

    def reset(self) -> None:
        """Return to the trained weights, the initial vocabulary and an empty state."""
        self.model = copy.deepcopy(self._trained).eval()
        self._generator = torch.Generator(self.model.bias.device).manual_seed(self.seed)
        self._hidden: Tensor | None = None
        self._optimizer = None
        self._state = self.model.initial_state(self._streams)
        self.grow(self._rows)

    @property
    def head(self) -> OutputHead:
        """The tied softmax as it is now; the tensors are the model's own."""
        return model_head(self.model)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return all weights, by name."""
        return dict(self.model.named_parameters())

    def read(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (N, D) after each of the tokens (N,); a moving base keeps their graph.

        Where several streams are read, (B, N, D) after (B, N).
        """
        alone = nullcontext() if self._streams > 1 else one_thread_if_small(self.model.layers)
        with torch.set_grad_enabled(self.tracked), alone:
            out = self.model(inputs.view(self._streams, -1), self._state)
            hidden: Tensor = out.hidden  # within the block: a view made under no_grad would lose its graph
            hidden = hidden if self._streams > 1 else hidden[0]
        self._state = detach(out.state)
        self._hidden = hidden if self.tracked else None
        states = hidden.detach()
        return states

    def loss(self, targets: Tensor) -> Tensor:
        """Return the mean loss () of the labels (N,) of the tokens read last, nats, with its graph; once a segment."""
        assert self._hidden is not None, "a loss follows a reading that keeps its graph"
        hidden, self._hidden = self._hidden, None
        return linear_cross_entropy(hidden, self.model.embedding, self.model.bias, targets, self.model.bias.dtype)

    def grow(self, rows: int) -> None:
        """Append rows; the optimiser starts anew, as its tensors have the old shape."""
        if rows:
            grow_vocabulary(self.model, rows, self.init, self._generator)
            self._optimizer = None

    def stream_state(self) -> State:
        """Return (h, c) of each layer by name."""
        return awd_segments.named_state(self._state)

    def load_stream_state(self, state: State) -> None:
        """Go on from such a state."""
        self._state = awd_segments.layers_of(state)

    @property
    def changed(self) -> bool:
        """Say whether its weights may be others than after construction: it learns, or words were appended."""
        return self.tracked or len(self.model.bias) > len(self._trained.bias) + self._rows

    def state_dict(self) -> State:
        """Return where it stands and what it learned, with what new rows are drawn from."""
        return {**super().state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, where :meth:`state_dict` was asked for."""
        if "weight bias" in state:
            self.grow(len(state["weight bias"]) - len(self.model.bias))
        self._generator.set_state(state["generator"].cpu())
        super().load_state_dict(state)

    def frozen(self) -> AwdBase:
        """Return a base with the weights as they are now, at the beginning of a stream."""
        return AwdBase(self.model)


@dataclass(frozen=True, slots=True)
class AwdModel:
    """A trained AWD-LSTM and where it came from.

    Args:
        model: in evaluation mode.
        folder: its checkpoint.
        origin: ``shipped``, ``trained`` (in the cache) or ``checkpoint`` (named by the user).
        sha256: of the weights file.
    """

    model: AWDLSTM
    folder: Path
    origin: str
    sha256: str

    @property
    def head(self) -> OutputHead:
        """The tied softmax."""
        return model_head(self.model)

    @property
    def keyed(self) -> bool:
        """Memories keep the states of the softmax layer."""
        return False

    @property
    def key_width(self) -> int:
        """Width of these states."""
        return self.model.config.embedding_dim

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> AwdBase:
        """Return a base at the beginning of its streams; the arguments are those of :class:`AwdBase`."""
        return AwdBase(self.model, rows=rows, init=init, update=update, seed=seed, streams=streams)

    def mean_squares(self, train: Ids, segment: int, announce: Callable[[float], None] | None = None) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, by parameter."""
        return awd_segments.gradient_mean_squares(self.model, train, segment, announce)

    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream in parts side by side; see :func:`hebblm.models.awd_segments.read_segments`."""
        return awd_segments.read_segments(self.model, ids, done, state, rank, ranks)

    def segment_count(self, total: int) -> int:
        """Return in how many segments ``total`` labels are given."""
        return awd_segments.segment_count(total)

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        """Return the place (total,) in the stream of each label, in the order in which they are given."""
        return awd_segments.label_places(total)

    def reading(self) -> dict[str, int]:
        """Return nothing: states depend on weights and tokens alone."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return what a result records about the model."""
        training = read_config(self.folder).get("training", {})
        return {
            "arch": "awd_lstm",
            **self.model.config.to_dict(),
            "parameters": network.parameter_count(self.model),
            "origin": self.origin,
            "weights_sha256": self.sha256,
            "valid_perplexity": training.get("valid_perplexity"),
            "epochs": training.get("epoch"),
            "training_seconds": training.get("seconds"),
        }


def model_head(model: AWDLSTM) -> OutputHead:
    """Return a model's softmax layer."""
    return OutputHead(model.embedding.detach(), model.bias.detach())
