from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional.mixture_weights import mixed as interpolated
from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.memory import FlatMemory, MemoryConfig
from hebblm.models.dynamic import DynamicConfig
from hebblm.models.update import TRANSFORMERS
from hebblm.tuning.hebbian import HebbGrid, HebbLosses
from hebblm.tuning.points import BestPoint, mixed
from hebblm.tuning.replay import Replay
from hebblm.tuning.search import Search
from hebblm.tuning.tune import tune

from ...support import toy
from .scenarios import scenario_of

BETAS, ETAS = (0.0, 0.6, 0.99), (0.0, 0.05, 2.0)


@pytest.mark.parametrize("masked", [False, True], ids=["all", "new"])
@pytest.mark.parametrize("entries", [1, 60])
@pytest.mark.parametrize(("lr", "steps"), [(0.0, 1), (0.5, 5)])
def test_every_point_is_the_loss_of_hebb(masked: bool, entries: int, lr: float, steps: int) -> None:
    stream = toy.stream_of(toy.tokens(0, 10))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    labels = torch.from_numpy(np.resize([25, 2, 2, 25, 3, 26, 25, 7], entries))
    keys = toy.randn(1, entries, toy.DIM, dtype=torch.float64)
    toy.observe(context, keys, labels)
    hidden, targets = (
        toy.randn(2, 8, toy.DIM, dtype=torch.float64),
        torch.tensor([25, 2, 26, 7, 0, 29, 3, 25]),
    )
    hidden[0] = keys[0]
    batch = EvalBatch(hidden, context)
    classes = context.new_classes if masked else None
    mbpa = MbpaConfig("sgd", lr=lr, steps=steps, solver="exact", l2_to_base=0.0, weight=1.0)
    config = HebbConfig(classes="new" if masked else "all")
    grid = HebbGrid.of(mbpa, config, Grid(kernel_weight=("raw",), beta=BETAS, eta=ETAS))
    found = grid.losses(batch, targets)
    assert found.shape == (len(grid.points), 8) == (9, 8)
    for row, point in zip(found, grid.points, strict=True):
        beta, eta = point["hebb.beta"], point["hebb.eta"]
        logits = F.hebb_logits(
            hidden, batch.neighbors, base.head, lr=lr, steps=steps, eta=eta, beta=beta,
            eps=mbpa.eps,
            counts=context.train_counts + context.observed, hebbian_classes=classes,
            scale="relative",
            lr_units="relative",
        )  # fmt: skip
        expected = -logits.log_softmax(1).gather(1, targets[:, None]).squeeze(1)
        assert torch.allclose(row, expected, atol=1e-9), (beta, eta)


@pytest.mark.parametrize("weight", [0.05, 0.5])
def test_mixed_losses_are_those_of_the_interpolated_distribution(weight: float) -> None:
    log_p, log_q = (toy.randn(seed, 6, 9, dtype=torch.float64).log_softmax(1) for seed in (0, 1))
    targets = torch.arange(6)[:, None]
    losses = [-values.gather(1, targets).squeeze(1).numpy() for values in (log_p, log_q)]
    expected = -interpolated(log_p, log_q, weight).gather(1, targets).squeeze(1)
    np.testing.assert_allclose(mixed(losses[0], losses[1], weight, 2), expected.numpy(), rtol=1e-12)
    no_probability = mixed(np.array([np.inf]), np.array([1.0]), 0.25, 1)
    np.testing.assert_allclose(no_probability, [1.0 - np.log(0.75)])


