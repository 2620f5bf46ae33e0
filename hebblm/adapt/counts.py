"""Class counts at the time of each query, for the classes that matter to it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional.hebbian import looked_up
from hebblm.memory.causal import dropped_counts, occurrences

Counts = Literal["observed", "memory"]
"""Meaning of n_i: examples in training and stream, or entries in the memory."""


def entry_weights(batch: EvalBatch, beta: float, counts: Counts, labels: Tensor) -> Tensor:
    """E_i (N, K) of some classes (N, K) int64 of each query, ``(1 - beta) / (1 - beta^n_i)`` (Eq.
    7).
    """
    return F.hebb_weights(entry_counts(batch, counts, labels), beta).to(batch.logits.dtype)


def entry_counts(batch: EvalBatch, counts: Counts, labels: Tensor) -> Tensor:
    """n_i (N, K) int64 of some classes of each query, including rows of its block that were
    observed before it.
    """
    return looked_up(_counts_before(batch, counts), labels) + _counts_within(batch, counts, labels)


def class_weights(batch: EvalBatch, beta: float, counts: Counts) -> Tensor:
    """E_i of every class: (1, V), or (N, V) if rows of the block were observed before others."""
    before = _counts_before(batch, counts)
    weights = F.hebb_weights(before, beta).to(batch.logits.dtype)[None]
    block = batch.block
    if block is None or not block.causal:
        return weights
    # A ring drops labels that may not be in the block, so the count of any class may change within
    # it.
    touched = (
        torch.unique(block.labels)
        if counts == "observed"
        else torch.arange(len(before), device=before.device)
    )
    weights = weights.repeat(len(batch.hidden), 1)
    weights[:, touched] = entry_weights(batch, beta, counts, touched.expand(len(weights), -1))
    return weights


def _counts_before(batch: EvalBatch, counts: Counts) -> Tensor:
    """n_i (V,) int64 before the block."""
    context = batch.context
    if counts == "observed":
        return batch.shared("observed counts", lambda: context.train_counts + context.observed)
    classes = len(context.train_counts)
    return batch.shared(
        "memory counts", lambda: context.memory.counts(classes).to(context.observed.device)
    )


def _counts_within(batch: EvalBatch, counts: Counts, labels: Tensor) -> Tensor:
    """Increase of n_i of some classes (N, K) by the block's rows before each row."""
    block = batch.block
    if block is None or not block.causal or not (block.written or counts == "observed"):
        return torch.zeros_like(labels)
    added = occurrences(labels, block.labels, block.visible)
    if counts == "observed":
        return added
    return added - dropped_counts(batch.context.memory, labels, block.labels, block.visible)
