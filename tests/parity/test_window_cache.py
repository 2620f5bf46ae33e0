"""The continuous cache a block at a time, beside the classic loop: one-hot window times probabilities, by token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.adapt import Cache, CacheConfig, Context
from hebblm.adapt.block import Block
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

DIM, WORDS = 12, 60


def classic(
    hidden: Tensor, labels: Tensor, head: OutputHead, *, window: int, theta: float, gamma: float, every: int
) -> Tensor:
    """Return the loss of every token, in nats, from dense distributions."""
    losses = []
    for t in range(len(hidden)):
        now = t // every * every
        past = slice(max(0, now - window), now)
        probabilities = head.logits(hidden[t]).softmax(0)
        if now:
            one_hot = torch.nn.functional.one_hot(labels[past], WORDS).to(hidden.dtype)  # (W, V)
            attention = (theta * (hidden[past] @ hidden[t])).softmax(0)  # (W,)
            probabilities = (1 - gamma) * probabilities + gamma * (attention[:, None] * one_hot).sum(0)
        losses.append(-probabilities[labels[t]].log())
    return torch.stack(losses)


@pytest.mark.parametrize("window", [1, 7, 40, 500])
@pytest.mark.parametrize("every", [1, 3, 20])
@pytest.mark.parametrize("size", [20, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_blocks_equal_the_classic_loop(window: int, every: int, size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(window)
    hidden = torch.randn(137, DIM, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, WORDS // 4, (137,), generator=generator)
    head = OutputHead(torch.randn(WORDS, DIM, generator=generator, dtype=torch.float64).to(dtype), None)
    config = CacheConfig(window, 0.6, 0.3)
    expected = classic(hidden, labels, head, window=window, theta=0.6, gamma=0.3, every=every)
    counts = torch.zeros(WORDS, dtype=torch.int64)
    context = Context(head, FlatMemory(DIM), k=1, train_counts=counts, window=window)
    found, gathered = [], []
    for begin in range(0, len(hidden), size // every * every):
        some = slice(begin, begin + size // every * every)
        batch = context.batch(hidden[some], Block.of(labels[some], every, written=False))
        found.append(Cache(config).score(batch, labels[some]))
        gathered.append(-Cache(config).log_probs(batch).gather(1, labels[some, None]).squeeze(1))
        context.observe(hidden[some], labels[some], write=False)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    torch.testing.assert_close(torch.cat(found), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(torch.cat(gathered), expected, rtol=tolerance, atol=tolerance)