def test_the_best_point_is_the_lowest_finite_mean() -> None:
    best = BestPoint()
    best.offer({"a": 1.0}, np.array([np.inf, 0.0]))
    best.offer({"a": 2.0}, np.array([np.nan, 0.0]))
    assert best.values == {}
    best.offer({"a": 3.0}, np.array([3.0, 1.0]))
    best.offer({"a": 4.0}, np.array([1.0, 1.5]))
    best.offer({"a": 5.0}, np.array([2.0, 2.0]))
    assert (best.loss, best.values) == (1.25, {"a": 4.0})
    assert best.losses.tolist() == [1.0, 1.5]
    assert [point["nll"] for point in best.tried] == [np.inf, np.inf, 2.0, 1.25, 2.0]
    by_means = BestPoint()
    by_means.offer_means(
        [{"a": float(at)} for at in range(4)], np.array([2.0, np.inf, 1.5, np.nan])
    )
    by_means.offer_means([{"a": 9.0}], np.array([9.0]))
    assert (by_means.loss, by_means.values, len(by_means.tried)) == (1.5, {"a": 2.0}, 5)
    fixed = BestPoint(fixed={"mbpa.lr": 4.0, "hebb.eta": 9.0})
    for nll, lr, steps in ((1.0, 8.0, 5), (3.0, 4.0, 5), (2.0, 4.0, 10)):
        fixed.offer({"mbpa.lr": lr, "mbpa.steps": steps}, np.array([nll]))
    assert (fixed.loss, fixed.values) == (2.0, {"mbpa.lr": 4.0, "mbpa.steps": 10})
    assert [point["nll"] for point in fixed.tried] == [1.0, 3.0, 2.0], (
        "the others are tried all the same"
    )


def test_losses_at_one_point_are_those_of_the_grid_there_whoever_went_on_with_it() -> None:
    stream = toy.stream_of(toy.tokens(3, 80))
    mbpa, hebb = toy.exact(toy.SETTINGS)[MbpaConfig], toy.SETTINGS[HebbConfig]
    grid = Grid(kernel_weight=("sum", "max"), beta=BETAS, eta=ETAS)
    whole = HebbGrid.of(mbpa, hebb, grid)
    wanted = 13
    point = {name.removeprefix("hebb."): value for name, value in whole.points[wanted].items()}
    alone = HebbLosses(mbpa, replace(hebb, **point))
    toy.losses_of({}, stream, whole, alone)
    losses = alone.losses()
    assert len(losses) == 80
    assert whole.means()[wanted] == pytest.approx(losses.mean(), abs=1e-12)
    resumed = HebbGrid.of(mbpa, hebb, grid)
    resumed.load_state_dict(whole.state_dict())
    np.testing.assert_array_equal(resumed.means(), whole.means())


