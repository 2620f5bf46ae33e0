from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hebblm.adapt.methods.combine import MixtureHebbConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.renamed import RENAMED
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings
from hebblm.evaluation.hyperparameters import defaults as default_values
from hebblm.runtime.progress import log_once


def test_every_known_name_can_be_set_to_what_it_is() -> None:
    settings = Hyperparameters()
    names = default_values()
    assert len(names) > 25
    for name in names:
        assert settings.changed({name: settings.of(name)}) == settings, name
        assert settings.changed({name: str(settings.of(name)).lower()}) == settings, name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hebb.beta", "0.25", 0.25),
        ("mbpa.lr", "2", 2.0),
        ("mbpa.steps", "3", 3),
        ("mbpa.steps", 4.0, 4),
        ("mbpa.steps", np.int64(4), 4),
        ("mbpa.lr", torch.tensor(0.5), 0.5),
        ("memory.capacity", np.array(250), 250),
        ("mbpa.solver", "exact", "exact"),
        ("mbpa.lr_units", "guarded", "guarded"),
        ("memory.capacity", "250", 250),
        ("memory.capacity", "none", None),
        ("memory.capacity", None, None),
        ("memory.index", "PQ4x4fs", "PQ4x4fs"),
        ("dynamic.rule", "sgd", "sgd"),
        ("base.lr", "1e-3", 1e-3),
    ],
)
def test_text_becomes_the_type_of_the_field(name: str, text: object, value: object) -> None:
    before = Hyperparameters()
    after = before.changed({name: text})
    assert after.of(name) == value
    assert type(after.of(name)) is type(value)
    same = [other for other in default_values() if other != name]
    assert all(before.of(other) == after.of(other) for other in same)


