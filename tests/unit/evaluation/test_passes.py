from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as nn

from hebblm.adapt import functional as F
from hebblm.adapt.functional.mixture_weights import mixed
from hebblm.adapt.methods import DYNAMIC_METHODS, METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.combine import MixtureHebbConfig
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.passes import dynamic_base, dynamic_pass, shared_pass
from hebblm.evaluation.run import run_scenario
from hebblm.report.render.table import to_markdown
from hebblm.report.tables.overall import comparison_table
from hebblm.types import Neighbors

from ...support import toy
from .test_forgetting import scenario_of, settings_of

SEGMENT = 20


def test_methods_over_dynamic_evaluation_equal_the_plainest_loop(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    scenario.model.model.double()
    # Any rule can read the moving states. For the gate of dynamic+best see
    # tests/parity/test_best.py.
    predictors = {
        n: METHODS[n].predictor(settings.methods)
        for n in ("dynamic", "mixture", "mixture+hebb", "cache")
    }
    found = dynamic_pass(scenario, predictors, settings).scores.nll

    methods, stream = settings.methods, scenario.stream
    base = dynamic_base(scenario, settings.dynamic, None)
    keys, values = torch.zeros(0, toy.DIM, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    expected: dict[str, list[float]] = {name: [] for name in predictors}
    for start in range(0, len(stream), SEGMENT):
        inputs, targets = (
            torch.from_numpy(x[start : start + SEGMENT]) for x in (stream.inputs, stream.targets)
        )
        hidden = base.read(inputs)
        head = base.head
        with torch.no_grad():
            log_probs = dict.fromkeys(predictors, head.logits(hidden).log_softmax(1))
            if len(keys):
                distances, order = (
                    (hidden[:, None] - keys[None]).square().sum(2).sort(dim=1, stable=True)
                )
                near = order[:, :9]
                mask = torch.ones_like(near, dtype=torch.bool)
                found_near = Neighbors(keys[near], values[near], distances[:, :9], mask)
                mixture, mbpa, hebb_config = (
                    methods[MixtureConfig],
                    methods[MbpaConfig],
                    methods[HebbConfig],
                )
                log_probs["mixture"] = F.mixture_log_probs(
                    hidden,
                    found_near,
                    head,
                    theta=mixture.theta,
                    gamma=mixture.gamma,
                    scale=mixture.scale,
                )
                counts = torch.from_numpy(stream.train_counts) + torch.bincount(
                    values, minlength=stream.vocabulary_size
                )
                hebb = F.hebb_logits(
                    hidden, found_near, head, lr=mbpa.lr, steps=mbpa.steps, eta=hebb_config.eta,
                    beta=hebb_config.beta, eps=mbpa.eps, counts=counts,
                    hebbian_classes=torch.arange(stream.vocabulary_size) >= stream.source_size,
                    scale=hebb_config.scale, lr_units=mbpa.lr_units,
                ).log_softmax(1)  # fmt: skip
                log_probs["mixture+hebb"] = mixed(
                    log_probs["mixture"], hebb, methods[MixtureHebbConfig].weight
                )
                cache = methods[CacheConfig]
                products = hidden @ keys[-cache.window :].t()
                weights = (
                    cache.theta * products / products.std(1, keepdim=True, unbiased=False)
                ).softmax(1)
                pointer = (
                    weights @ nn.one_hot(values[-cache.window :], stream.vocabulary_size).double()
                )
                base_probs = log_probs["dynamic"].exp()
                log_probs["cache"] = ((1 - cache.gamma) * base_probs + cache.gamma * pointer).log()
            for name, values_of in log_probs.items():
                expected[name] += nn.nll_loss(values_of, targets, reduction="none").tolist()
        base.learn(targets)
        keys = torch.cat([keys, hidden.float().double()])  # as they are stored
        values = torch.cat([values, targets])
    for name in predictors:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
    assert np.abs(found["dynamic"] - found["mixture"]).max() > 1e-2


def test_dynamic_evaluation_beside_others_is_dynamic_evaluation_alone(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    predictors = {name: METHODS[name].predictor(settings.methods) for name in DYNAMIC_METHODS}
    base = dynamic_base(scenario, settings.dynamic, None)
    alone = toy.alone(base, scenario.stream, scenario.vocabulary, segment=SEGMENT)
    beside = dynamic_pass(scenario, predictors, settings).scores
    np.testing.assert_allclose(beside.nll["dynamic"], alone, atol=1e-5)
    only = dynamic_pass(scenario, {"dynamic": predictors["dynamic"]}, settings)
    np.testing.assert_array_equal(only.scores.nll["dynamic"], beside.nll["dynamic"])


def test_each_base_scores_its_own_methods_in_the_order_asked_for(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    methods = ["dynamic+best", "lstm", "dynamic", "mixture"]
    outcome = run_scenario(
        scenario, methods, settings, {}, EvalOptions(frequency_edges=(50,), check=True)
    )
    assert list(outcome.result.methods) == list(outcome.nll) == methods
    predictors = {name: METHODS[name].predictor(settings.methods) for name in ("lstm", "mixture")}
    shared = shared_pass(scenario, predictors, settings).scores.nll
    for name, nll in shared.items():
        np.testing.assert_array_equal(outcome.nll[name], nll)
    moving = outcome.result.methods["dynamic+best"]
    assert moving.rose_queries is not None, "both passes are checked"
    values = moving.hyperparameters
    assert values["dynamic"]["lr"] == settings.dynamic.lr
    assert set(values["adaptation"]) == {"best", "mbpa", "ngram"}
    assert outcome.result.memory["content"] == "test"


@pytest.mark.parametrize("check", [False, True])
def test_a_result_has_counts_and_the_error_of_the_fast_form_only_where_it_was_checked(
    check: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hebblm.adapt.methods.mbpa.MEASURED", 1)
    names = ["lstm", "mbpa"]
    settings = settings_of(0.0).changed({"mbpa.solver": "fast"})
    found = run_scenario(
        scenario_of(tmp_path), names, settings, {}, EvalOptions(frequency_edges=(50,), check=check)
    ).result
    counted = {
        name: (item.rose_queries is not None, "fast_error" in item.extra)
        for name, item in found.methods.items()
    }
    assert counted == {name: (check and name != "lstm",) * 2 for name in names}
    assert ("fast form" in to_markdown(comparison_table(found))) == check
    if check:
        assert found.methods["mbpa"].extra["fast_error"]["queries"] == found.scenario.tokens


def test_the_rms_rule_needs_the_training_text(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    predictors = {"dynamic": METHODS["dynamic"].predictor(settings.methods)}
    settings = settings.changed({"dynamic.rule": "rms"})
    assert np.isfinite(dynamic_pass(scenario, predictors, settings).scores.nll["dynamic"]).all()
    with pytest.raises(UserError, match="source=CORPUS"):
        dynamic_pass(replace(scenario, train=None), predictors, settings)


def test_a_method_that_diverged_into_nan_is_named_with_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)

    def diverged(*args: Any, **options: Any) -> Any:
        found = dynamic_pass(*args, **options)
        found.scores.nll["dynamic"][3:5] = np.nan
        return found

    monkeypatch.setattr("hebblm.evaluation.run.dynamic_pass", diverged)
    lost = len(scenario.stream)
    with pytest.raises(
        UserError, match=rf"^dynamic: 2 of {lost} losses are nan; lower dynamic\.lr in `settings`$"
    ):
        run_scenario(
            scenario, ["lstm", "dynamic"], settings, {}, EvalOptions(frequency_edges=(50,))
        )


@pytest.mark.parametrize(("name", "rates"), [("dynamic+best", "dynamic.lr"), ("mbpa", "base.lr")])
def test_rates_by_which_a_method_can_diverge(name: str, rates: str) -> None:
    settings = Hyperparameters()
    assert METHODS[name].rates(settings.methods) == rates
    if name == "mbpa":
        assert METHODS[name].rates(settings.changed({"mbpa.optimizer": "sgd"}).methods) == "mbpa.lr"
