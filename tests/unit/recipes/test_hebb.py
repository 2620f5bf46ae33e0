"""When Hebb gains over MbPA on text: ``best`` with one more part, and what tuning tries."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from hebblm.adapt import methods
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.best import BestConfig, best_predictor
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.hebb import hebb_rule
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.io.files import read_json
from hebblm.memory import FlatMemory
from hebblm.report import Result
from hebblm.report.result.tokens import TokenLosses
from hebblm.types import OutputHead
from recipes.hebb import tables
from recipes.hebb.pairs import parts_of
from recipes.hebb.tune import HebbTuneConfig, grid_of, main

from ...support import toy
from ...support.toy import DIM, randn

CLASSES = 30
PLUGIN = Path(__file__).parents[3] / "recipes" / "hebb" / "beside.py"
SETTINGS = toy.exact(toy.SETTINGS)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods of the plugin, for one test."""
    for table in (methods.METHODS, methods.EVALUATED):
        for name in ("best+mbpa", "best+hebb"):
            monkeypatch.setitem(table, name, None)
            monkeypatch.delitem(table, name)
    methods.load_plugin(PLUGIN)


def batch_of(rules: list[Predictor]) -> EvalBatch:
    head = OutputHead(
        randn(0, CLASSES, DIM, dtype=torch.float64), randn(1, CLASSES, dtype=torch.float64)
    )
    context = Context(
        head,
        FlatMemory(DIM, dtype=torch.float64),
        k=9,
        train_counts=torch.arange(CLASSES),
        window=40,
    )
    toy.observe(context, randn(2, 60, DIM, dtype=torch.float64), torch.arange(60) * 7 % 5)
    context.learn_mixture_weights(rules)
    return EvalBatch(randn(3, 6, DIM, dtype=torch.float64), context)


def rule_of(name: str, settings: MethodSettings = SETTINGS) -> Gated:
    return cast(Gated, methods.METHODS[name].predictor(settings))


@pytest.mark.usefixtures("registered")
def test_with_mbpa_twice_the_mixture_begins_as_best() -> None:
    best, twice = best_predictor(SETTINGS), rule_of("best+mbpa")
    batch = batch_of([best, twice])
    torch.testing.assert_close(twice.log_probs(batch), best.log_probs(batch), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("registered")
def test_hebb_begins_with_half_of_mbpas_share() -> None:
    best, more = cast(Gated, best_predictor(SETTINGS)), rule_of("best+hebb")
    batch, beside = batch_of([best, more]), Mbpa(SETTINGS[MbpaConfig])
    shares, parts = (
        best.log_mixture_weights(batch).exp(),
        [rule.log_probs(batch) for rule in best.predictors],
    )
    at = max(place for place, rule in enumerate(best.predictors) if rule == beside)
    hebb = hebb_rule(SETTINGS).log_probs(batch)
    expected = sum(
        shares[:, place, None] * part.exp() for place, part in enumerate(parts) if place != at
    ) + shares[:, at, None] / 2 * (parts[at].exp() + hebb.exp())
    assert not torch.allclose(hebb, parts[at], rtol=0, atol=1e-3)
    torch.testing.assert_close(more.log_probs(batch).exp(), expected, rtol=0, atol=1e-12)
    assert math.isclose(float(more.log_mixture_weights(batch).exp().sum()), len(shares))


@pytest.mark.usefixtures("registered")
def test_a_mixture_without_mbpa_is_refused() -> None:
    with pytest.raises(UserError, match="must hold mbpa for best"):
        rule_of("best+hebb", SETTINGS.replaced(BestConfig(parts="base,ngram")))


def test_tuning_tries_the_given_rates_at_the_steps_that_are_set() -> None:
    settings = Hyperparameters().changed(
        {"mbpa.optimizer": "sgd", "mbpa.l2_to_base": 0.0, "mbpa.steps": 5, "base.lr": 1.0}
    )
    grid = grid_of(HebbTuneConfig(mbpa_lr=[2.0, 4.0], base_lr=[3.0]), settings)
    assert (grid.mbpa_lr, grid.mbpa_steps, grid.base_lr) == ((2.0, 4.0), (5,), (3.0,))
    newton = grid_of(HebbTuneConfig(), Hyperparameters())
    assert (newton.mbpa_l2_to_base, newton.mbpa_weight) == (
        (MbpaConfig().l2_to_base,),
        (MbpaConfig().weight,),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--mbpa-lr 2", "--mbpa-lr [2.0] belongs to --set mbpa.optimizer=sgd"),
        ("--set base.lr=1", "--base-lr [] belongs to --set base.lr above 0"),
        ("--split test", "tuning must not read the split 'test'"),
    ],
)
def test_rates_that_nothing_reads_are_one_line(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--cross-domain", "wt2-to-ptb", "--output-path", str(tmp_path), *line.split()]
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_new_words_are_divided_by_how_often_they_have_come() -> None:
    words = np.array(["a", "new", "a", *["new"] * 8, "other"], dtype=object)
    oov = words != "a"
    tokens = TokenLosses(words, None, oov, {"lstm": np.zeros(len(words))})
    parts = {name: np.flatnonzero(part).tolist() for name, part in parts_of(tokens).items()}
    assert parts["Known"] == [0, 2]
    assert parts["1st"] == [1, 11]
    assert parts["2nd"] == [3]
    assert parts["3rd to 7th"] == [4, 5, 6, 7, 8]
    assert parts["later"] == [9, 10]
    apart = ("1st", "2nd", "3rd to 7th", "later")
    assert sorted(place for name in apart for place in parts[name]) == parts["New words"]


def test_pages_say_what_hebb_gains_by_the_solver_of_mbpa() -> None:
    gains = {
        title: Result.load(path).gain("hebb", "mbpa") for title, path in tables.SOLVERS.items()
    }
    one, five, newton, printed = (gain for gain in gains.values() if gain is not None)
    assert one.certain
    assert five.certain
    assert (f"{one.gain:.3f}", f"{five.gain:.3f}") == ("0.022", "0.006")
    for worse in (newton, printed):
        assert worse.gain is not None
        assert worse.certain
        assert worse.gain < 0


def test_mbpa_by_newton_alone_is_better_than_hebb_over_gradient_steps() -> None:
    readings = read_json(tables.RESULTS / "readings" / "ptb" / "readings.json")
    tuned = [read_json(path) for path in tables.TUNED.values()]
    for document in tuned:
        for name in ("split", "tokens", "update_every", "memory_content"):
            assert document["scenario"][name] == readings["scenario"][name]
    (newton,) = (
        effect["nll"]
        for effect in readings["effects"]
        if (effect["reading"], effect["method"]) == ("default", "mbpa")
    )
    assert newton < min(document["nll"]["hebb"] for document in tuned)


def test_pages_say_what_hebb_gains_over_a_base_that_learns() -> None:
    result = Result.load(tables.LEARNS)
    every, new = (result.gain("hebb", "mbpa", part) for part in ("All", "OOV"))
    assert every is not None
    assert new is not None
    assert not every.certain
    assert new.certain
    assert f"{new.gain:.3f}" == "0.059"


def test_pages_say_that_hebb_adds_nothing_to_best() -> None:
    for title in ("best+hebb over best", "best+hebb over best+mbpa"):
        gains = {gain["part"]: gain for gain in read_json(tables.PAIRS)["gains"][title]}
        every, second = gains["All"], gains["2nd"]
        assert -0.001 < every["low"] < 0 < every["high"] < 0.001
        assert second["low"] > 0
        assert (f"{second['gain']:.2f}", second["tokens"]) == ("0.01", 44)
