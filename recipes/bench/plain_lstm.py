"""A language model as one would first write it: torch.nn layers, all logits, one optimiser step a
segment.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from awd_lstm import AWDLSTMConfig

State = list[tuple[Tensor, Tensor] | None]


class PlainLSTM(nn.Module):
    """Embedding, LSTM layers and a softmax layer tied to the embedding; no dropout."""

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary_size, config.embedding_dim)
        self.layers = nn.ModuleList(
            nn.LSTM(i, o, batch_first=True) for i, o in config.layer_sizes()
        )
        self.softmax = nn.Linear(config.embedding_dim, config.vocabulary_size)
        self.softmax.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Return logits (B, T, V) of tokens (B, T), and the state that the next segment starts
        from.
        """
        x = self.embedding(tokens)
        after: State = []
        for layer, last in zip(self.layers, state, strict=True):
            x, (h, c) = layer(x, last)
            after.append((h.detach(), c.detach()))
        return self.softmax(x), after


class PlainTraining:
    """Truncated backpropagation through time over segments of one length, by ``sgd`` or
    ``adamw``.
    """

    def __init__(
        self, config: AWDLSTMConfig, *, optimizer: str, lr: float, clip: float, device: torch.device
    ) -> None:
        self.model = PlainLSTM(config).to(device)
        self.clip = clip
        kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=lr)
        self.state: State = [None] * config.layers

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Learn from one segment, inputs and targets (B, T); return its loss, nats a token."""
        logits, self.state = self.model(inputs, self.state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss.item()
