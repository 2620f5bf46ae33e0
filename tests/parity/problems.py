"""Small adaptation problems with every awkward case in them."""

from __future__ import annotations

import torch

from hebblm.adapt.functional import kernel_weight
from hebblm.adapt.solvers.problem import Problem, key_products
from hebblm.types import Neighbors, OutputHead


def make_problem(  # noqa: PLR0913 - each names one awkward case
    seed: int,
    *,
    n: int = 5,
    k: int = 7,
    d: int = 6,
    v: int = 13,
    labels: int | None = None,
    bias: bool = True,
    zero_rows: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    """Return queries, neighbours and a head.

    Query 0 has a duplicate among its keys (distance 0), query 1 has a single entry, query 2 has
    none, the others have all K. Labels repeat; with ``labels`` they come from the last few classes.
    The last ``zero_rows`` rows of the head are zero.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden, keys = normal(n, d), normal(n, k, d)
    values = torch.randint(v - (labels or v), v, (n, k), generator=generator)
    mask = torch.ones(n, k, dtype=torch.bool)
    keys[0, 0] = hidden[0]
    if n > 2:
        mask[1, 1:] = False
        mask[2] = False
    distances = (keys - hidden[:, None]).square().sum(2)
    order = distances.argsort(1)
    keys = keys.gather(1, order[:, :, None].expand_as(keys)).masked_fill(~mask[:, :, None], 0)
    distances = distances.gather(1, order).masked_fill(~mask, torch.inf)
    weight, offset = normal(v, d), normal(v)
    if zero_rows:
        weight[-zero_rows:] = 0
        offset[-zero_rows:] = 0
    head = OutputHead(weight, offset if bias else None)
    neighbors = Neighbors(
        keys, values.masked_fill(~mask, 0), distances, mask, head.logits(keys).logsumexp(2)
    )
    return hidden, neighbors, head


def language_like(
    seed: int, *, n: int, k: int, d: int, v: int
) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    """Return states in clusters, a head with a Zipfian bias, and labels drawn from the head
    itself.
    """
    generator = torch.Generator().manual_seed(seed)
    entries = 20 * k
    centres = torch.randn(12, d, generator=generator, dtype=torch.float64)
    cluster = torch.randint(0, 12, (entries + n,), generator=generator)
    noise = torch.randn(entries + n, d, generator=generator, dtype=torch.float64)
    states = torch.tanh(0.7 * centres[cluster] + 0.3 * noise)
    weight = torch.randn(v, d, generator=generator, dtype=torch.float64) / d**0.5 * 2
    head = OutputHead(weight, -1.2 * torch.arange(1, v + 1, dtype=torch.float64).log())
    labels = torch.multinomial(head.logits(states).softmax(1), 1, generator=generator).squeeze(1)
    memory, queries = states[:entries], states[entries:]
    squared = (queries[:, None] - memory).square().sum(2)
    distances, index = squared.topk(k, largest=False)
    keys = memory[index]
    mask = torch.ones(n, k, dtype=torch.bool)
    return (
        queries,
        Neighbors(keys, labels[index], distances, mask, head.logits(keys).logsumexp(2)),
        head,
    )


def as_problem(
    hidden: torch.Tensor, neighbors: Neighbors, head: OutputHead, eps: float = 1e-3
) -> Problem:
    weights = kernel_weight(neighbors.distances, neighbors.mask, eps=eps)
    return Problem(
        head,
        hidden,
        neighbors.keys,
        neighbors.values,
        weights / neighbors.mask.sum(1, keepdim=True).clamp_min(1),
        head.logits(hidden),
        neighbors.log_normalizers,
        key_products(hidden, neighbors.keys),
    )
