"""The classifier of permuted MNIST: one hidden layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.types import OutputHead


@dataclass(frozen=True, slots=True)
class MLP:
    """Logits ``V relu(W x + b) + v``.

    Args:
        weight: W (H, D).
        bias: b (H,).
        head: V (C, H) and v (C,).
    """

    weight: Tensor
    bias: Tensor
    head: OutputHead

    @classmethod
    def of(cls, parameters: tuple[Tensor, ...]) -> MLP:
        """Return the network of W, b, V, v."""
        weight, bias, output, offset = parameters
        return cls(weight, bias, OutputHead(output, offset))

    @classmethod
    def initial(cls, width: int, hidden: int, classes: int, generator: torch.Generator) -> MLP:
        """Draw every layer uniformly from ``+-1 / sqrt(fan-in)``, as torch does."""

        def uniform(fan_in: int, *shape: int) -> Tensor:
            return (2 * torch.rand(*shape, generator=generator) - 1) / math.sqrt(fan_in)

        return cls.of(
            (
                uniform(width, hidden, width),
                uniform(width, hidden),
                uniform(hidden, classes, hidden),
                uniform(hidden, classes),
            )
        )

    def parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return W, b, V, v."""
        assert self.head.bias is not None  # set by every constructor
        return self.weight, self.bias, self.head.weight, self.head.bias

    def to(self, device: torch.device) -> MLP:
        """Return the network on a device."""
        return MLP.of(tuple(parameter.to(device) for parameter in self.parameters()))

    def inputs(self, pixels: Tensor) -> Tensor:
        """Return ``W x + b`` (..., H), what the hidden units receive, for pixels (..., D)."""
        return torch.nn.functional.linear(pixels, self.weight, self.bias)

    def hidden(self, pixels: Tensor) -> Tensor:
        """Return the hidden activations (..., H) for pixels (..., D)."""
        return self.inputs(pixels).relu()

    def logits(self, pixels: Tensor) -> Tensor:
        """Return the logits (..., C) for pixels (..., D)."""
        return self.head.logits(self.hidden(pixels))
