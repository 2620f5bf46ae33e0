"""A network that learns from a stream: one step of RMSprop on backbone and head after each prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hebblm.types import OutputHead
from hebblm.vision.backbones import Classifier
from hebblm.vision.new_classes.learning import batches, features, frozen_head, learn, rmsprop
from hebblm.vision.new_classes.pictures import Pictures
from hebblm.vision.new_classes.reading import Block
from hebblm.vision.state import load_state, save_state


def stream(
    classifier: Classifier, pictures: Pictures, order: Tensor, *, interval: int, lr: float
) -> Iterator[Block]:
    """Yield the pictures block by block as the network sees them; it learns from a block when the next is asked for.

    Args:
        classifier: a copy that is trained on the way.
        pictures: where they are.
        order: (n,) int64.
        interval: pictures of a block.
        lr: of RMSprop.
    """
    optimizer = rmsprop(classifier, lr)
    for index in batches(order, interval):
        some = pictures.batch(index)
        labels = pictures.labels[index.to(pictures.labels.device)]
        hidden = features(classifier, some)
        yield Block(frozen_head(classifier), hidden, labels)
        learn(classifier, optimizer, some, labels)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All blocks of a stream: nothing in them depends on how the predictions are adapted, so that one pass serves all.

    Args:
        weights: (T, C, D) the heads' weights, block by block.
        biases: (T, C).
        hidden: (n, D) the features.
        labels: (n,) int64.
        sizes: (T,) int64 pictures of each block.
    """

    weights: Tensor
    biases: Tensor
    hidden: Tensor
    labels: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, found: Iterator[Block], progress: Callable[[int], None]) -> Trajectory:
        """Run a stream to its end."""
        blocks = []
        for block in found:
            blocks.append(block)
            progress(len(block.labels))
        biases = [block.head.bias for block in blocks if block.head.bias is not None]
        return cls(
            torch.stack([block.head.weight for block in blocks]),
            torch.stack(biases),
            torch.cat([block.hidden for block in blocks]),
            torch.cat([block.labels for block in blocks]),
            torch.tensor([len(block.labels) for block in blocks]),
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks again."""
        sizes = self.sizes.tolist()
        parts = zip(torch.split(self.hidden, sizes), torch.split(self.labels, sizes), strict=True)
        for at, (hidden, labels) in enumerate(parts):
            yield Block(OutputHead(self.weights[at], self.biases[at]), hidden, labels)

    def save(self, path: Path, run: str) -> None:
        """Write it, so that an interrupted run need not train again."""
        names = ("weights", "biases", "hidden", "labels", "sizes")
        save_state(path, {name: getattr(self, name) for name in names}, {"run": run})

    @classmethod
    def load(cls, path: Path, run: str, device: torch.device) -> Trajectory | None:
        """Read a trajectory of this run, or return None where there is none."""
        found = load_state(path, run)
        if found is None:
            return None
        tensors, _ = found
        sizes = tensors.pop("sizes")
        return cls(**{name: tensor.to(device) for name, tensor in tensors.items()}, sizes=sizes)
