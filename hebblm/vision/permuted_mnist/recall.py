"""Adapted predictions from stored pictures: retrieval, one adaptation pass, then any beta and eta."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional import HebbianTerm, closeness, hebb_combine, hebb_weights, hebbian_term
from hebblm.memory import FlatMemory
from hebblm.memory.nearest import Ranked
from hebblm.types import Neighbors
from hebblm.vision.permuted_mnist.adaptation import NetworkProblem, adapt
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.settings import Rate

CPU_CHUNK_BYTES = 16 << 20  # a few queries, near the processor's caches
CUDA_CHUNK_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Adapted:
    """Logits that a grid over beta and eta shares: everything but these two.

    Args:
        base_logits: (N, C) of the base network.
        delta: (N, C) what MbPA adds.
        term: the Hebbian term on the output layer.
        rose: (N,) bool, queries whose neighbours' loss was higher after the steps than before.
    """

    base_logits: Tensor
    delta: Tensor
    term: HebbianTerm
    rose: Tensor

    def mbpa(self) -> Tensor:
        """Return MbPA's logits (N, C)."""
        return self.base_logits + self.delta

    def hebb(self, counts: Tensor, *, beta: float, eta: float) -> Tensor:
        """Return Hebb's logits (N, C) where n_i = ``counts`` (C,) examples of class i were observed."""
        return hebb_combine(self.base_logits, self.delta, self.term, hebb_weights(counts, beta), eta=eta)


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as one network sees it.

    Args:
        memory: stored pixels and labels, at least one; not added to as long as this is in use.
        model: the base network.
        inputs: (M, H) what its hidden units receive from each entry.
        logits: (M, C) what it returns for each.
    """

    memory: FlatMemory
    model: MLP
    inputs: Tensor
    logits: Tensor

    @classmethod
    @torch.no_grad()
    def under(cls, memory: FlatMemory, model: MLP) -> Stored:
        """Return the memory under a network; all queries share this pass over the entries."""
        inputs = model.inputs(memory.entries().keys)
        return cls(memory, model, inputs, model.head.logits(inputs.relu()))

    @torch.no_grad()
    def problem(self, queries: Tensor, ranked: Ranked, *, eps: float) -> NetworkProblem:
        """Return the adaptation of queries to their neighbours.

        Args:
            queries: (n, D) pixels.
            ranked: their neighbours (n, K) in the memory.
            eps: the constant in c_k.
        """
        entries, mask = self.memory.entries(), ranked.ids >= 0
        ids = ranked.ids.clamp_min(0)
        weights = closeness(ranked.distances, mask, eps=eps) / mask.sum(1, keepdim=True)
        rows = torch.nn.functional.pad(ids, (0, 1))  # (n, K + 1), the last for the query's own
        points, inputs, logits = entries.keys[rows], self.inputs[rows], self.logits[rows]
        points[:, -1] = queries
        inputs[:, -1] = self.model.inputs(queries)
        logits[:, -1] = self.model.head.logits(inputs[:, -1].relu())
        by_class = logits.transpose(1, 2).contiguous()
        return NetworkProblem(self.model, points, inputs, by_class, entries.values[ids], weights)


@torch.no_grad()
def recall(
    stored: Stored,
    queries: Tensor,
    *,
    k: int,
    lr: float,
    rate: Rate,
    steps: int,
    eps: float,
) -> Adapted:
    """Adapt the network to the neighbours of every query.

    Keys are pixels and the whole network is the output network. The Hebbian term changes the output layer: its
    h_k are hidden activations under the base weights, its c_k those of the pixels (Eq. 4).

    Args:
        stored: memory and network.
        queries: (N, D) pixels.
        k: neighbours K a query.
        lr: MbPA's learning rate.
        rate: what it is in units of; see :func:`hebblm.vision.permuted_mnist.adaptation.adapt`.
        steps: MbPA's steps.
        eps: the constant in c_k.

    Returns:
        On the device of the queries.
    """
    parts = []
    for some in torch.split(queries, _chunk(stored.model, k, queries.device)):
        ranked = stored.memory.nearest(some, k)
        problem = stored.problem(some, ranked, eps=eps)
        delta, rose = adapt(problem, lr=lr, rate=rate, steps=steps)
        hidden = problem.inputs.relu()  # (n, K + 1, H)
        neighbors = Neighbors(hidden[:, :-1], problem.labels, ranked.distances, ranked.ids >= 0)
        term = hebbian_term(neighbors, hidden[:, -1], eps=eps)
        parts.append(Adapted(problem.logits[:, :, -1].clone(), delta, term, rose))
    return Adapted(
        torch.cat([part.base_logits for part in parts]),
        torch.cat([part.delta for part in parts]),
        HebbianTerm(*map(torch.cat, zip(*(part.term for part in parts), strict=True))),
        torch.cat([part.rose for part in parts]),
    )


def _chunk(model: MLP, k: int, device: torch.device) -> int:
    """Return how many queries are adapted at a time."""
    hidden, width = model.weight.shape
    floats = k * (5 * hidden + 2 * width + k) + 2 * len(model.head.weight) * hidden
    budget = CUDA_CHUNK_BYTES if device.type == "cuda" else CPU_CHUNK_BYTES
    return max(1, budget // (model.weight.element_size() * floats))
