"""Online learning of a base's weights: gradient steps on the segment read last, for any network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hebblm.models.base import State, StreamBase
from hebblm.models.update import BaseUpdate
from hebblm.tensors import prefixed, under


class GradientBase(StreamBase):
    """A base whose weights take a gradient step after each segment, or none; others can be made of its gradients.

    Args:
        update: how it learns while it reads.
    """

    def __init__(self, update: BaseUpdate | None) -> None:
        self.update = update or BaseUpdate()
        self.tracked = self.update.lr > 0
        """Whether reading keeps the graph for :meth:`loss`."""
        self._optimizer: torch.optim.Optimizer | None = None

    @property
    def moving(self) -> bool:
        """Say whether the base learns while it reads."""
        return self.tracked

    @abstractmethod
    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the weights that may learn, by name."""

    @abstractmethod
    def loss(self, targets: Tensor) -> Tensor:
        """Return the mean loss () of the labels (N,) of the tokens read last, nats, with its graph; once a segment."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let what is read inside be forgotten behind: the stream goes on from where it stood."""
        before = self.stream_state()
        try:
            yield
        finally:
            self.load_stream_state(before)

    @property
    def changed(self) -> bool:
        """Say whether its weights may be others than after construction."""
        return self.tracked

    def state_dict(self) -> State:
        """Return where it stands and what it learned: weights, and what their optimizer remembers."""
        found = prefixed("state ", self.stream_state())
        if self.changed:
            found |= prefixed("weight ", {name: weight.detach() for name, weight in self.parameters().items()})
        if self._optimizer is not None:
            for index, remembered in self._optimizer.state_dict()["state"].items():
                tensors = {name: value for name, value in remembered.items() if isinstance(value, Tensor)}
                found |= prefixed(f"optimizer {index} ", tensors)
        return found

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, where :meth:`state_dict` was asked for."""
        remembered: dict[int, dict[str, Tensor]] = {}
        with torch.no_grad():
            for name, weight in self.parameters().items() if self.changed else ():
                weight.copy_(state[f"weight {name}"])
        for name, tensor in under("optimizer ", state).items():
            index, _, key = name.partition(" ")
            remembered.setdefault(int(index), {})[key] = tensor
        if remembered:
            self._optimizer = self._make_optimizer()
            self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": remembered})
        self.load_stream_state(under("state ", state))

    def learn(self, targets: Tensor) -> None:
        """Take one step on the mean loss of the tokens read last; nothing for a base that is fixed."""
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
