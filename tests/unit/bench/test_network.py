from __future__ import annotations

import pytest
import torch

from hebblm.bench import network
from hebblm.bench.adapt_cost import EPS
from hebblm.bench.configs import AdaptConfig
from hebblm.bench.network import NetworkWorkload, network_cases
from hebblm.bench.record import Rounds
from hebblm.vision.recall import NetworkProblem, Stored, adapt, recall
from hebblm.vision.settings import Rate

CPU = torch.device("cpu")
SMALL = AdaptConfig(
    batch=6,
    naive_tokens=2,
    exact_tokens=2,
    network_hidden=12,
    network_entries=40,
    network_neighbors=7,
    network_steps=[1, 3],
)


def test_pictures_follow_the_seed() -> None:
    one, same, other = (NetworkWorkload.synthetic(5, 30, 4, seed, CPU) for seed in (1, 1, 2))
    assert torch.equal(one.keys, same.keys)
    assert torch.equal(one.model.weight, same.model.weight)
    assert not torch.equal(one.keys, other.keys)
    assert one.queries.shape == (4, network.PIXELS)


def test_both_forms_agree_and_change_something() -> None:
    ticks: list[int] = []
    rows = [case() for case in network_cases(SMALL, Rounds(CPU, SMALL.repeats, lambda: ticks.append(1)))]
    assert [row.case["steps"] for row in rows] == [1, 3]
    assert len(ticks) == 2 * (SMALL.repeats + 1)
    for row in rows:
        assert row.values["difference_max"] < 1e-10
        assert row.values["change_max"] > 1e-4
        assert row.timings["naive"].tokens == (2,) * 5
        assert row.timings["dual"].tokens == (6,) * 5


def test_a_difference_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = network.adapt

    def off(problem: NetworkProblem, *, lr: float, rate: Rate, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        return original(problem, lr=2 * lr, rate=rate, steps=steps)

    monkeypatch.setattr(network, "adapt", off)
    row = network_cases(SMALL, Rounds(CPU, SMALL.repeats))[0]()
    assert row.values["difference_max"] > 1e-5


def test_the_problem_is_what_an_experiment_solves() -> None:
    pictures = NetworkWorkload.synthetic(9, 30, 4, 1, CPU).double()
    delta, _ = adapt(pictures.problem(4, 6), lr=0.5, rate="relative", steps=2)
    stored = Stored.under(pictures.memory(), pictures.model)
    found = recall(stored, pictures.queries, k=6, lr=0.5, rate="relative", steps=2, eps=EPS)
    torch.testing.assert_close(delta, found.delta)
