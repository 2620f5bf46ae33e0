"""The cost of MbPA over a network with one hidden layer, against a copy of it and automatic
differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hebblm.memory import FlatMemory
from hebblm.vision.mlp import MLP
from hebblm.vision.mlp_adaptation import NetworkProblem, Stored, adapt
from recipes.bench import naive
from recipes.bench.configs import FEW, AdaptConfig
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.timing import stopwatch

PIXELS, HIDDEN, CLASSES = 784, 1000, 10  # of permuted MNIST
ENTRIES, K = 1000, 50
RATE, EPS = 1.0, 1e-3
TOGETHER = 10  # queries, about as many as an experiment adapts at a time
SPREAD = 0.1  # standard deviation of a pixel around its class's picture


def problem(
    seed: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Callable[[int], NetworkProblem]:
    """Return how an untrained network adapts to the first queries; pixels are drawn around one
    picture a class.
    """
    draw = torch.Generator().manual_seed(seed)
    classes = torch.rand(CLASSES, PIXELS, generator=draw)
    labels = torch.randint(CLASSES, (ENTRIES + TOGETHER,), generator=draw)
    noise = SPREAD * torch.randn(ENTRIES + TOGETHER, PIXELS, generator=draw)
    pixels = (classes[labels] + noise).clamp(0, 1).to(device, dtype)
    model = MLP.initial(PIXELS, HIDDEN, CLASSES, draw).to(device)
    model = MLP.of(tuple(parameter.to(dtype) for parameter in model.parameters()))
    memory = FlatMemory(PIXELS, dtype=dtype, device=device)
    memory.add(pixels[:ENTRIES], labels[:ENTRIES].to(device))
    stored = Stored.under(memory, model)

    def first(count: int) -> NetworkProblem:
        queries = pixels[ENTRIES : ENTRIES + count]
        return stored.problem(queries, memory.nearest(queries, K), eps=EPS)

    return first


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
    return [partial(_row, config.seed, steps, rounds) for steps in config.steps]


def _row(seed: int, steps: int, rounds: Rounds) -> Row:
    """Time both forms in turn, neighbours given, and compare what they return in double precision.

    ``dual`` takes a few queries at a time, ``single`` takes one as the plain form does.
    """
    device, problems = rounds.device, problem(seed, rounds.device)
    one, some, first = (problems(count) for count in (1, TOGETHER, FEW))

    timings = rounds.times(
        {
            "naive": stopwatch(lambda: plain(first, steps), FEW, device),
            "dual": stopwatch(
                lambda: adapt(some, lr=RATE, rate="absolute", steps=steps), TOGETHER, device
            ),
            "single": stopwatch(
                lambda: adapt(one, lr=RATE, rate="absolute", steps=steps), 1, device
            ),
        }
    )
    case = {
        "pixels": PIXELS,
        "hidden": HIDDEN,
        "classes": CLASSES,
        "k": K,
        "steps": steps,
        "lr": RATE,
        "entries": ENTRIES,
        "together": TOGETHER,
        "source": {
            "kind": "synthetic",
            "states": "pixels drawn around one picture a class, untrained network",
        },
    }
    agreement = _agreement(problem(seed, device, torch.float64)(FEW), steps)
    return Row("network", case, timings, dict.fromkeys(("dual", "single"), "naive"), agreement)


def _agreement(problem: NetworkProblem, steps: int) -> dict[str, float]:
    """Return the largest difference of a logit between the forms, and what adaptation changed, in
    double precision.
    """
    delta, _ = adapt(problem, lr=RATE, rate="absolute", steps=steps)
    found = problem.logits[:, :, -1] + delta
    return {
        "difference_max": float((found - plain(problem, steps)).abs().max()),
        "change_max": float(delta.abs().max()),
    }
