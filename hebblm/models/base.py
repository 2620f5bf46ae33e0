"""Interfaces of trained language models, and of the bases that they open to read streams."""

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

from hebblm.io.groups import prefixed, under
from hebblm.models.update import BaseUpdate as BaseUpdate
from hebblm.runtime.progress import track
from hebblm.types import OutputHead

Ids = npt.NDArray[Any]
NewRows = Literal["zero", "uniform", "mean"]
SEGMENT = 256  # tokens of a training text that a model reads at once, if it has no way of its own
State = dict[str, Tensor]
"""Place of a base in its stream: tensors by name, ready for a file."""


class Base(Protocol):
    """Reader of a stream, once and in order, or of several side by side."""

    @property
    def head(self) -> OutputHead:
        """The present softmax layer."""

    def read(self, inputs: Tensor) -> Tensor:
        """Return hidden states (N, D) after each of the tokens (N,), going on from the last call.

        If memories keep another layer's states, these follow: (N, D + D_key). A base of B streams
        takes (B, N) and returns (B, N, D); padding after the end of a stream does no harm.
        """

    def learn(self, targets: Tensor) -> None:
        """Learn from the labels (N,) of the tokens read last; called after they were scored."""

    def grow(self, rows: int) -> None:
        """Append rows for new words."""

    def reset(self) -> None:
        """Return to the state after construction."""

    def state_dict(self) -> State:
        """Return place and learned weights, for :meth:`load_state_dict`."""

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, from :meth:`state_dict`; call this only just after construction."""


class StreamBase(Base, Protocol):
    """A base that can save its place in the stream, and go back there."""

    @property
    def trains_online(self) -> bool:
        """Whether the base learns while it reads."""

    def stream_state(self) -> State:
        """Return the place in the stream, without weights."""

    def load_stream_state(self, state: State) -> None:
        """Go on from the place of :meth:`stream_state`; the weights stay as they are."""

    def preserve_state(self) -> AbstractContextManager[None]:
        """Forget the tokens read in the block: the stream goes on from where it stood."""

    def continuations(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return hidden states (N_b, D) after each token of several continuations (N_b,), which all
        begin here.

        The stream stays where it stands.
        """

    @property
    def max_rewind(self) -> int:
        """Number of tokens that :meth:`back` could still undo at no cost."""

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` of the tokens read last, which must not exceed :attr:`room`."""

    def frozen(self) -> StreamBase:
        """Return a base with the present weights, which learns nothing, at the beginning of a
        stream.
        """


class GradientBase(StreamBase):
    """A base whose weights can take a gradient step after each segment; other bases can use its
    gradients.

    A new kind has ``head``, ``parameters``, ``_states``, ``_loss``, ``stream_state``,
    ``load_stream_state`` and ``frozen``; the rest follows from these.

    Args:
        update: settings of learning while it reads; None for a fixed base.
        streams: B, number of streams; a base of several must be fixed.
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
    def max_rewind(self) -> int:
        return 0

    def rewind(self, count: int) -> None:
        assert count == 0, "a base that keeps no earlier states has no room to go back"

    def grow(self, rows: int) -> None:
        if rows:
            raise ValueError(f"a closed vocabulary was given {rows} more rows")

    @abstractmethod
    def _states(self, ids: Tensor) -> Tensor:
        """Return hidden states (B, N, D) after tokens (B, N), going on from the last call."""

    @abstractmethod
    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss () of labels (N,) after hidden states (N, D), nats."""

    @property
    def trains_online(self) -> bool:
        return self.tracked

    @property
    def changed(self) -> bool:
        """Whether its weights may have changed since construction."""
        return self.tracked

    def reset(self) -> None:
        self._hidden = self._optimizer = None

    def read(self, inputs: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.tracked):
            hidden = self._states(inputs.view(self._streams, -1))
            # Inside the block: a view made under no_grad would lose its graph.
            if self._streams == 1:
                hidden = hidden[0]
        self._hidden = hidden if self.tracked else None
        return hidden.detach()

    def loss(self, targets: Tensor) -> Tensor:
        """Return the mean loss () of labels (N,) of the tokens read last, nats, with its graph;
        once per segment.
        """
        assert self._hidden is not None, "a loss follows a reading that keeps its graph"
        hidden = self._hidden
        self._hidden = None
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
    def preserve_state(self) -> Iterator[None]:
        before = self.stream_state()
        try:
            yield
        finally:
            self.load_stream_state(before)

    @torch.no_grad()
    def continuations(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of continuations, read one after the other."""
        states = []
        for row in rows:
            with self.preserve_state():
                states.append(self.read(row))
        return states

    def state_dict(self) -> State:
        state = prefixed("state ", self.stream_state())
        if self.changed:
            state |= prefixed(
                "weight ", {name: weight.detach() for name, weight in self.parameters().items()}
            )
        if self._optimizer is not None:
            for index, remembered in self._optimizer.state_dict()["state"].items():
                tensors = {
                    name: value for name, value in remembered.items() if isinstance(value, Tensor)
                }
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
    state: State  # the network's state after them


class TrainedModel(Protocol):
    """A trained language model, which opens bases and never changes.

    A new kind derives from this class and has ``sha256``, ``head`` and ``base``. The rest follows
    from these; a kind overrides what it can do faster.
    """

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Hash of its weights."""

    @property
    @abstractmethod
    def head(self) -> OutputHead:
        """The softmax layer as trained, (V, D)."""

    @abstractmethod
    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> GradientBase:
        """Open a base at the beginning of a stream.

        Args:
            rows: words appended to its vocabulary from the start (the union policy).
            init: initial value of new rows.
            update: settings of learning while it reads; None for a fixed base.
            seed: seed of ``uniform`` rows.
            streams: number of streams read side by side; several need a fixed base.
        """

    @property
    def keyed(self) -> bool:
        """Whether memories keep another layer's states, which bases return after those of the
        softmax layer.
        """
        return False

    @property
    def key_width(self) -> int:
        """Width of a memory's keys."""
        return self.head.weight.shape[1]

    def mean_squares(
        self, train: Ids, segment: int, announce: Callable[[float], None] | None = None
    ) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, one tensor per parameter
        of :meth:`base`.

        Args:
            train: (T,) training ids.
            segment: tokens of each step.
            announce: called after the first step with the seconds that all steps will take.
        """
        base = self.base()
        base.tracked = True
        parameters = list(base.parameters().values())
        ids = torch.from_numpy(np.asarray(train, dtype=np.int64)).to(device_of(self))

        def losses() -> Iterator[Tensor]:
            starts = range(0, len(ids) - 1, segment)
            for start in track(starts, "gradient statistics", len(starts), "segments", announce):
                stop = min(start + segment, len(ids) - 1)
                base.read(ids[start:stop])
                yield base.loss(ids[start + 1 : stop + 1])

        return mean_squares_of(losses(), parameters)

    @torch.no_grad()
    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream; its segments hold every label except the first, once.

        A segment is the next run of tokens; of several processes the first one reads them all.

        Args:
            ids: (T,) the stream.
            done: number of segments that were read before.
            state: the network's state after these.
            rank: rank of this process; a segment joins the parts of all ranks, the first one first.
            ranks: number of processes.
        """
        base = self.base()
        if state is not None:
            base.load_stream_state(state)
        tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device_of(self))
        for start in range(done * SEGMENT, len(tokens) - 1, SEGMENT):
            stop = min(start + SEGMENT, len(tokens) - 1)
            if rank > 0:
                keys = self.head.weight.new_zeros(0, self.key_width)
                yield Segment(keys, tokens[:0], base.stream_state())
                continue
            hidden = base.read(tokens[start:stop])[:, -self.key_width :]  # (M, D)
            yield Segment(hidden, tokens[start + 1 : stop + 1], base.stream_state())

    def segment_count(self, total: int) -> int:
        """Return the number of segments in which :meth:`segments` yields ``total`` labels."""
        return -(-total // SEGMENT)

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        """Return the place (total,) in the stream of each label, in the order of
        :meth:`segments`.
        """
        return np.arange(1, total + 1, dtype=np.int64)

    def reading(self) -> dict[str, int]:
        """Return the numbers, by name, that hidden states depend on besides weights and tokens."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Describe the model for a result."""
        return {"arch": type(self).__name__, "weights_sha256": self.sha256}


def device_of(model: TrainedModel) -> torch.device:
    return model.head.weight.device


def hash_of_ids(ids: Ids) -> str:
    """Return the hash (sha256) of token ids (T,), for any type of integers."""
    digest, block = hashlib.sha256(), 1 << 22  # so that copies are small
    for start in range(0, len(ids), block):
        digest.update(np.ascontiguousarray(ids[start : start + block], dtype=np.int64).tobytes())
    return digest.hexdigest()


def mean_squares_of(losses: Iterable[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over losses of the square of their gradient, one tensor per parameter."""
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    count = 0
    for loss in losses:
        for total, gradient in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total += gradient.square()
        count += 1
    return [total / count for total in sums]
