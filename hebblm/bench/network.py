"""The cost of MbPA over a network with one hidden layer, against a copy of it and automatic differentiation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hebblm.bench import naive
from hebblm.bench.adapt_cost import EPS
from hebblm.bench.configs import AdaptConfig
from hebblm.bench.record import Case, Rounds, Row
from hebblm.bench.timing import stopwatch
from hebblm.memory import FlatMemory
from hebblm.vision.mlp import MLP
from hebblm.vision.recall import NetworkProblem, Stored, adapt, recall
from hebblm.vision.settings import Rate

PIXELS, CLASSES = 784, 10  # of permuted MNIST
RATE = 1.0
TOGETHER = 10  # queries, about as many as an experiment adapts at a time
SPREAD = 0.1  # standard deviation of a pixel around its class's picture


@dataclass(frozen=True, slots=True)
class NetworkWorkload:
    """A network, what it has stored, and what it is asked.

    Args:
        model: untrained.
        keys: (M, D) stored pixels.
        labels: (M,) int64.
        queries: (N, D).
    """

    model: MLP
    keys: Tensor
    labels: Tensor
    queries: Tensor

    @classmethod
    def synthetic(cls, hidden: int, entries: int, queries: int, seed: int, device: torch.device) -> NetworkWorkload:
        """Draw pixels around one picture a class."""
        draw = torch.Generator().manual_seed(seed)
        classes = torch.rand(CLASSES, PIXELS, generator=draw)
        labels = torch.randint(CLASSES, (entries + queries,), generator=draw)
        noise = SPREAD * torch.randn(entries + queries, PIXELS, generator=draw)
        pixels = (classes[labels] + noise).clamp(0, 1).to(device)
        model = MLP.initial(PIXELS, hidden, CLASSES, draw).to(device)
        return cls(model, pixels[:entries], labels[:entries].to(device), pixels[entries:])

    def double(self) -> NetworkWorkload:
        """Return the same in double precision."""
        model = MLP.of(tuple(parameter.double() for parameter in self.model.parameters()))
        return NetworkWorkload(model, self.keys.double(), self.labels, self.queries.double())

    def memory(self) -> FlatMemory:
        """Return a memory of the entries."""
        memory = FlatMemory(PIXELS, dtype=self.keys.dtype, device=self.keys.device)
        memory.add(self.keys, self.labels)
        return memory

    def problem(self, count: int, k: int) -> NetworkProblem:
        """Return the adaptation of the first queries, what is stored having gone through the network before."""
        memory, queries = self.memory(), self.queries[:count]
        ranked = memory.nearest(queries, min(k, len(self.keys)))
        return Stored.under(memory, self.model).problem(queries, ranked, eps=EPS)


def plain(problem: NetworkProblem, steps: int) -> Tensor:
    """Return the logits (n, C) of the queries by the plain form."""
    given = zip(problem.points, problem.labels, problem.weights, strict=True)
    rows = [
        naive.network_logits(problem.model, points[-1], points[:-1], *row, lr=RATE, steps=steps)
        for points, *row in given
    ]
    return torch.stack(rows)


def network_cases(config: AdaptConfig, rounds: Rounds) -> list[Case]:
    """Return a case a number of steps."""
    pictures = NetworkWorkload.synthetic(
        config.network_hidden, config.network_entries, config.batch, config.seed, rounds.device
    )
    return [partial(_row, config, pictures, steps, rounds) for steps in config.network_steps]


def _row(config: AdaptConfig, pictures: NetworkWorkload, steps: int, rounds: Rounds) -> Row:
    """Time both forms in turn, neighbours given, and compare what they return in double precision.

    ``dual`` takes a few queries at a time and ``single`` one, as the plain form does, at the rate that it is given too;
    ``relative`` finds each query's rate first; ``recall`` is all that an experiment does for a mini-batch: the search,
    MbPA at that rate and the Hebbian term.
    """
    k, few, device = config.network_neighbors, config.naive_tokens, pictures.keys.device
    together = min(TOGETHER, config.batch)
    one, some, first = (pictures.problem(count, k) for count in (1, together, few))
    stored = Stored.under(pictures.memory(), pictures.model)

    def dual(rate: Rate = "absolute") -> object:
        return adapt(some, lr=RATE, rate=rate, steps=steps)

    def everything() -> object:
        return recall(stored, pictures.queries, k=k, lr=RATE, rate="relative", steps=steps, eps=EPS)

    timings = rounds.times(
        {
            "naive": stopwatch(lambda: plain(first, steps), few, device),
            "dual": stopwatch(dual, together, device),
            "relative": stopwatch(lambda: dual("relative"), together, device),
            "single": stopwatch(lambda: adapt(one, lr=RATE, rate="absolute", steps=steps), 1, device),
            "recall": stopwatch(everything, config.batch, device),
        }
    )
    case = {
        "pixels": PIXELS,
        "hidden": len(pictures.model.weight),
        "classes": CLASSES,
        "k": k,
        "steps": steps,
        "lr": RATE,
        "entries": len(pictures.keys),
        "together": together,
        "batch": config.batch,
        "source": {
            "kind": "synthetic",
            "states": "pixels drawn around one picture a class, untrained network",
        },
    }
    return Row(
        "network",
        case,
        timings,
        dict.fromkeys(("dual", "relative", "single", "recall"), "naive"),
        _agreement(pictures.double().problem(few, k), steps),
        {"keys": pictures.keys, "dual": dual},
    )


def _agreement(problem: NetworkProblem, steps: int) -> dict[str, float]:
    """Return the largest difference of a logit between the forms, and what adaptation changed, in double precision."""
    delta, rose = adapt(problem, lr=RATE, rate="absolute", steps=steps)
    found = problem.logits[:, :, -1] + delta
    return {
        "difference_max": float((found - plain(problem, steps)).abs().max()),
        "change_max": float(delta.abs().max()),
        "rose_share": float(rose.double().mean()),
    }
