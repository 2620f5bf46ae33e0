"""Class counts as of each query, looked up for the classes that matter to it."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional.hebbian import looked_up
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.memory.causal import dropped_counts, occurrences


def entry_weights(batch: EvalBatch, config: HebbConfig, labels: Tensor) -> Tensor:
    """Return E_i of some classes of each query, ``(1 - beta) / (1 - beta^n_i)`` (Eq. 7).

    Args:
        batch: the mini-batch; rows of its block count for a query as far as they were observed before it.
        config: beta, and whether n_i counts examples in training and stream or entries in the memory.
        labels: (N, K) int64 classes.

    Returns:
        (N, K) in the precision of the logits.
    """
    return F.hebb_weights(entry_counts(batch, config, labels), config.beta).to(batch.logits.dtype)


def entry_counts(batch: EvalBatch, config: HebbConfig, labels: Tensor) -> Tensor:
    """Return n_i (N, K) int64 of some classes of each query; the arguments are those of :func:`entry_weights`."""
    return looked_up(_counts_before(batch, config), labels) + _counts_within(batch, config, labels)


def class_weights(batch: EvalBatch, config: HebbConfig) -> Tensor:
    """Return E_i of every class: (1, V), or (N, V) where rows of the block were observed before others."""
    before = _counts_before(batch, config)
    weights = F.hebb_weights(before, config.beta).to(batch.logits.dtype)[None]
    block = batch.block
    if block is None or not block.causal:
        return weights
    # A ring drops labels that the block need not contain.
    touched = (
        torch.unique(block.labels) if config.counts == "observed" else torch.arange(len(before), device=before.device)
    )
    weights = weights.repeat(len(batch.hidden), 1)
    weights[:, touched] = entry_weights(batch, config, touched.expand(len(weights), -1))
    return weights


def _counts_before(batch: EvalBatch, config: HebbConfig) -> Tensor:
    """Return n_i (V,) int64 as it is before the block."""
    context = batch.context
    if config.counts == "observed":
        return batch.shared("observed counts", lambda: context.train_counts + context.observed)
    classes = len(context.train_counts)
    return batch.shared("memory counts", lambda: context.memory.counts(classes).to(context.observed.device))


def _counts_within(batch: EvalBatch, config: HebbConfig, labels: Tensor) -> Tensor:
    """Return what the block adds to n_i of some classes (N, K) before each of its rows."""
    block = batch.block
    if block is None or not block.causal or not (block.written or config.counts == "observed"):
        return torch.zeros_like(labels)
    added = occurrences(labels, block.labels, block.visible)
    if config.counts == "observed":
        return added
    return added - dropped_counts(batch.context.memory, labels, block.labels, block.visible)
