"""The continuous cache a block at a time, beside the classic loop: one-hot window times
probabilities, by token.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.functional import Scale
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.memory_mixture import memory_mixture
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from .reference import relative

DIM, WORDS = 12, 60


def classic(
    hidden: Tensor, labels: Tensor, head: OutputHead, config: CacheConfig, every: int
) -> Tensor:
    """Return the loss of every token, in nats, from dense distributions."""
    losses = []
    for t in range(len(hidden)):
        now = t // every * every
        past = slice(max(0, now - config.window), now)
        probabilities = head.logits(hidden[t]).softmax(0)
        if now:
            one_hot = torch.nn.functional.one_hot(labels[past], WORDS).to(hidden.dtype)  # (W, V)
            products = hidden[past] @ hidden[t]  # (W,)
            scores = relative(products) if config.scale == "relative" else products
            attention = (config.theta * scores).softmax(0)  # (W,)
            pointer = (attention[:, None] * one_hot).sum(0)  # (V,)
            probabilities = (1 - config.gamma) * probabilities + config.gamma * pointer
        losses.append(-probabilities[labels[t]].log())
    return torch.stack(losses)


@pytest.mark.parametrize("window", [1, 7, 500])
@pytest.mark.parametrize(("every", "size"), [(1, 20), (3, 60), (20, 60)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("scale", ["relative", "absolute"])
def test_blocks_equal_the_classic_loop(
    window: int, every: int, size: int, dtype: torch.dtype, scale: Scale
) -> None:
    generator = torch.Generator().manual_seed(window)
    hidden = torch.randn(137, DIM, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, WORDS // 4, (137,), generator=generator)
    head = OutputHead(
        torch.randn(WORDS, DIM, generator=generator, dtype=torch.float64).to(dtype), None
    )
    config = CacheConfig(window, 0.6, 0.3, scale)
    expected = classic(hidden, labels, head, config, every)
    counts = torch.zeros(WORDS, dtype=torch.int64)
    context = Context(head, FlatMemory(DIM), k=1, train_counts=counts, window=window)
    found, gathered = [], []
    for begin in range(0, len(hidden), size // every * every):
        some = slice(begin, begin + size // every * every)
        batch = EvalBatch(hidden[some], context, Block.of(labels[some], every, written=False))
        predictor = memory_mixture(Cache, config)
        found.append(predictor.score(batch, labels[some]))
        gathered.append(-predictor.log_probs(batch).gather(1, labels[some, None]).squeeze(1))
        context.observe(batch.observation(labels[some]), write=False)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    torch.testing.assert_close(torch.cat(found), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(torch.cat(gathered), expected, rtol=tolerance, atol=tolerance)
