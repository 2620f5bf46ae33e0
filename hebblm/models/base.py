"""Protocols of a language model that adapts, evaluates and remembers; they name no architecture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.models.update import BaseUpdate as BaseUpdate
from hebblm.types import OutputHead

if TYPE_CHECKING:
    from hebblm.models.learning import GradientBase

Ids = npt.NDArray[Any]


def hash_of_ids(ids: Ids, block: int = 1 << 22) -> str:
    """Return the sha256 of token ids (T,), whatever integers they are kept as, taken block by block."""
    digest = hashlib.sha256()
    for start in range(0, len(ids), block):
        digest.update(np.ascontiguousarray(ids[start : start + block], dtype=np.int64).tobytes())
    return digest.hexdigest()


NewRows = Literal["zero", "uniform", "mean"]
State = dict[str, Tensor]
"""Where a base stands in its stream: tensors by name, as they go into a file."""


class Base(Protocol):
    """Reader of a stream, once and in order, or of several side by side."""

    @property
    def head(self) -> OutputHead:
        """The softmax layer as it is now."""

    def read(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (N, D) after each of the tokens (N,), going on from the last call.

        Where memories keep another layer's states, these stand behind: (N, D + D_key). A base of B streams takes
        (B, N) and returns (B, N, D); what a stream that has ended is given to fill up does no harm.
        """

    def learn(self, targets: Tensor) -> None:
        """Learn from the labels (N,) of the tokens read last; called after they were scored."""

    def grow(self, rows: int) -> None:
        """Append rows for words that were observed for the first time."""

    def reset(self) -> None:
        """Return to the state after construction."""


class StreamBase(Base, Protocol):
    """A base that can say where it stands, and go back there."""

    @property
    def moving(self) -> bool:
        """Say whether the base learns while it reads."""

    def stream_state(self) -> State:
        """Return where it stands in the stream, weights apart."""

    def load_stream_state(self, state: State) -> None:
        """Go on from where :meth:`stream_state` was asked for; the weights stay as they are."""

    def state_dict(self) -> State:
        """Return where it stands and what it learned, as :meth:`load_state_dict` takes it over."""

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, where :meth:`state_dict` was asked for; called on a base as it is after construction."""

    def aside(self) -> AbstractContextManager[None]:
        """Let what is read inside be forgotten behind: the stream goes on from where it stood."""

    def frozen(self) -> StreamBase:
        """Return a base with the weights as they are now, which learns nothing, at the beginning of a stream."""


class Segment(NamedTuple):
    """Hidden states ``keys`` (M, D), the ``labels`` (M,) that follow them, and the network's state behind them."""

    keys: Tensor
    labels: Tensor
    state: State


class TrainedModel(Protocol):
    """A trained language model, which opens bases; it never changes itself."""

    @property
    def sha256(self) -> str:
        """Hash of its weights."""

    @property
    def head(self) -> OutputHead:
        """The softmax layer as trained, (V, D)."""

    @property
    def keyed(self) -> bool:
        """Whether memories keep another layer's states, which bases give behind those of the softmax layer."""

    @property
    def key_width(self) -> int:
        """Width of what memories keep of a state."""

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> GradientBase:
        """Return a base at the beginning of a stream.

        Args:
            rows: words appended to its vocabulary from the start (the union policy).
            init: initial value of new rows.
            update: how it learns while it reads; None for not at all.
            seed: of ``uniform`` rows.
            streams: how many it reads side by side; it must not learn where there are several.
        """

    def mean_squares(self, train: Ids, segment: int, announce: Callable[[float], None] | None = None) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, one tensor a parameter of :meth:`base`.

        Args:
            train: (T,) training ids.
            segment: tokens a step.
            announce: told behind the first step how many seconds all of them are going to take.
        """

    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream; its segments hold every label but the first, once.

        Args:
            ids: (T,) the stream.
            done: segments that were read before.
            state: the network's behind them.
            rank: of several processes: a segment is what they give, that of the first one first.
            ranks: how many they are.
        """

    def segment_count(self, total: int) -> int:
        """Return in how many segments :meth:`segments` gives ``total`` labels."""

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        """Return the place (total,) in the stream of each label, in the order in which :meth:`segments` gives them."""

    def reading(self) -> dict[str, int]:
        """Return what hidden states depend on beside the weights and the tokens, by name."""

    def describe(self) -> dict[str, Any]:
        """Return what a result records about the model."""


def device_of(model: TrainedModel) -> torch.device:
    """Return where a model computes."""
    return model.head.weight.device
