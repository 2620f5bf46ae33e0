from __future__ import annotations

import torch

from hebblm.memory import MemoryConfig, build_memory
from hebblm.types import OutputHead
from recipes.bench import naive

from ...support import equations


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_classic_pointer_loop_is_the_continuous_cache() -> None:
    window, count, classes = 7, 5, 11
    keys, hidden = randn(window + count, 4), randn(count, 4, seed=1)
    values = torch.randint(classes, (window + count,), generator=torch.Generator().manual_seed(2))
    head = OutputHead(randn(classes, 4, seed=3), randn(classes, seed=4))
    targets = values[torch.arange(count) + window - 1]
    found = naive.pointer_cache_losses(
        head.logits(hidden).log_softmax(1),
        hidden,
        keys,
        naive.one_hot_history(values, classes).double(),
        targets,
        window=window,
        theta=0.8,
        weight=0.3,
    )
    for at in range(count):
        seen = slice(at, at + window)
        expected = equations.cache_log_probs(
            hidden[at : at + 1], keys[seen], values[seen], head, theta=0.8, weight=0.3
        )
        torch.testing.assert_close(found[at], -expected[0, targets[at]], rtol=1e-12, atol=0)


def test_exact_search_is_the_exact_memorys() -> None:
    keys, queries = randn(300, 6).float(), randn(40, 6, seed=1).float()
    memory = build_memory(6, MemoryConfig(index="exact"))
    memory.add(keys, torch.zeros(300, dtype=torch.int64))
    expected = memory.search(queries, 12)
    distances, found = naive.exact_search(queries, keys, keys.square().sum(1), 12)
    torch.testing.assert_close(distances, expected.distances, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found, expected.keys)
