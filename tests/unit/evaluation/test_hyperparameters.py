from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hebblm.errors import UserError
from hebblm.evaluation import defaults
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.hyperparameters import (
    PAPER,
    TUNED_SCHEMA,
    Hyperparameters,
    known_names,
    paper_values,
    parse_settings,
    read_tuned,
)
from hebblm.evaluation.scenario import ScenarioConfig
from hebblm.files import write_json


def value_of(settings: Hyperparameters, name: str) -> Any:
    section, key = name.split(".")
    owner = settings if section in ("dynamic", "base", "memory") else settings.methods
    return getattr(getattr(owner, section), key)


def test_every_known_name_can_be_set_to_what_it_is() -> None:
    settings = Hyperparameters()
    names = known_names()
    assert len(names) == len(set(names)) > 25
    for name in names:
        assert settings.changed({name: value_of(settings, name)}) == settings, name
        assert settings.changed({name: str(value_of(settings, name)).lower()}) == settings, name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hebb.beta", "0.25", 0.25),
        ("mbpa.lr", "2", 2.0),
        ("mbpa.steps", "3", 3),
        ("mbpa.steps", 4.0, 4),
        ("mbpa.method", "exact", "exact"),
        ("mbpa.rate", "guarded", "guarded"),
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
    assert value_of(after, name) == value
    assert type(value_of(after, name)) is type(value)
    same = [other for other in known_names() if other != name]
    assert all(value_of(before, other) == value_of(after, other) for other in same)


