"""A network that learns from a stream: one step of RMSprop on backbone and head after each prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from hebblm.types import OutputHead
from hebblm.vision.backbones.classifier import Classifier
from hebblm.vision.new_classes.learning import batches, features, frozen_head, learn, rmsprop
from hebblm.vision.new_classes.pictures import Pictures
from hebblm.vision.new_classes.reading import PictureBlock
from hebblm.vision.state import load_state, save_state

PARTS = ("weight", "bias", "hidden", "labels")


def stream(
    classifier: Classifier, pictures: Pictures, order: Tensor, *, interval: int, lr: float
) -> Iterator[PictureBlock]:
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
        yield PictureBlock(frozen_head(classifier), hidden, labels)
        learn(classifier, optimizer, some, labels)


def save_blocks(path: Path, blocks: Sequence[PictureBlock], run: str) -> None:
    """Write the blocks of a stream, so that an interrupted run need not train again.

    Nothing in them depends on how the predictions are adapted, so that one pass over the stream serves all methods.
    """
    tensors: dict[str, Tensor] = {}
    for at, block in enumerate(blocks):
        assert block.head.bias is not None  # a classifier always has one
        parts = (block.head.weight, block.head.bias, block.hidden, block.labels)
        tensors |= {f"{name}.{at}": part for name, part in zip(PARTS, parts, strict=True)}
    save_state(path, tensors, {"run": run, "blocks": len(blocks)})


def load_blocks(path: Path, run: str, device: torch.device) -> list[PictureBlock] | None:
    """Read the blocks of a stream of this run, or return None where there are none."""
    found = load_state(path, run)
    if found is None:
        return None
    tensors, record = found
    blocks = []
    for at in range(record["blocks"]):
        weight, bias, hidden, labels = (tensors[f"{name}.{at}"].to(device) for name in PARTS)
        blocks.append(PictureBlock(OutputHead(weight, bias), hidden, labels))
    return blocks
