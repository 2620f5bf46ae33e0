"""A base model as the evaluation sees it: it reads tokens, gives hidden states, and may learn afterwards."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor

from awd_lstm import AWDLSTM, detach, grow_vocabulary
from awd_lstm.loss import linear_cross_entropy
from awd_lstm.model import NewRows
from hebblm.models.one_thread import one_thread_if_small
from hebblm.models.update import BaseUpdate as BaseUpdate
from hebblm.types import OutputHead


class Base(Protocol):
    """Reads a stream once, in order."""

    @property
    def head(self) -> OutputHead:
        """The softmax layer as it is now."""

    def read(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (N, D) after each of the tokens (N,), going on from the last call."""

    def learn(self, targets: Tensor) -> None:
        """Learn from the labels (N,) of the tokens read last; called after they were scored."""

    def grow(self, rows: int) -> None:
        """Append rows for words that were observed for the first time."""

    def reset(self) -> None:
        """Return to the state after construction."""


class AwdBase:
    """An AWD-LSTM that reads one stream, fixed or moving.

    Args:
        model: as trained; it is copied, never changed.
        rows: words appended to its vocabulary from the start (the union policy).
        init: initial value of new rows.
        update: how it learns while it reads.
        seed: of ``uniform`` rows.
    """

    def __init__(
        self,
        model: AWDLSTM,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
    ) -> None:
        self.update = update or BaseUpdate()
        self.init = init
        self.seed = seed
        self._trained = model
        self._rows = rows
        self.reset()

    def reset(self) -> None:
        """Return to the trained weights, the initial vocabulary and an empty state."""
        self.model = copy.deepcopy(self._trained).eval()
        self._generator = torch.Generator(self.model.bias.device).manual_seed(self.seed)
        self._hidden: Tensor | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self.state = self.model.initial_state(1)
        self.grow(self._rows)

    @property
    def head(self) -> OutputHead:
        """The tied softmax as it is now; the tensors are the model's own."""
        return OutputHead(self.model.embedding.detach(), self.model.bias.detach())

    @property
    def moving(self) -> bool:
        """Say whether the base learns while it reads."""
        return self.update.lr > 0

    def read(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (N, D) after each of the tokens (N,); a moving base keeps their graph."""
        with torch.set_grad_enabled(self.moving), one_thread_if_small(self.model.layers):
            out = self.model(inputs[None], self.state)
            hidden: Tensor = out.hidden[0]  # within the block: a view made under no_grad would lose its graph
        self.state = detach(out.state)
        self._hidden = hidden if self.moving else None
        states = hidden.detach()
        return states

    def learn(self, targets: Tensor) -> None:
        """Take one step on the mean loss of the tokens read last."""
        if self._hidden is None:
            return
        loss = linear_cross_entropy(
            self._hidden, self.model.embedding, self.model.bias, targets, self.model.bias.dtype
        )
        self.model.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.update.clip)
        self._step().step()
        self._hidden = None

    def grow(self, rows: int) -> None:
        """Append rows; the optimiser starts anew, as its tensors have the old shape."""
        if rows:
            grow_vocabulary(self.model, rows, self.init, self._generator)
            self._optimizer = None

    def _step(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            kind = torch.optim.RMSprop if self.update.optimizer == "rmsprop" else torch.optim.SGD
            self._optimizer = kind(self.model.parameters(), lr=self.update.lr)
        return self._optimizer
