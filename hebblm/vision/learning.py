"""Pictures as a network reads them, training of a network on them, and reading of their
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hebblm.vision.backbones import Classifier
from hebblm.vision.data import Images
from hebblm.vision.settings import LearningSettings, PretrainingSettings
from hebblm.vision.state import DivergedError

PLANES = 3
READ = 100  # pictures read at a time; more are slower, the maps of a layer no longer fit a cache
MODEL = "model."
WARM_UP = 0.25  # share of onecycle's steps in which the rate rises
START = 0.04  # of the peak, where onecycle begins
Progress = Callable[[int], None]
"""Called with the number of pictures seen."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Labelled pictures as bytes on the device where a network reads them."""

    pixels: Tensor  # (N, C, H, W) uint8; a single plane stands for three equal ones
    labels: Tensor  # (N,) int64
    mean: Tensor  # (3,) brightness of each plane that becomes 0
    deviation: Tensor  # (3,) brightness above it that becomes 1

    @classmethod
    def of(cls, images: Images, mean: Tensor, deviation: Tensor, device: torch.device) -> Pictures:
        return cls(
            images.pixels.to(device),
            images.labels.to(device),
            mean.to(device),
            deviation.to(device),
        )

    def batch(self, index: Tensor) -> Tensor:
        """The pictures at ``index`` (n,) as (n, 3, H, W) float32, channels last."""
        return self._scaled(self.pixels[index.to(self.pixels.device)])

    def varied(
        self, index: Tensor, generator: torch.Generator, *, padding: int, flip: bool
    ) -> Tensor:
        """The same, each cropped at random out of a black frame, and for ``flip`` half of them
        mirrored.

        The generator is on the CPU, so that every device sees the same pictures.
        """
        n = len(index)
        height, width = self.pixels.shape[2:]
        device = self.pixels.device
        # (n, H)
        rows = torch.randint(2 * padding + 1, (n, 1), generator=generator) + torch.arange(height)
        # (n, W)
        columns = torch.randint(2 * padding + 1, (n, 1), generator=generator) + torch.arange(width)
        if flip:
            columns = torch.where(
                torch.rand(n, 1, generator=generator) < 0.5, columns.flip(1), columns
            )
        framed = torch.nn.functional.pad(self.pixels[index.to(device)], (padding,) * 4)
        samples = torch.arange(n, device=device).view(n, 1, 1, 1)
        planes = torch.arange(framed.shape[1], device=device).view(1, 1, 1, -1)
        # Planes last already in the gathering, so that the scaled copy is in the order that
        # convolutions want.
        cut = framed[
            samples, planes, rows.to(device).view(n, -1, 1, 1), columns.to(device).view(n, 1, -1, 1)
        ]
        return self._scaled(cut.permute(0, 3, 1, 2))

    def _scaled(self, pixels: Tensor) -> Tensor:
        scaled = (
            pixels.to(torch.float32)
            .expand(-1, PLANES, -1, -1)
            .contiguous(memory_format=torch.channels_last)
        )
        return scaled.sub_(self.mean.view(-1, 1, 1)).div_(self.deviation.view(-1, 1, 1))


