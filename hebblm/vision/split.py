"""Split into old and new classes, and of the pictures."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.vision.data import ImageDataset
from hebblm.vision.state import generator


@dataclass(frozen=True)
class Split:
    """Split that is decided before pre-training; positions count within the training part."""

    new: Tensor  # (C,) bool, the classes that pre-training does not see
    train: Tensor  # (n,) int64 pictures of old classes, for pre-training
    spare: Tensor  # (m,) int64 pictures of new classes, for later
    # (h,) int64 pictures of all classes that nothing is trained on, in random order
    held_out: Tensor

    @property
    def old_classes(self) -> list[int]:
        return [int(at) for at in (~self.new).nonzero()]


def split(dataset: ImageDataset, old_classes: int, held_out: int, seed: int) -> Split:
    """Draw the old classes, and ``held_out`` pictures of every class."""
    if old_classes >= dataset.classes:
        raise UserError(
            f"{old_classes} pre-training classes leave no new class of the {dataset.classes} of "
            f"{dataset.name}; choose "
            f"at most {dataset.classes - 1}"
        )
    new = torch.ones(dataset.classes, dtype=torch.bool)
    new[_shuffled(torch.arange(dataset.classes), seed, "classes")[:old_classes]] = False
    kept = []
    out = []
    for name, pictures in enumerate(_by_class(dataset.train.labels, dataset.classes)):
        if len(pictures) <= held_out:
            raise UserError(
                f"held_out = {held_out} leaves none of the {len(pictures)} training pictures of "
                f"class {name} of "
                f"{dataset.name}; lower it"
            )
        order = _shuffled(pictures, seed, f"held out of class {name}")
        out.append(order[:held_out])
        kept.append(order[held_out:])
    everything = torch.cat(kept)
    is_new = new[dataset.train.labels[everything]]
    stream = _shuffled(torch.cat(out), seed, "held-out stream")
    return Split(new, everything[~is_new], everything[is_new], stream)


def increment(
    dataset: ImageDataset, parts: Split, *, samples: int, ratio: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Draw ``samples`` pictures of every class, and ``ratio`` times fewer of half of the new
    classes.

    The pictures of old classes are among those of pre-training. For one seed, the pictures and the
    half are the same whatever the ratio: a larger one leaves some of them out.

    Positions (n,) int64 in the training part come class by class; (C,) bool are the new classes
    that have fewer.
    """
    available = torch.cat([parts.train, parts.spare])
    new = parts.new.nonzero().squeeze(1)
    fewer = torch.zeros_like(parts.new)
    fewer[_shuffled(new, seed, "imbalance")[: len(new) // 2]] = True
    chosen = []
    for name, places in enumerate(_by_class(dataset.train.labels[available], dataset.classes)):
        if len(places) < samples:
            raise UserError(
                f"increment.samples = {samples} is more than the {len(places)} pictures of class "
                f"{name} of {dataset.name} "
                "that are not held out; lower it"
            )
        order = _shuffled(places, seed, f"increment of class {name}")
        chosen.append(available[order[: samples // ratio if fewer[name] else samples]])
    return torch.cat(chosen), fewer if ratio > 1 else torch.zeros_like(fewer)


def predicted_order(dataset: ImageDataset, count: int, seed: int) -> Tensor:
    """Return ``count`` positions (n,) int64 of the test part in random order."""
    if count > len(dataset.test):
        raise UserError(
            f"{count:,} test pictures were asked for, but {dataset.name} has "
            f"{len(dataset.test):,}; lower "
            "online.streamed, increment.tested or timing.samples"
        )
    return _shuffled(torch.arange(len(dataset.test)), seed, "test")[:count]


def _shuffled(positions: Tensor, seed: int, what: str) -> Tensor:
    """Positions (n,) in an order that the seed draws for ``what`` alone."""
    return positions[torch.randperm(len(positions), generator=generator(seed, what))]


def _by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """The positions (n_c,) int64 of each class, ascending, in labels (N,)."""
    return [(labels == name).nonzero().squeeze(1) for name in range(classes)]