@pytest.mark.parametrize(
    ("kind", "scale"),
    [("intra-domain", "relative"), ("cross-domain", "relative"), ("cross-domain", "absolute")],
)
def test_tuning_finds_what_trying_every_point_finds(kind: str, scale: str) -> None:
    grid = Grid(
        base_lr=(0.01, 0.3), theta=(0.2, 1.0, "online"), temperature=(0.5, "online"), gamma=(0.1,
        "online"),
        mbpa_lr=(0.05, 0.5),
        mbpa_steps=(2,), beta=(0.0, 0.9), eta=(0.05,), kernel_weight=("raw", "max"),
        dynamic_lr=(0.01,
        0.2),
        weight=(0.2, "online"), dynamic_decay=(0.0, 0.1),
    )  # fmt: skip
    start = Hyperparameters(
        methods=toy.exact(toy.SETTINGS),
        dynamic=DynamicConfig("sgd", lr=1.0, segment=20),
        memory=MemoryConfig("exact"),
    ).changed({f"{section}.scale": scale for section in ("mixture", "cache", "knn", "hebb")})
    learning = kind == "cross-domain" and scale == "relative"
    start = start.changed({"base.lr": 0.1 if learning else 0.0})
    scenario = scenario_of(kind, 80)
    tuned = tune(scenario, start, grid)
    settings = start.changed({"base.lr": tuned.values["base.lr"]}) if learning else start
    assert ("base.lr" in tuned.values) == learning

    def loss(method: str, values: dict[str, float | str]) -> float:
        point = settings.changed(values)
        base = scenario.base(point)
        window = METHODS[method].predictor(point.methods).requirements.window
        context = scenario.context(base, scenario.empty_memory(point), window)
        predictors = {method: METHODS[method].predictor(point.methods)}
        nll = evaluate(
            base, [context], predictors, scenario.stream, scenario.vocabulary, Schedule(20)
        ).nll[method]
        return float(nll.astype(float).mean())

    chosen: dict[str, float | str] = {}

    def compare(
        spaces: dict[str, dict[str, Any]], loss: Callable[[str, dict[str, float | str]], float]
    ) -> None:
        for method, space in spaces.items():
            points = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
            losses = [loss(method, {**chosen, **point}) for point in points]
            for point, expected in zip(points if space else [], losses, strict=False):
                nll = next(
                    tried["nll"]
                    for tried in tuned.best[method].tried
                    if point.items() <= tried.items()
                )
                assert nll == pytest.approx(expected, abs=1e-5), (method, point)
            best = min((nll, i) for i, nll in enumerate(losses))
            assert tuned.best[method].loss == pytest.approx(best[0], abs=1e-5), method
            assert tuned.best[method].values == points[best[1]], method
            chosen.update(points[best[1]])

    spaces: dict[str, dict[str, tuple[float | str, ...]]] = {
        "lstm": {},
        "mixture": {
            "mixture.scale": (scale,),
            "mixture.theta": grid.theta,
            "mixture.gamma": grid.gamma,
        },
        "cache": {"cache.scale": (scale,), "cache.theta": grid.theta, "cache.gamma": grid.gamma},
        "knn": {
            "knn.scale": (scale,),
            "knn.temperature": grid.temperature,
            "knn.gamma": grid.gamma,
        },
        "mbpa": {"mbpa.lr": grid.mbpa_lr, "mbpa.steps": grid.mbpa_steps},
        "mbpa-absolute": {"mbpa_absolute.lr": grid.absolute_lr, "mbpa_absolute.steps": (5,)},
        "hebb": {
            "hebb.scale": (scale,),
            "hebb.kernel_weight": grid.kernel_weight,
            "hebb.beta": grid.beta,
            "hebb.eta": grid.eta,
        },
        "mixture+mbpa": {"mixture_mbpa.weight": grid.weight},
        "mixture+hebb": {"mixture_hebb.weight": grid.weight},
    }
    compare(spaces, loss)
    assert chosen.items() <= tuned.values.items()
    assert len(tuned.best["dynamic"].tried) == 4


def test_a_further_reading_solves_for_nothing_that_an_earlier_one_learned() -> None:
    scenario = scenario_of("intra-domain", 40)
    replay = Replay.of(scenario, Hyperparameters(memory=MemoryConfig("exact")))
    settings = Hyperparameters().methods
    learned = {name: METHODS[name].predictor(settings) for name in ("mbpa", "cache")}
    first = replay.score(learned, "first")
    assert len(replay.context.learners) == 2
    alone = replay.score({"cache": learned["cache"]}, "again")
    assert replay.context.learners == learned["cache"].requirements.mixture_weights
    np.testing.assert_array_equal(alone["cache"], first["cache"])
    observer = HebbLosses(settings[MbpaConfig], settings[HebbConfig])
    replay.score({}, "watched", [observer], [learned["mbpa"]])
    assert len(observer.losses()) == 40
    assert replay.context.learners == learned["mbpa"].requirements.mixture_weights


def test_a_best_number_at_an_end_of_what_was_tried_is_told() -> None:
    search = Search(Hyperparameters(), Grid(), {"mixture"}, {"mbpa.l2_to_base": 0.01})
    theta, gamma = (0.2, 1.0, "online"), (0.1, 0.5)
    tried = [
        {"mixture.theta": t, "mixture.gamma": g, "mixture.scale": "relative"}
        for t in theta
        for g in gamma
    ]
    search.take("mixture", [(point, np.array([abs(at - 3.0)])) for at, point in enumerate(tried)])
    assert search.at_end == ["mixture.gamma", "mixture.theta"]
    search.take("mixture", [(point, np.array([abs(at - 5.0)])) for at, point in enumerate(tried)])
    assert search.at_end == ["mixture.gamma"], "words have no ends"
    search.take(
        "mbpa", [({"mbpa.l2_to_base": l2_to_base}, np.array([1.0])) for l2_to_base in (0.01, 0.02)]
    )
    assert search.at_end == ["mixture.gamma"], "fixed values have no ends"


