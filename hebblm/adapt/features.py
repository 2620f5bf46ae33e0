"""Features of a query, known before its label: what the shares of a gate depend on."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.counts import entry_counts
from hebblm.adapt.methods.hebb import HebbConfig

NEAREST = 1e-3  # added to the nearest squared distance, which is 0 where a state comes again
SHARP = 2.0  # theta of the weights exp(theta h_k . h), relative, of the labels
NAMES = (
    "one",
    "base entropy",
    "base peak",
    "label entropy",
    "nearest entry",
    "top label's mass",
    "base of the top label",
    "top label is the base's",
    "base's word in training",
    "top label in the stream",
    "tokens of the stream",
)
"""The features: a constant, entropies and logarithms of probabilities in nats, of distances, and of 1 + a count."""


def gate_features(batch: EvalBatch) -> Tensor:
    """Return the features (N, F) of :data:`NAMES`, float64, all about as large as 1; none depends on the labels."""
    return batch.shared("gate features", lambda: _features(batch))


def _features(batch: EvalBatch) -> Tensor:
    near, context, log_probs = batch.neighbors, batch.context, batch.log_probs
    entropy = torch.special.entr(log_probs.exp()).sum(1)
    peak, favourite = log_probs.max(1)
    some = near.mask[:, 0]
    scores = F.log_weights(batch.products, near.mask, sharpness=SHARP, scale="relative")
    mass, label = _top(scores, near.values, near.mask)
    size = batch.queries.square().sum(1).clamp_min(torch.finfo(batch.queries.dtype).tiny)
    nearest = (NEAREST + near.distances[:, 0] / size).log()
    read = context.observed.sum() + (0 if batch.block is None else batch.block.visible)
    often = entry_counts(batch, HebbConfig(), label[:, None]).squeeze(1) - context.train_counts[label]
    counts = [context.train_counts[favourite], often.where(some, 0), read.expand_as(label)]
    rows = [
        torch.ones_like(peak),
        entropy / 5,
        peak / 5,
        F.label_entropy(scores, near.values, near.mask) / 5,
        nearest.where(some, 0) / 5,
        mass,
        log_probs.gather(1, label[:, None]).squeeze(1).where(some, 0) / 5,
        (label == favourite) & some,
        *(count.double().log1p() / 10 for count in counts),
    ]
    return torch.stack([row.double() for row in rows], 1)


def _top(scores: Tensor, labels: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest mass of a label (N,) under ``softmax(s)`` and that label; 0 for no entry."""
    mass, at = F.label_sums(labels, scores.masked_fill(~seen, -torch.inf).softmax(1).nan_to_num(0.0)).max(1)
    return mass, labels.gather(1, at[:, None]).squeeze(1)
