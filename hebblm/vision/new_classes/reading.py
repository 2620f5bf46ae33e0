"""Reading loop of pictures: predict, score, and only then observe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.context import Context
from hebblm.adapt.safeguards import Safeguards
from hebblm.memory import FlatMemory, RingMemory
from hebblm.types import OutputHead
from hebblm.vision.new_classes.methods import ImageMethod

KEYS = ("new", "old", "overall")

Top1 = dict[str, float | None]
"""Shares of right answers by ``new``, ``old`` and ``overall``; None where there is no such picture."""


@dataclass(frozen=True, slots=True)
class PictureBlock:
    """Pictures that one state of the network predicts.

    Args:
        head: the softmax layer at that moment.
        hidden: (n, D) their features at that moment.
        labels: (n,) int64.
    """

    head: OutputHead
    hidden: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class Remembered:
    """Memory and counts before the first picture.

    Args:
        keys: (m, D) features of the training pictures, as the network gave them when they were stored.
        labels: (m,) int64 of them.
        counts: (C,) int64 different training pictures of each class so far, n_i.
        new: (C,) bool, the classes that pre-training did not see.
    """

    keys: Tensor
    labels: Tensor
    counts: Tensor
    new: Tensor

    def context(self, head: OutputHead, k: int, capacity: int | None) -> Context:
        """Return a context over all of it, or over an empty memory that up to ``capacity`` observed pairs go to."""
        width, device = self.keys.shape[1], self.keys.device
        memory = RingMemory(width, capacity, device=device) if capacity else FlatMemory(width, device=device)
        if capacity is None:
            memory.add(self.keys, self.labels)
        return Context(head, memory, k=k, train_counts=self.counts, new_classes=self.new)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of the methods: after an epoch, or along a stream.

    Args:
        blocks: the pictures to predict.
        remembered: the memory and counts to begin with.
    """

    blocks: Sequence[PictureBlock]
    remembered: Remembered

    @property
    def labels(self) -> Tensor:
        """Labels (n,) int64 of all blocks."""
        return torch.cat([block.labels for block in self.blocks])


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of one method.

    Args:
        classes: (n,) uint8 the likeliest class of each picture.
        losses: (n,) float32 nats of the right one.
        stabilized: queries whose adaptation diverged and was run at a smaller rate.
    """

    classes: Tensor
    losses: Tensor
    stabilized: int

    def score(self, labels: Tensor, new: Tensor) -> dict[str, float]:
        """Return accuracies on ``old`` and on ``new`` classes, their ``harmonic_mean``, and the mean ``loss`` in nats.

        The harmonic mean is the measure of generalised zero-shot learning (Xian et al. 2019): 0 for a network that
        knows nothing of one side, however much it knows of the other. A side without pictures counts as 0.

        Args:
            labels: (n,) int64.
            new: (C,) bool, the new classes.
        """
        found = top1(self.classes, labels.cpu(), new.cpu())
        old, fresh = found["old"] or 0.0, found["new"] or 0.0
        both = 2 * old * fresh / (old + fresh) if old + fresh else 0.0
        return {"old": old, "new": fresh, "harmonic_mean": both, "loss": float(self.losses.double().mean())}


def top1(classes: Tensor, labels: Tensor, new: Tensor) -> Top1:
    """Return the accuracies of predictions.

    Args:
        classes: (n,) uint8.
        labels: (n,) int64.
        new: (C,) bool.
    """
    right, is_new = classes == labels, new[labels]
    everything = torch.ones_like(is_new)
    return {
        key: float(right[part].double().mean()) if bool(part.any()) else None
        for key, part in zip(KEYS, (is_new, ~is_new, everything), strict=True)
    }


@torch.no_grad()
def read(
    blocks: Iterable[PictureBlock],
    remembered: Remembered,
    methods: Mapping[str, ImageMethod],
    *,
    k: int,
    observes: bool,
    progress: Callable[[int], None] = lambda pictures: None,
) -> dict[str, Predicted]:
    """Let every method predict every block; all of them share retrieval and adaptation.

    Args:
        blocks: in their order; each is predicted and scored before any of it is observed.
        remembered: the memory and counts to begin with.
        methods: by name.
        k: neighbours K a query.
        observes: whether a block, once it is scored, goes to the memories and counts.
        progress: told how many pictures were read.
    """
    capacities = {method.capacity for method in methods.values()}
    contexts: dict[int | None, Context] = {}
    classes: dict[str, list[Tensor]] = {name: [] for name in methods}
    losses: dict[str, list[Tensor]] = {name: [] for name in methods}
    stabilized = dict.fromkeys(methods, 0)
    for block in blocks:
        for capacity in capacities:
            if capacity not in contexts:
                contexts[capacity] = remembered.context(block.head, k, capacity)
            contexts[capacity].set_head(block.head)
        batches = {capacity: context.batch(block.hidden) for capacity, context in contexts.items()}
        for name, method in methods.items():
            batch = batches[method.capacity]
            log_probs = method.rule.log_probs(batch)  # (n, C)
            classes[name].append(log_probs.argmax(1).to(torch.uint8).cpu())
            losses[name].append(-log_probs.gather(1, block.labels[:, None]).squeeze(1).float().cpu())
            stabilized[name] += int(Safeguards.of(method.rule, batch).stabilized.sum())
        if observes:
            for capacity, context in contexts.items():
                context.observe(block.hidden, block.labels, write=capacity != 0)
        progress(len(block.labels))
    return {name: Predicted(torch.cat(classes[name]), torch.cat(losses[name]), stabilized[name]) for name in methods}