@pytest.mark.parametrize(
    "fixed",
    [
        "cache.theta=0.7",
        "mixture.gamma=0.7",
        "hebb.beta=0.7",
        "mixture_hebb.weight=0.7",
        "dynamic.decay=0.7",
    ],
)
def test_a_fixed_value_that_no_point_will_have_is_refused_before_anything_is_read(
    fixed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hebblm.tuning.tune.tune_static", lambda *_: pytest.fail("read before it was refused")
    )
    narrow = Grid(theta=(0.5,), gamma=(0.3,), beta=(0.5,), weight=(0.5,), dynamic_decay=(0.1,))
    name, _, value = fixed.partition("=")
    with pytest.raises(
        UserError, match=rf"^{fixed} is not a value that tuning tries .*; choose one of 0\.[135]$"
    ):
        tune(scenario_of("intra-domain", 40), Hyperparameters(), narrow, fixed={name: float(value)})


def test_a_rate_that_is_measured_counts_as_the_default_one() -> None:
    search = Search(
        Hyperparameters().changed(TRANSFORMERS),
        Grid(),
        {"dynamic"},
        {},
        usual=defaults() | TRANSFORMERS,
    )
    search.note_rate(5e-5)
    assert search.start.dynamic.lr == search.usual["dynamic.lr"] == 5e-5
    search.take("dynamic", [({"dynamic.lr": 1e-4, "dynamic.decay": 0.001}, np.ones(3))])
    assert search.default_loss("dynamic") is None
    search.take("dynamic", [({"dynamic.lr": 5e-5, "dynamic.decay": 0.001}, np.full(3, 2.0))])
    assert search.default_loss("dynamic") == 2.0
    search.note_rate(1.0)  # a number stays as it is
    assert search.start.dynamic.lr == 5e-5


def test_a_loss_is_the_default_one_whatever_values_that_its_method_does_not_read_are_changed() -> (
    None
):
    start = Hyperparameters().changed(
        {**TRANSFORMERS, "cache.window": 3785, "memory.index": "exact"}
    )
    search = Search(start, Grid(), {"dynamic"}, {}, usual=defaults() | TRANSFORMERS)
    search.note_rate(5e-5)
    search.take(
        "dynamic",
        [({"dynamic.lr": 5e-5, "dynamic.decay": 0.001, "dynamic.epsilon": 0.001}, np.full(3, 2.0))],
    )
    assert search.default_loss("dynamic") == 2.0
    online = {"theta": "online", "gamma": "online"}
    for method in ("mixture", "cache"):
        point = {f"{method}.{name}": value for name, value in online.items()}
        search.take(method, [(point, np.full(3, 1.0))])
    assert [search.default_loss(name) for name in ("mixture", "cache")] == [None, None]
    search.start = search.start.changed({"memory.index": "auto"})
    assert [search.default_loss(name) for name in ("mixture", "cache")] == [1.0, None]
    search.start = search.start.changed({"base.lr": 1.0})
    assert [search.default_loss(name) for name in ("dynamic", "mixture")] == [2.0, None]


@pytest.mark.parametrize(
    ("method", "point", "told"),
    [
        ("mbpa-absolute", {"mbpa_absolute.lr": 5.0}, "mbpa_absolute.lr"),
        ("dynamic", {"dynamic.decay": 0.1}, "dynamic.lr"),
        ("mixture", {"mixture.theta": 1.0}, "base.lr"),
        ("base", {"base.lr": 1.0}, "base.lr"),
    ],
)
def test_a_method_that_diverges_at_every_point_says_what_to_lower(
    method: str, point: Any, told: str
) -> None:
    search = Search(Hyperparameters(), Grid(), {method}, dict(point))
    with pytest.raises(
        UserError, match=rf"^{re.escape(method)}: no point .* finite loss; lower {told} "
    ):
        search.take(method, [(point, np.array([np.inf])), (point, np.array([np.nan]))])
