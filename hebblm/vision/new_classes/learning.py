"""Training step, reading of features, and an optimizer's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.types import OutputHead
from hebblm.vision.backbones.classifier import Classifier
from hebblm.vision.new_classes.pictures import Pictures

READ = 500  # pictures read at a time
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


def learn_epoch(
    classifier: Classifier,
    optimizer: torch.optim.Optimizer,
    pictures: Pictures,
    samples: Tensor,
    *,
    batch_size: int,
    padding: int,
    flip: bool,
    generator: torch.Generator,
    lr: Callable[[int], float] | None = None,
    progress: Callable[[int], None] = lambda pictures: None,
) -> None:
    """Pass once over the pictures in a new order, each cropped and mirrored anew.

    Args:
        classifier: trained.
        optimizer: of its parameters.
        pictures: where the samples are.
        samples: (n,) int64.
        batch_size: pictures a step.
        padding: see :meth:`Pictures.varied`.
        flip: see :meth:`Pictures.varied`.
        generator: of order, crops and flips.
        lr: the learning rate at a step of this epoch; None leaves it as it is.
        progress: told how many pictures were seen.

    Raises:
        UserError: the loss ceased to be finite.
    """
    order = samples[torch.randperm(len(samples), generator=generator)]
    total = torch.zeros((), device=pictures.labels.device)
    for step, index in enumerate(batches(order, batch_size)):
        if lr is not None:
            for group in optimizer.param_groups:
                group["lr"] = lr(step)
        varied = pictures.varied(index, generator, padding=padding, flip=flip)
        total += learn(classifier, optimizer, varied, pictures.labels[index.to(pictures.labels.device)])
        progress(len(index))
    if not bool(total.isfinite()):
        raise UserError(f"training diverged with lr = {optimizer.param_groups[0]['lr']:g}; lower it")


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


def training_tensors(classifier: Classifier, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return everything by which training goes on: weights, norms' statistics, and what the optimizer remembers."""
    tensors = {f"{MODEL}{name}": value for name, value in classifier.state_dict().items()}
    for name, parameter in classifier.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{kind}.{name}"] = value
    return tensors


def restore(classifier: Classifier, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo :func:`training_tensors`."""
    weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
    classifier.load_state_dict(weights)
    parameters = dict(classifier.named_parameters())
    for name, value in tensors.items():
        kind, _, owner = name.partition(".")
        if not name.startswith(MODEL):
            parameter = parameters[owner]
            # As the optimizer makes them: in the memory order of the parameter.
            place = torch.empty_like(parameter) if value.shape == parameter.shape else torch.empty_like(value)
            optimizer.state[parameter][kind] = place.detach().copy_(value)
