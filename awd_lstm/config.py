"""Frozen configurations of the model and its named architectures."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class AWDLSTMConfig:
    """Shape and dropout rates of an AWD-LSTM with a tied softmax.

    Args:
        vocabulary_size: rows of the embedding and of the softmax, V.
        embedding_dim: width of the embedding and of the last layer's output, D (they are tied).
        hidden_dim: width of every layer but the last.
        layers: number of LSTM layers.
        dropout: locked dropout on the last layer's output.
        dropouth: locked dropout between the layers.
        dropouti: locked dropout on the embedded input.
        dropoute: dropout of whole words from the embedding matrix.
        wdrop: DropConnect on the hidden-to-hidden matrices.

    Raises:
        ValueError: a size below one or a rate outside [0, 1).
    """

    vocabulary_size: int
    embedding_dim: int = 400
    hidden_dim: int = 1150
    layers: int = 3
    dropout: float = 0.4
    dropouth: float = 0.25
    dropouti: float = 0.65
    dropoute: float = 0.1
    wdrop: float = 0.5

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "embedding_dim", "hidden_dim", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")
        for name in ("dropout", "dropouth", "dropouti", "dropoute", "wdrop"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must lie in [0, 1)")

    def layer_sizes(self) -> list[tuple[int, int]]:
        """(input width, output width) of each layer."""
        widths = [self.embedding_dim, *[self.hidden_dim] * (self.layers - 1), self.embedding_dim]
        return list(itertools.pairwise(widths))

    def to_dict(self) -> dict[str, Any]:
        """Fields as a JSON object."""
        return asdict(self)


ARCHITECTURES: dict[str, Callable[[int], AWDLSTMConfig]] = {  # of a number of words
    # The published Penn Treebank model: 24,221,600 parameters at 10,000 words.
    "awd_lstm_ptb": partial(AWDLSTMConfig, dropouti=0.4),
    # The published WikiText-2 model: 33,556,078 parameters at 33,278 words.
    "awd_lstm_wt2": partial(AWDLSTMConfig, dropouth=0.2),
    # The hidden size that Mi, Lin and Faltings state, 1200 instead of the official 1150.
    "awd_lstm_1200": partial(AWDLSTMConfig, hidden_dim=1200, dropouti=0.4),
    # Two layers that two CPU cores train in well under an hour; light dropout, as the run is short.
    "awd_lstm_small": partial(
        AWDLSTMConfig, embedding_dim=200, hidden_dim=600, layers=2,
        dropout=0.35, dropouth=0.2, dropouti=0.25, dropoute=0.05, wdrop=0.3,
    ),
    # One to three minutes of CPU time on half a million words.
    "awd_lstm_tiny": partial(
        AWDLSTMConfig, embedding_dim=128, hidden_dim=256, layers=2,
        dropout=0.25, dropouth=0.1, dropouti=0.15, dropoute=0.02, wdrop=0.1,
    ),
}  # fmt: skip
