"""The gated share beside the plainest form, one query at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hebblm.adapt.context import Context
from hebblm.adapt.methods.gated import GatedMixture, MixtureGatedConfig
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ..support.toy import DIM, randn
from .reference import entries_of, label_distribution, relative

CLASSES = 30
CONFIG = MixtureGatedConfig(theta=0.7, bias=-0.3, distance=-0.6, entropy=0.4, peak=0.25)


def context_of(entries: int) -> Context:
    head = OutputHead(randn(0, CLASSES, DIM, dtype=torch.float64), randn(1, CLASSES, dtype=torch.float64))
    context = Context(
        head, FlatMemory(DIM, dtype=torch.float64), k=9, train_counts=torch.ones(CLASSES, dtype=torch.int64)
    )
    if entries:
        labels = torch.arange(entries) * 7 % 5
        context.observe(randn(2, entries, DIM, dtype=torch.float64), labels)
    return context


def plain(context: Context, hidden: Tensor, config: MixtureGatedConfig) -> Tensor:
    """Return (N, V) probabilities, every quantity written out."""
    near = context.memory.search(hidden, context.k)
    rows = []
    for row, query in enumerate(hidden):
        base = context.head.logits(query).softmax(0)
        keys, labels, distances = entries_of(near, row)
        if not len(labels):
            rows.append(base)
            continue
        scores, nearest = keys @ query, min(float((key - query).square().sum()) for key in keys)
        if config.scale == "relative":
            scores, nearest = relative(scores), nearest / float(distances.mean()) if nearest else 0.0
        q = label_distribution((config.theta * scores).exp(), labels, CLASSES)
        entropy = -sum(float(p) * math.log(float(p)) for p in q if p > 0)
        gate = config.bias + config.distance * math.log(1e-3 + nearest) + config.entropy * entropy
        gate += config.peak * math.log(float(base.max()))
        gamma = 1 / (1 + math.exp(-gate))
        rows.append((1 - gamma) * base + gamma * q)
    return torch.stack(rows)


@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize("entries", [0, 1, 4, 60])
def test_equals_the_plain_form(entries: int, scale: str) -> None:
    config = replace(CONFIG, scale=scale)
    context = context_of(entries)
    hidden = randn(3, 6, DIM, dtype=torch.float64)
    if entries:
        hidden[0] = context.memory.search(hidden[:1], 1).keys[0, 0]  # the same state again
    rule = GatedMixture(config)
    expected = plain(context, hidden, config)
    found = rule.log_probs(context.batch(hidden))
    assert torch.allclose(found.exp(), expected, atol=1e-12)
    targets = torch.tensor([0, 2, 4, 29, 3, 1])
    losses = -expected[torch.arange(6), targets].log()
    assert torch.allclose(rule.score(context.batch(hidden), targets), losses, atol=1e-12)


def test_every_coefficient_moves_the_share() -> None:
    context = context_of(60)
    hidden = randn(4, 6, DIM, dtype=torch.float64)
    base = GatedMixture(CONFIG).log_probs(context.batch(hidden))
    for name in ("bias", "distance", "entropy", "peak", "theta"):
        values = {key: getattr(CONFIG, key) for key in ("bias", "distance", "entropy", "peak", "theta")}
        other = GatedMixture(MixtureGatedConfig(**{**values, name: values[name] + 0.5}))
        assert (other.log_probs(context.batch(hidden)) - base).abs().max() > 1e-3, name