def test_a_combination_may_be_written_with_a_plus() -> None:
    assert (
        Hyperparameters().changed({"mixture+hebb.weight": 0.9}).methods[MixtureHebbConfig].weight
        == 0.9
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hebb.gamma", "1", "unknown setting 'hebb.gamma'.*hebb.beta"),
        ("hebb", "1", "unknown setting 'hebb'"),
        ("beta", "1", "unknown setting 'beta'"),
        ("methods.hebb", "1", "unknown setting"),
        ("__doc__.x", "1", "unknown setting"),
        (
            "mbpa.steps",
            "2.5",
            "mbpa.steps = 2.5 must be a whole number at least 0 and at most 10000",
        ),
        ("mbpa.steps", 2.5, "mbpa.steps = 2.5 must be a whole number at least 0 and at most 10000"),
        ("mbpa.steps", math.inf, "mbpa.steps = inf"),
        ("mbpa.lr", "fast", "mbpa.lr = fast must be a number at least 0"),
        ("mbpa.lr", "nan", "mbpa.lr = nan"),
        ("mbpa.lr", "inf", "mbpa.lr = inf must be a number of at most 9e.15"),
        ("mbpa.lr", [1], "mbpa.lr = .1. must be a number"),
        ("mbpa.lr", True, "mbpa.lr = True"),
        ("mbpa.lr", "-1", "mbpa.lr = -1"),
        (
            "mbpa.lr_units",
            "fixed",
            "mbpa.lr_units = fixed must be one of relative, absolute, guarded",
        ),
        ("mbpa.solver", "slow", "mbpa.solver = slow must be one of fast, exact"),
        ("hebb.beta", "1", "hebb.beta = 1 must be a number at least 0 and below 1$"),
        ("knn.temperature", 0.0, "knn.temperature = 0.0 must be a number above 0 or online"),
        (
            "mixture.gamma",
            "1.5",
            "mixture.gamma = 1.5 must be a number at least 0 and at most 1 or online",
        ),
        ("cache.gamma", "onlin", "cache.gamma = onlin must be .* or online; did you mean online"),
        ("mixture.theta", math.nan, "mixture.theta = nan"),
        ("best.long", 0, "best.long = 0"),
        ("cache.window", 0, "cache.window = 0 must be a whole number at least 1"),
        ("mbpa.steps", -1, "mbpa.steps = -1"),
        (
            "mbpa.l2_to_base",
            0,
            "mbpa.l2_to_base = 0.* must be a number above 0 for mbpa.optimizer = newton",
        ),
        ("memory.capacity", "many", "memory.capacity = many must be a whole number or none"),
        ("memory.capacity", "1" * 30, "memory.capacity = 1* must be a number of at most"),
        ("dynamic.decay", 2, "dynamic.decay = 2"),
        (
            "mixture_heb.weight",
            "1",
            "unknown setting 'mixture_heb.weight'; did you mean mixture_hebb.weight",
        ),
        ("hebb-learned.eta", "1", "unknown setting 'hebb-learned.eta'"),
    ],
)
def test_a_bad_name_or_value_is_refused_by_its_name(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Hyperparameters().changed({name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mbpa.optimizer": "sgd", "mbpa.l2_to_base": 0.5}, "take back more than the change"),
        ({"mbpa.optimizer": "rmsprop"}, "set mbpa.solver=exact"),
    ],
)
def test_values_of_mbpa_that_do_not_go_together_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Hyperparameters().changed(changes)


@pytest.mark.parametrize("name", ["mbpa.lr", "mbpa.lr_units"])
def test_a_value_that_was_asked_for_and_that_newton_s_steps_do_not_go_by_is_refused(
    name: str,
) -> None:
    with pytest.raises(UserError, match=f"{name} is for gradient descent.*mbpa.optimizer=sgd"):
        Hyperparameters().check_set([name])
    Hyperparameters().changed({"mbpa.optimizer": "sgd"}).check_set([name])
    Hyperparameters().check_set(["mbpa.l2_to_base", "mbpa.steps"])


def test_names_of_the_last_release_are_taken_with_a_line_that_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_once.cache_clear()
    earlier = {"mbpa.pull": "0.25", "mbpa.closeness": "sum", "hebb.closeness": "raw"}
    assert earlier.keys() == RENAMED.keys()
    settings = Hyperparameters().changed(earlier).changed(earlier)
    assert {name: settings.of(now) for name, now in RENAMED.items()} == {
        **earlier,
        "mbpa.pull": 0.25,
    }
    line = "mbpa.pull is now mbpa.l2_to_base; the old name goes with the next release"
    assert capsys.readouterr().err.count(line) == 1


def test_values_that_no_method_of_a_run_reads_are_told_apart() -> None:
    names = [
        "hebb.beta",
        "cache.theta",
        "mbpa.l2_to_base",
        "dynamic.lr",
        "memory.capacity",
        "mixture+hebb.weight",
    ]
    unread = Hyperparameters().unread(names, ["lstm", "mixture+mbpa"])
    assert unread == ["hebb.beta", "cache.theta", "dynamic.lr", "mixture_hebb.weight"]
    assert Hyperparameters().unread(["dynamic.lr", "mixture.theta"], ["dynamic"]) == [
        "mixture.theta"
    ]


def test_single_changes_are_name_equals_value() -> None:
    assert parse_settings(["a.b=1", "c.d=x=y", "e.f="]) == {"a.b": "1", "c.d": "x=y", "e.f": ""}
    with pytest.raises(UserError, match=r"'hebb.beta' has no value.*hebb.beta=0.5"):
        parse_settings(["hebb.beta"])


def test_values_that_only_go_together_are_set_together() -> None:
    numbers = {"mixture.theta": 1.0, "mixture.gamma": 0.3}
    changes = {"mixture.form": "logit-sum", "mixture.scale": "absolute", **numbers}
    for names in (list(changes), list(changes)[::-1]):
        mixture = (
            Hyperparameters()
            .changed({name: changes[name] for name in names})
            .methods[MixtureConfig]
        )
        assert (mixture.form, mixture.scale) == ("logit-sum", "absolute")
    with pytest.raises(UserError, match=r"set mixture.scale=absolute"):
        Hyperparameters().changed({"mixture.form": "logit-sum", **numbers})