def test_a_combination_may_be_written_with_a_plus() -> None:
    assert Hyperparameters().changed({"mixture+hebb.weight": 0.9}).methods.mixture_hebb.weight == 0.9


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hebb.gamma", "1", "unknown setting 'hebb.gamma'.*hebb.beta"),
        ("hebb", "1", "unknown setting 'hebb'"),
        ("beta", "1", "unknown setting 'beta'"),
        ("methods.hebb", "1", "unknown setting"),
        ("__doc__.x", "1", "unknown setting"),
        ("mbpa.steps", "2.5", "mbpa.steps=2.5 must be a value of type int"),
        ("mbpa.steps", 2.5, "mbpa.steps=2.5 must be a value of type int"),
        ("mbpa.steps", math.inf, "mbpa.steps=inf"),
        ("mbpa.lr", "fast", "mbpa.lr=fast must be a value of type float"),
        ("mbpa.lr", "nan", "mbpa.lr=nan"),
        ("mbpa.lr", "inf", "mbpa.lr = inf"),
        ("mbpa.lr", [1], "mbpa.lr=.1. must be a value of type float"),
        ("mbpa.lr", True, "mbpa.lr=True"),
        ("mbpa.lr", "-1", "mbpa.lr = -1"),
        ("mbpa.rate", "fixed", "mbpa.rate=fixed must be one of relative, absolute, guarded"),
        ("mbpa.method", "slow", "mbpa.method=slow must be one of fast, exact"),
        ("hebb.beta", "1", "hebb.beta = 1"),
        ("mixture.gamma", "1.5", "mixture.gamma = 1.5"),
    ],
)
def test_a_bad_name_or_value_is_refused_by_its_name(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Hyperparameters().changed({name: value})


def test_single_changes_are_name_equals_value() -> None:
    assert parse_settings(["a.b=1", "c.d=x=y", "e.f="]) == {"a.b": "1", "c.d": "x=y", "e.f": ""}
    with pytest.raises(UserError, match=r"'hebb.beta' has no value.*hebb.beta=0.5"):
        parse_settings(["hebb.beta"])


def test_the_papers_optima() -> None:
    for (source, target), name in (
        (("ptb", "ptb"), "ptb"),
        (("wt2", "wt2"), "wt2"),
        (("wt2", "ptb"), "cross"),
        (("numpy", "numpy"), "wt2"),
    ):
        values = paper_values(source, target)
        assert PAPER[name].items() <= values.items()
        methods = Hyperparameters().changed(values).methods
        for absolute in (methods.mbpa_absolute, methods.mbpa_guarded):
            assert (absolute.lr, absolute.steps) == (methods.mbpa.lr, methods.mbpa.steps)
    cross = PAPER["cross"]
    assert (cross["mbpa.lr"], cross["mbpa.steps"], cross["hebb.beta"], cross["hebb.eta"]) == (
        2.0,
        1,
        0.5,
        0.3,
    )
    assert (PAPER["ptb"]["hebb.beta"], PAPER["ptb"]["hebb.eta"]) == (0.6, 0.7)
    assert (PAPER["wt2"]["hebb.beta"], PAPER["wt2"]["hebb.eta"]) == (0.15, 0.4)


@pytest.mark.parametrize(
    "content",
    [[], {}, {"schema": "other/1"}, {"schema": TUNED_SCHEMA}, {"schema": TUNED_SCHEMA, "values": 3}],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "tuned.json", content)
    with pytest.raises(UserError, match=r"tuned.json.*hebblm-tune"):
        read_tuned(tmp_path / "tuned.json")


def tuned_file(path: Path, **values: float) -> Path:
    named = {name.replace("__", "."): value for name, value in values.items()}
    write_json(path, {"schema": TUNED_SCHEMA, "values": named})
    return path


CROSS = ScenarioConfig(cross_domain="wt2-to-ptb")
INTRA = ScenarioConfig(intra_domain="wt2")


def test_later_sources_of_settings_win(tmp_path: Path) -> None:
    file = str(tuned_file(tmp_path / "t.json", hebb__beta=0.1, hebb__eta=0.1, mbpa__lr=0.1))
    assert read_tuned(Path(file)) == {"hebb.beta": 0.1, "hebb.eta": 0.1, "mbpa.lr": 0.1}
    settings = resolve_settings(INTRA, file, {"hebb.eta": 0.2, "mbpa.lr": 0.2}, ["mbpa.lr=0.3"])
    hebb, mbpa = settings.methods.hebb, settings.methods.mbpa
    assert (hebb.beta, hebb.eta, mbpa.lr) == (0.1, 0.2, 0.3)
    assert settings.base.lr == 0.0


def test_the_base_moves_across_domains_unless_told_otherwise(tmp_path: Path) -> None:
    assert resolve_settings(CROSS, "paper", {}, []).base.lr == 1e-4
    assert resolve_settings(INTRA, "paper", {}, []).base.lr == 0.0
    assert resolve_settings(CROSS, "paper", {}, ["base.lr=0"]).base.lr == 0.0
    assert resolve_settings(CROSS, "paper", {}, []).methods.mbpa.steps == 1
    assert resolve_settings(INTRA, "paper", {}, []).methods.hebb.beta == 0.15


def test_tuned_values_are_those_of_the_scenario_or_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "models_path", lambda: tmp_path)
    assert resolve_settings(INTRA, "tuned", {}, []) == Hyperparameters(), "nothing was tuned yet"
    (tmp_path / "tuned").mkdir()
    tuned_file(tmp_path / "tuned" / "ptb.json", hebb__beta=0.11)
    tuned_file(tmp_path / "tuned" / "wt2-to-ptb.json", hebb__beta=0.22)
    assert resolve_settings(INTRA, "tuned", {}, []).methods.hebb.beta == 0.11
    assert resolve_settings(CROSS, "tuned", {}, []).methods.hebb.beta == 0.22
    assert (
        resolve_settings(ScenarioConfig(cross_domain="pydoc-to-numpy"), "tuned", {}, []).methods.hebb.beta
        == 0.22
    )
    tuned_file(tmp_path / "tuned" / "wt2.json", hebb__beta=0.33)
    assert resolve_settings(INTRA, "tuned", {}, []).methods.hebb.beta == 0.33


def test_values_that_only_go_together_are_set_together() -> None:
    numbers = {"mixture.theta": 1.0, "mixture.gamma": 0.3}
    changes = {"mixture.form": "logit-sum", "mixture.scale": "absolute", **numbers}
    for names in (list(changes), list(changes)[::-1]):
        mixture = Hyperparameters().changed({name: changes[name] for name in names}).methods.mixture
        assert (mixture.form, mixture.scale) == ("logit-sum", "absolute")
    with pytest.raises(UserError, match=r"set mixture.scale=absolute"):
        Hyperparameters().changed({"mixture.form": "logit-sum", **numbers})


def test_the_defaults_can_be_asked_for_and_are_relative() -> None:
    settings = resolve_settings(INTRA, "default", {}, [])
    assert settings == Hyperparameters()
    scales = [name for name in known_names() if name.endswith(".scale")]
    assert len(scales) == 10
    assert {value_of(settings, name) for name in scales} == {"relative"}
    shipped = resolve_settings(INTRA, "tuned", {}, [])
    assert {value_of(shipped, name) for name in scales if name != "mbpa.scale"} == {"absolute"}


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(UserError, match="'best' is neither default, tuned, paper nor a file"):
        resolve_settings(INTRA, "best", {}, [])