def statistics(images: Images, index: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (3,) of the brightness of each plane over the pictures at
    ``index``.
    """
    pixels = images.pixels[index].to(torch.float32).transpose(0, 1).flatten(1)  # (C, n H W)
    mean, deviation = pixels.mean(1, dtype=torch.float64), pixels.std(1)
    return mean.to(torch.float32).expand(PLANES).clone(), deviation.clamp_min(1.0).expand(
        PLANES
    ).clone()


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """Yield parts of ``order`` (n,); the last one may be smaller, but not a single picture: a norm
    needs two.
    """
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


def learn(
    classifier: Classifier,
    optimizer: torch.optim.Optimizer,
    pictures: Tensor,
    labels: Tensor,
    *,
    frozen_norms: bool = False,
) -> Tensor:
    """Take one step on the mean cross-entropy of a batch, and return that () in nats before the
    step.

    The norms use and gather the statistics of the batch, or for ``frozen_norms`` keep theirs.
    """
    classifier.train(not frozen_norms)
    optimizer.zero_grad()
    # a stream is learnt from while its predictions are read without gradients
    with torch.enable_grad():
        loss = torch.nn.functional.cross_entropy(classifier(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def optimizer_of(
    classifier: Classifier, settings: LearningSettings, *, head: float
) -> torch.optim.Optimizer:
    """Return the network's optimizer, whose rate :func:`set_rate` sets before each step.

    The head's rate is ``head`` times that of the backbone.
    """
    groups: list[dict[str, Any]] = [
        {"params": list(classifier.backbone.parameters()), "scale": 1.0},
        {"params": list(classifier.output.parameters()), "scale": head},
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=settings.momentum)
    return torch.optim.RMSprop(groups, lr=0.0)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of every group of parameters, each by its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)


def one_cycle(peak: float, done: float) -> float:
    """The rate that rises to a peak and falls to zero along a cosine; ``done`` is a share of the
    steps.
    """
    if done < WARM_UP:
        return peak * (START + (1 - START) * done / WARM_UP)
    return peak / 2 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def warmed(lr: float, step: int, warm_up: int) -> float:
    """The rate of a step, counted from 0, that rises evenly over the first ``warm_up`` steps."""
    return lr * min(1.0, (step + 1) / warm_up) if warm_up else lr


def begin_new_rows(classifier: Classifier, new: Tensor, how: str) -> None:
    """Set the head's rows of the new classes (C,) bool to the mean of the others, or leave them.

    Pre-training never had a new class as its answer, and left their logits far below the others'.
    """
    if how == "pretrained":
        return
    with torch.no_grad():
        for rows in (classifier.output.weight, classifier.output.bias):
            rows[new] = rows[~new].mean(0)


@dataclass(frozen=True, slots=True)
class Training:
    """Network that learns from pictures, with everything by which training goes on."""

    classifier: Classifier
    optimizer: torch.optim.Optimizer
    pictures: Pictures
    settings: PretrainingSettings  # how pictures are cropped and flipped
    frozen_norms: bool = False

    def epoch(
        self,
        samples: Tensor,
        *,
        batch_size: int,
        generator: torch.Generator,
        lr: Callable[[int], float] | None = None,
        progress: Progress = lambda pictures: None,
    ) -> None:
        """Pass once over the pictures at ``samples`` (n,) in a new order, each cropped and mirrored
        anew.

        ``lr`` is the learning rate at a step of this epoch; None leaves it as it is.
        """
        labels = self.pictures.labels
        crops = self.settings
        order = samples[torch.randperm(len(samples), generator=generator)]
        total = torch.zeros((), device=labels.device)
        for step, index in enumerate(batches(order, batch_size)):
            if lr is not None:
                set_rate(self.optimizer, lr(step))
            varied = self.pictures.varied(index, generator, padding=crops.padding, flip=crops.flip)
            total += learn(
                self.classifier,
                self.optimizer,
                varied,
                labels[index.to(labels.device)],
                frozen_norms=self.frozen_norms,
            )
            progress(len(index))
        if not bool(total.isfinite()):
            raise DivergedError(
                f"training diverged with lr = {self.optimizer.param_groups[0]['lr']:g}; lower it"
            )

    def state_dict(self) -> dict[str, Tensor]:
        """Weights, statistics of the norms, and what the optimizer remembers, as a flat file holds
        them.
        """
        tensors = {f"{MODEL}{name}": value for name, value in self.classifier.state_dict().items()}
        for name, parameter in self.classifier.named_parameters():
            remembered = self.optimizer.state.get(parameter, {}).items()
            tensors |= {
                f"{kind}.{name}": value for kind, value in remembered if isinstance(value, Tensor)
            }
        return tensors

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        weights = {
            name.removeprefix(MODEL): value
            for name, value in state.items()
            if name.startswith(MODEL)
        }
        self.classifier.load_state_dict(weights)
        for name, parameter in self.classifier.named_parameters():
            for key in (
                key for key in state if key.partition(".")[2] == name and not key.startswith(MODEL)
            ):
                # As the optimizer makes them: in the memory order of the parameter.
                like = parameter if state[key].shape == parameter.shape else state[key]
                self.optimizer.state[parameter][key.partition(".")[0]] = (
                    torch.empty_like(like).detach().copy_(state[key])
                )


@torch.no_grad()
def features(classifier: Classifier, pictures: Tensor) -> Tensor:
    """What the head multiplies (n, D) float32 for pictures (n, 3, H, W)."""
    classifier.eval()
    return classifier.features(pictures)


def features_of(
    classifier: Classifier,
    pictures: Pictures,
    samples: Tensor,
    progress: Progress = lambda pictures: None,
) -> Tensor:
    """The features (n, D) float32 of the pictures at ``samples`` (n,)."""
    parts = []
    for index in torch.split(samples, READ):
        parts.append(features(classifier, pictures.batch(index)))
        progress(len(index))
    return torch.cat(parts)
