"""Training of a network on pictures, and reading of their features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.types import OutputHead
from hebblm.vision.backbones.classifier import Classifier
from hebblm.vision.errors import DivergedError
from hebblm.vision.new_classes.pictures import Pictures
from hebblm.vision.new_classes.settings import PretrainingSettings

READ = 100  # pictures read at a time; more are slower, the maps of a layer no longer fit a cache
MODEL = "model."


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """Yield parts of ``order`` (n,), the last of which may be smaller, but no single picture: a norm needs two."""
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


def learn(classifier: Classifier, optimizer: torch.optim.Optimizer, pictures: Tensor, labels: Tensor) -> Tensor:
    """Take one step on the mean cross-entropy of a batch.

    Args:
        classifier: trained; its norms use and gather the batch's statistics.
        optimizer: of its parameters.
        pictures: (n, 3, H, W).
        labels: (n,) int64.

    Returns:
        The loss () before the step, in nats.
    """
    classifier.train()
    optimizer.zero_grad()
    with torch.enable_grad():  # a stream is learnt from while its predictions are read without gradients
        loss = torch.nn.functional.cross_entropy(classifier(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


@dataclass(frozen=True, slots=True)
class Training:
    """Network that learns from pictures.

    Args:
        classifier: trained.
        optimizer: of its parameters.
        pictures: where the samples are.
        settings: how they are cropped and flipped.
    """

    classifier: Classifier
    optimizer: torch.optim.Optimizer
    pictures: Pictures
    settings: PretrainingSettings

    def epoch(
        self,
        samples: Tensor,
        *,
        batch_size: int,
        generator: torch.Generator,
        lr: Callable[[int], float] | None = None,
        progress: Callable[[int], None] = lambda pictures: None,
    ) -> None:
        """Pass once over the pictures in a new order, each cropped and mirrored anew.

        Args:
            samples: (n,) int64.
            batch_size: pictures a step.
            generator: of order, crops and flips.
            lr: the learning rate at a step of this epoch; None leaves it as it is.
            progress: told how many pictures were seen.

        Raises:
            DivergedError: the loss ceased to be finite.
        """
        labels, crops = self.pictures.labels, self.settings
        order = samples[torch.randperm(len(samples), generator=generator)]
        total = torch.zeros((), device=labels.device)
        for step, index in enumerate(batches(order, batch_size)):
            if lr is not None:
                for group in self.optimizer.param_groups:
                    group["lr"] = lr(step)
            varied = self.pictures.varied(index, generator, padding=crops.padding, flip=crops.flip)
            total += learn(self.classifier, self.optimizer, varied, labels[index.to(labels.device)])
            progress(len(index))
        if not bool(total.isfinite()):
            raise DivergedError(f"training diverged with lr = {self.optimizer.param_groups[0]['lr']:g}; lower it")

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by which training goes on: weights, norms' statistics, what the optimizer remembers."""
        tensors = {f"{MODEL}{name}": value for name, value in self.classifier.state_dict().items()}
        for name, parameter in self.classifier.named_parameters():
            for kind, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{kind}.{name}"] = value
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Undo :meth:`tensors`."""
        weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
        self.classifier.load_state_dict(weights)
        parameters = dict(self.classifier.named_parameters())
        for name, value in tensors.items():
            kind, _, owner = name.partition(".")
            if not name.startswith(MODEL):
                parameter = parameters[owner]
                # As the optimizer makes them: in the memory order of the parameter.
                place = torch.empty_like(parameter) if value.shape == parameter.shape else torch.empty_like(value)
                self.optimizer.state[parameter][kind] = place.detach().copy_(value)


@torch.no_grad()
def features(classifier: Classifier, pictures: Tensor) -> Tensor:
    """Return what the head multiplies (n, D) float32 for pictures (n, 3, H, W)."""
    classifier.eval()
    return classifier.features(pictures)


def features_of(
    classifier: Classifier,
    pictures: Pictures,
    samples: Tensor,
    progress: Callable[[int], None] = lambda pictures: None,
) -> Tensor:
    """Return the features (n, D) float32 of the pictures at ``samples`` (n,)."""
    parts = []
    for index in torch.split(samples, READ):
        parts.append(features(classifier, pictures.batch(index)))
        progress(len(index))
    return torch.cat(parts)


def frozen_head(classifier: Classifier) -> OutputHead:
    """Return the head as it is now, whatever is learnt later."""
    head = classifier.head()
    assert head.bias is not None  # a classifier always has one
    return OutputHead(head.weight.clone(), head.bias.clone())


def rmsprop(classifier: Classifier, lr: float) -> torch.optim.Optimizer:
    """Return RMSprop over both backbone and head, with torch's defaults."""
    return torch.optim.RMSprop(classifier.parameters(), lr=lr)
