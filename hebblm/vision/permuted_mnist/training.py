"""Training of a network on one task."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.vision.permuted_mnist.ewc import Penalty
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings


def train_task(
    model: MLP,
    pixels: Tensor,
    labels: Tensor,
    settings: PermutedSettings,
    *,
    generator: torch.Generator,
    penalty: Penalty | None = None,
    strength: float = 0.0,
    progress: Callable[[int], None] = lambda epochs: None,
) -> MLP:
    """Minimise the mean cross-entropy, plus EWC's penalty where there is one, by Adam with a fresh state.

    Args:
        model: the network to start from, which stays as it is.
        pixels: (N, D).
        labels: (N,) int64.
        settings: epochs, each in an order of its own, batch size and Adam's learning rate.
        generator: of the orders.
        penalty: on leaving the values that earlier tasks need.
        strength: lambda of the penalty.
        progress: told after each epoch.

    Returns:
        The network after the task.

    Raises:
        UserError: the loss ceased to be finite.
    """
    parameters = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    trained = MLP.of(parameters)
    optimizer = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
    for _ in range(settings.epochs):
        order = torch.randperm(len(pixels), generator=generator).to(pixels.device)
        total = pixels.new_zeros(())
        for batch in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(trained.logits(pixels[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            if penalty is not None:
                penalty.add_gradient(parameters, strength)
            optimizer.step()
            total += loss.detach()
        if not bool(total.isfinite()):
            raise UserError(
                f"training diverged with lr = {settings.lr:g} and penalty strength {strength:g}; lower one of them"
            )
        progress(1)
    return MLP.of(tuple(parameter.detach() for parameter in parameters))
