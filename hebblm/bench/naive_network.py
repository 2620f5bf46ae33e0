"""The plain form of MbPA over a whole network: a copy of every parameter a query, and automatic differentiation."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.vision.permuted_mnist.mlp import MLP


def adapted_logits(
    model: MLP, query: Tensor, keys: Tensor, labels: Tensor, weights: Tensor, *, rate: float, steps: int
) -> Tensor:
    """Fit a copy of all four parameters to one query's neighbours and return its logits (C,) (Eq. 5).

    Args:
        model: stays as it is.
        query: (D,) pixels.
        keys: (K, D) pixels of the neighbours.
        labels: (K,) int64.
        weights: (K,) ``c_k / |N|``.
        rate: learning rate.
        steps: number of steps.
    """
    copies = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    own = MLP.of(copies)
    optimizer = torch.optim.SGD(copies, lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(own.logits(keys), labels, reduction="none")
        torch.autograd.backward((weights * losses).sum())
        optimizer.step()
    return own.logits(query).detach()
