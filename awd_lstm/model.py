"""The AWD-LSTM language model: token ids in, hidden states out, with a softmax tied to the
embedding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awd_lstm.config import AWDLSTMConfig
from awd_lstm.regularization import drop_weight, embedding_dropout, locked_dropout
from awd_lstm.streams import Share

State = tuple[tuple[Tensor, Tensor], ...]
"""(h, c) of each layer, both (B, H)."""

NewRows = Literal["zero", "uniform", "mean"]


class Output(NamedTuple):
    """Output of a forward pass.

    ``hidden`` (B, T, D) is what the softmax head multiplies; ``raw`` (B, T, D) the same before
    output dropout (equal to ``hidden`` outside training); ``state`` goes into the next call.
    """

    hidden: Tensor
    raw: Tensor
    state: State


class LSTMLayer(nn.Module):
    """LSTM layer with new dropout of its hidden-to-hidden matrix in every training pass.

    ``products`` is the type that a training pass computes in; weights and evaluation keep their own
    type.
    """

    products: torch.dtype | None = None

    def __init__(self, input_dim: int, output_dim: int, wdrop: float) -> None:
        super().__init__()
        self.wdrop = wdrop
        bound = 1 / math.sqrt(output_dim)
        self.weight_ih = nn.Parameter(
            torch.empty(4 * output_dim, input_dim).uniform_(-bound, bound)
        )
        self.weight_hh = nn.Parameter(
            torch.empty(4 * output_dim, output_dim).uniform_(-bound, bound)
        )
        self.bias_ih = nn.Parameter(torch.empty(4 * output_dim).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(4 * output_dim).uniform_(-bound, bound))

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over (T, B, I) from state (B, H) twice; return (T, B, H) and the last state."""
        weights = (
            self.weight_ih,
            drop_weight(self.weight_hh, self.wdrop, self.training),
            self.bias_ih,
            self.bias_hh,
        )
        if not self.training or self.products is None:
            return lstm(x, state, *weights)
        low, (h, c) = self.products, state
        output, last = lstm(
            x.to(low), (h.to(low), c.to(low)), *(weight.to(low) for weight in weights)
        )
        return output.to(x.dtype), (last[0].to(x.dtype), last[1].to(x.dtype))


def lstm(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run one LSTM layer with the given weights, x (T, B, I) -> (T, B, H).

    The weights are passed to the fused kernel as plain tensors, never assigned to a module: that is
    what makes ports of weight drop slow and leak memory. cuDNN wants all of them in one block, so
    on CUDA they are laid out in one first.
    """
    weights = [weight_ih, weight_hh, bias_ih, bias_hh]
    if x.is_cuda:
        block = torch.cat([w.reshape(-1) for w in weights])
        pieces = torch.split(block, [w.numel() for w in weights])
        weights = [piece.view_as(w) for piece, w in zip(pieces, weights, strict=True)]
    h, c = state
    output, h, c = torch.lstm(
        x,
        (h.unsqueeze(0), c.unsqueeze(0)),
        weights,
        True,
        1,
        0.0,
        torch.is_grad_enabled(),
        False,
        False,
    )
    return output, (h.squeeze(0), c.squeeze(0))


class AWDLSTM(nn.Module):
    """AWD-LSTM (Merity, Keskar and Socher 2017) with tied embedding and softmax weights.

    ``share`` says which rows of a larger batch training passes are given; None for a whole one.
    """

    share: Share | None = None

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(
            torch.empty(config.vocabulary_size, config.embedding_dim).uniform_(-0.1, 0.1)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))
        self.layers = nn.ModuleList(LSTMLayer(i, o, config.wdrop) for i, o in config.layer_sizes())

    def train_in(self, products: torch.dtype) -> None:
        """Run the LSTM layers in another type in training passes, while the weights keep their
        own.
        """
        for layer in self.layers:
            cast(LSTMLayer, layer).products = products

    def initial_state(self, batch_size: int) -> State:
        """All-zero state for ``batch_size`` sequences."""
        return tuple(
            (self.bias.new_zeros(batch_size, width), self.bias.new_zeros(batch_size, width))
            for _, width in self.config.layer_sizes()
        )

    def forward(self, tokens: Tensor, state: State) -> Output:
        """Read token ids (B, T) int64 from ``state``; see :class:`Output`."""
        config = self.config
        # (T, B, D)
        x = embedding_dropout(tokens.t(), self.embedding, config.dropoute, self.training)
        x = locked_dropout(x, config.dropouti, self.training, self.share)
        after: list[tuple[Tensor, Tensor]] = []
        for index, layer in enumerate(self.layers):
            x, last = cast(LSTMLayer, layer)(x, state[index])  # (T, B, H)
            after.append(last)
            if index + 1 < len(self.layers):
                x = locked_dropout(x, config.dropouth, self.training, self.share)
        hidden = locked_dropout(x, config.dropout, self.training, self.share)
        return Output(hidden.transpose(0, 1), x.transpose(0, 1), tuple(after))

    def logits(self, hidden: Tensor) -> Tensor:
        """Tied softmax's logits (..., V) of hidden states (..., D)."""
        return F.linear(hidden, self.embedding, self.bias)


def detach(state: State) -> State:
    """Cut the graph: truncated backpropagation carries values, not gradients, across segments."""
    return tuple((h.detach(), c.detach()) for h, c in state)


def parameter_count(model: AWDLSTM) -> int:
    """Number of parameters, the tied matrix counted once."""
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def grow_vocabulary(
    model: AWDLSTM, rows: int, init: NewRows = "zero", generator: torch.Generator | None = None
) -> None:
    """Append ``rows`` words to the tied embedding and softmax of ``model``, in place.

    Args:
        rows: number of new words.
        init: ``zero``, ``uniform`` (in [-0.1, 0.1], as at the start of training) or ``mean`` of the
            trained rows. Biases are zero, or the mean bias for ``mean``.
        generator: source of the ``uniform`` rows.
    """
    weight, bias = model.embedding.data, model.bias.data
    new = weight.new_zeros(rows, weight.shape[1])
    new_bias = bias.new_zeros(rows)
    if init == "uniform":
        new.uniform_(-0.1, 0.1, generator=generator)
    elif init == "mean":
        new += weight.mean(0)
        new_bias += bias.mean()
    model.embedding = nn.Parameter(torch.cat([weight, new]))
    model.bias = nn.Parameter(torch.cat([bias, new_bias]))
    model.config = replace(model.config, vocabulary_size=model.bias.shape[0])
