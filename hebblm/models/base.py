"""Trained language models and the bases that they open, which read streams: what all have in common."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hebblm.models.update import BaseUpdate as BaseUpdate
from hebblm.tensors import prefixed, under
from hebblm.types import OutputHead

Ids = npt.NDArray[Any]
NewRows = Literal["zero", "uniform", "mean"]
State = dict[str, Tensor]
"""Where a base stands in its stream: tensors by name, as they go into a file."""


class Base(Protocol):
    """Reader of a stream, once and in order, or of several side by side."""

    @property
    def head(self) -> OutputHead:
        """The softmax layer as it is now."""

    def read(self, inputs: Tensor) -> Tensor:
        """Hidden states (N, D) after each of the tokens (N,), going on from the last call.

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
        """Whether the base learns while it reads."""

    def stream_state(self) -> State:
        """Where it stands in the stream, weights apart."""

    def load_stream_state(self, state: State) -> None:
        """Go on from where :meth:`stream_state` was asked for; the weights stay as they are."""

    def state_dict(self) -> State:
        """Where it stands and what it learned, as :meth:`load_state_dict` takes it over."""

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, where :meth:`state_dict` was asked for; called on a base as it is after construction."""

    def aside(self) -> AbstractContextManager[None]:
        """Read something inside that is forgotten afterwards: the stream goes on from where it stood."""

    def branches(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Hidden states (N_b, D) after each of several continuations (N_b,), all of which begin here.

        The stream stays where it stands.
        """

    @property
    def room(self) -> int:
        """How many tokens can be read so that :meth:`back` forgets some of them at no price."""

    def back(self, count: int) -> None:
        """Forget the last ``count`` of the tokens read last, which were no more than :attr:`room`."""

    def frozen(self) -> StreamBase:
        """A base with the weights as they are now, which learns nothing, at the beginning of a stream."""


class GradientBase(StreamBase):
    """A base whose weights take a gradient step after each segment, or none; others can be made of its gradients.

    Args:
        update: how it learns while it reads; None for not at all.
        streams: B, how many are read; several must not move.
    """

    def __init__(self, update: BaseUpdate | None, streams: int) -> None:
        self.update = update or BaseUpdate()
        self.tracked = self.update.lr > 0  # whether reading keeps the graph for loss()
        self._streams = streams
        self._hidden: Tensor | None = None  # (N, D) with its graph
        self._optimizer: torch.optim.Optimizer | None = None

    @abstractmethod
    def parameters(self) -> dict[str, nn.Parameter]:
        """The weights that may learn, by name."""

    @property
    @abstractmethod
    def room(self) -> int: ...

    @abstractmethod
    def back(self, count: int) -> None: ...

    @abstractmethod
    def _states(self, ids: Tensor) -> Tensor:
        """Hidden states (B, N, D) after tokens (B, N), going on from the last call."""

    @abstractmethod
    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean loss () of labels (N,) behind hidden states (N, D), nats."""

    @property
    def moving(self) -> bool:
        return self.tracked

    @property
    def changed(self) -> bool:
        """Whether its weights may be others than after construction."""
        return self.tracked

    def reset(self) -> None:
        self._hidden = self._optimizer = None

    def read(self, inputs: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.tracked):
            hidden = self._states(inputs.view(self._streams, -1))
            # Inside the block: a view made under no_grad would lose its graph.
            hidden = hidden if self._streams > 1 else hidden[0]
        self._hidden = hidden if self.tracked else None
        return hidden.detach()

    def loss(self, targets: Tensor) -> Tensor:
        """Mean loss () of the labels (N,) of the tokens read last, nats, with its graph; once a segment."""
        assert self._hidden is not None, "a loss follows a reading that keeps its graph"
        hidden, self._hidden = self._hidden, None
        return self._loss(hidden, targets)

    def learn(self, targets: Tensor) -> None:
        if not self.tracked:
            return
        parameters = list(self.parameters().values())
        loss = self.loss(targets)
        for parameter in parameters:
            parameter.grad = None
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, self.update.clip)
        self._optimizer = self._optimizer or self._make_optimizer()
        self._optimizer.step()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        kind = torch.optim.RMSprop if self.update.optimizer == "rmsprop" else torch.optim.SGD
        return kind(list(self.parameters().values()), lr=self.update.lr)

    @contextmanager
    def aside(self) -> Iterator[None]:
        before = self.stream_state()
        try:
            yield
        finally:
            self.load_stream_state(before)

    @torch.no_grad()
    def branches(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Hidden states of continuations that are read one after the other."""
        states = []
        for row in rows:
            with self.aside():
                states.append(self.read(row))
        return states

    def state_dict(self) -> State:
        state = prefixed("state ", self.stream_state())
        if self.changed:
            state |= prefixed("weight ", {name: weight.detach() for name, weight in self.parameters().items()})
        if self._optimizer is not None:
            for index, remembered in self._optimizer.state_dict()["state"].items():
                tensors = {name: value for name, value in remembered.items() if isinstance(value, Tensor)}
                state |= prefixed(f"optimizer {index} ", tensors)
        return state

    def load_state_dict(self, state: State) -> None:
        with torch.no_grad():
            for name, weight in self.parameters().items() if self.changed else ():
                weight.copy_(state[f"weight {name}"])
        remembered: dict[int, dict[str, Tensor]] = {}
        for name, tensor in under("optimizer ", state).items():
            index, _, key = name.partition(" ")
            remembered.setdefault(int(index), {})[key] = tensor
        if remembered:
            self._optimizer = self._make_optimizer()
            self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": remembered})
        self.load_stream_state(under("state ", state))


class Segment(NamedTuple):
    """Part of a training stream."""

    keys: Tensor  # (M, D) hidden states
    labels: Tensor  # (M,) that follow them
    state: State  # the network's behind them


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
        """A base at the beginning of a stream.

        Args:
            rows: words appended to its vocabulary from the start (the union policy).
            init: initial value of new rows.
            update: how it learns while it reads; None for not at all.
            seed: of ``uniform`` rows.
            streams: how many it reads side by side; it must not learn where there are several.
        """

    def mean_squares(self, train: Ids, segment: int, announce: Callable[[float], None] | None = None) -> list[Tensor]:
        """Mean square of the gradient of a segment's mean loss, one tensor a parameter of :meth:`base`.

        Args:
            train: (T,) training ids.
            segment: tokens a step.
            announce: told after the first step how many seconds all of them are going to take.
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
        """Number of segments in which :meth:`segments` gives ``total`` labels."""

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        """Place (total,) in the stream of each label, in the order in which :meth:`segments` gives them."""

    def reading(self) -> dict[str, int]:
        """What hidden states depend on beside the weights and the tokens, by name."""

    def describe(self) -> dict[str, Any]:
        """What a result records about the model."""


def device_of(model: TrainedModel) -> torch.device:
    return model.head.weight.device


def hash_of_ids(ids: Ids) -> str:
    """Hash (sha256) of token ids (T,), whatever integers they are kept as."""
    digest, block = hashlib.sha256(), 1 << 22  # so that copies are small
    for start in range(0, len(ids), block):
        digest.update(np.ascontiguousarray(ids[start : start + block], dtype=np.int64).tobytes())
    return digest.hexdigest()


def mean_squares_of(losses: Iterable[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Mean over losses of the square of their gradient, one tensor a parameter."""
    sums, count = [torch.zeros_like(parameter) for parameter in parameters], 0
    for loss in losses:
        for total, gradient in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total += gradient.square()
        count += 1
    return [total / count for total in sums]
