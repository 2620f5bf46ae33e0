from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig
from hebblm.errors import UserError
from hebblm.evaluation import defaults
from hebblm.evaluation.defaults import (
    PAPER,
    TUNED_SCHEMA,
    TunedFile,
    paper_values,
    resolve_settings,
)
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.hyperparameters import defaults as default_values
from hebblm.evaluation.scenario import ScenarioConfig
from hebblm.io.files import write_json
from hebblm.io.installation import models_path

CROSS = ScenarioConfig(cross_domain="wt2-to-ptb")
INTRA = ScenarioConfig(intra_domain="wt2")


def resolved(
    config: ScenarioConfig, start: str, values: dict[str, Any] | None = None, **changes: Any
) -> Hyperparameters:
    """Return the settings of a run; ``__`` in the names of changes stands for the dot."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return resolve_settings(config, start, values or {}, named)[0]


def test_dynamic_evaluation_of_a_model_of_transformers_has_a_measured_rate_and_a_pull_of_its_own(
    tmp_path: Path,
) -> None:
    causal, own = ScenarioConfig(model="someone/model", target="ptb"), tmp_path / "own.json"
    usual = resolved(CROSS, "default").dynamic
    assert (usual.lr, usual.gain) == ("measured", 0.065)
    assert resolved(CROSS, "tuned").dynamic != resolved(CROSS, "default").dynamic
    for start in ("default", "tuned", "paper", "tune"):  # no rate that was found for an LSTM
        found = resolved(causal, start).dynamic
        assert (found.lr, found.gain, found.decay) == ("measured", 0.1, 0.001)
    assert resolved(causal, "default", dynamic__lr="1e-4").dynamic.lr == 1e-4
    write_json(own, {"schema": TUNED_SCHEMA, "values": {"dynamic.lr": 3e-4}})
    assert (resolved(causal, str(own)).dynamic.lr, resolved(causal, str(own)).dynamic.decay) == (
        3e-4,
        0.001,
    )


@pytest.mark.parametrize("config", [INTRA, CROSS])
def test_the_base_stays_and_the_rate_is_relative_unless_one_asks(config: ScenarioConfig) -> None:
    plain = resolved(config, "default")
    assert plain.base.lr == 0
    assert plain.methods[MbpaConfig].lr_units == "relative"
    assert resolved(config, "default", base__lr="1e-4").base.lr == 1e-4
    paper = resolved(config, "paper")
    # absolute values are in units of states
    assert (plain.memory.keys, paper.memory.keys) == ("root", "state")
    assert (paper.base.lr > 0) == (config is CROSS)
    assert (paper.methods[MbpaConfig].lr_units, paper.methods[MbpaConfig].scale) == (
        "guarded",
        "absolute",
    )
    changed = resolved(config, "paper", {"mbpa.lr_units": "absolute", "mbpa.lr": 3}, mbpa__lr="2")
    assert (changed.methods[MbpaConfig].lr_units, changed.methods[MbpaConfig].lr) == ("absolute", 2)


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
        absolute = methods[MbpaAbsoluteConfig]
        assert (absolute.lr, absolute.steps) == (methods[MbpaConfig].lr, methods[MbpaConfig].steps)
    cross = PAPER["cross"]
    assert [cross[name] for name in ("mbpa.lr", "mbpa.steps", "hebb.beta", "hebb.eta")] == [
        2.0,
        1,
        0.5,
        0.3,
    ]
    assert (PAPER["ptb"]["hebb.beta"], PAPER["ptb"]["hebb.eta"]) == (0.6, 0.7)
    assert (PAPER["wt2"]["hebb.beta"], PAPER["wt2"]["hebb.eta"]) == (0.15, 0.4)


@pytest.mark.parametrize(
    "content", [[], {"schema": "other/1"}, {"schema": TUNED_SCHEMA, "values": 3}]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "tuned.json", content)
    with pytest.raises(UserError, match=r"tuned.json.*hebblm-tune"):
        TunedFile.read(tmp_path / "tuned.json")


@pytest.mark.parametrize("name", ["ptb", "wt2", "wt2-to-ptb"])
def test_a_shipped_rate_comes_with_the_epsilon_that_it_was_found_beside(name: str) -> None:
    values = TunedFile.read(models_path() / "tuned" / f"{name}.json").values
    assert {"dynamic.epsilon", "dynamic.lr", "dynamic.decay"} <= set(values)


def tuned_file(path: Path, **values: float) -> Path:
    named = {name.replace("__", "."): value for name, value in values.items()}
    write_json(path, {"schema": TUNED_SCHEMA, "values": named})
    return path


def test_later_sources_of_settings_win(tmp_path: Path) -> None:
    file = str(tuned_file(tmp_path / "t.json", hebb__beta=0.1, hebb__eta=0.1, mbpa__lr=0.1))
    assert TunedFile.read(Path(file)).values == {"hebb.beta": 0.1, "hebb.eta": 0.1, "mbpa.lr": 0.1}
    settings = resolved(INTRA, file, {"hebb.eta": 0.2, "mbpa.lr": 0.2}, mbpa__lr="0.3")
    hebb, mbpa = settings.methods[HebbConfig], settings.methods[MbpaConfig]
    assert (hebb.beta, hebb.eta, mbpa.lr) == (0.1, 0.2, 0.3)
    assert settings.base.lr == 0.0


def test_tuned_values_are_those_of_the_scenario_or_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "models_path", lambda: tmp_path)
    assert resolved(INTRA, "tuned") == Hyperparameters(), "nothing was tuned yet"
    (tmp_path / "tuned").mkdir()
    tuned_file(tmp_path / "tuned" / "ptb.json", hebb__beta=0.11)
    tuned_file(tmp_path / "tuned" / "wt2-to-ptb.json", hebb__beta=0.22)
    assert resolved(INTRA, "tuned").methods[HebbConfig].beta == 0.11
    assert resolved(CROSS, "tuned").methods[HebbConfig].beta == 0.22
    assert (
        resolved(ScenarioConfig(cross_domain="pydoc-to-numpy"), "tuned").methods[HebbConfig].beta
        == 0.22
    )
    tuned_file(tmp_path / "tuned" / "wt2.json", hebb__beta=0.33)
    assert resolved(INTRA, "tuned").methods[HebbConfig].beta == 0.33


def test_unknown_values_are_ignored_with_a_line_in_files_and_refused_where_they_were_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = {"mixture_gated.bias": -1.2, "hebb_learned.n1": 0.4}
    file = tmp_path / "tuned.json"
    values = {"hebb.beta": 0.1, "hebb.closeness": "sum", **unknown}
    write_json(file, {"schema": TUNED_SCHEMA, "values": values})
    monkeypatch.delenv("HEBBLM_QUIET", raising=False)
    found = resolved(INTRA, str(file)).methods[HebbConfig]
    assert (found.beta, found.kernel_weight) == (0.1, "sum")
    line = "ignored, because this version does not have them: hebb_learned.n1, mixture_gated.bias\n"
    assert capsys.readouterr().err == line
    assert resolved(INTRA, "default", {"hebb.eta": 2.0, **unknown}).methods[HebbConfig].eta == 2.0
    assert capsys.readouterr().err == line
    for name, value in unknown.items():
        with pytest.raises(UserError, match=rf"^unknown setting '{name}'"):
            resolved(INTRA, str(file), **{name.replace(".", "__"): value})


@pytest.mark.parametrize("start", ["tuned", "file"])
def test_values_found_at_another_interval_say_so(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "models_path", lambda: tmp_path)
    file = tmp_path / "tuned" / "wt2.json"
    found = {
        "source": "wt2",
        "target": "wt2",
        "k": 200,
        "update_every": 100,
        "normalization": "raw",
    }
    write_json(
        file,
        {"schema": TUNED_SCHEMA, "values": {}, "scenario": {**found, "memory_content": "both"}},
    )
    start, whose = (start, "wt2") if start == "tuned" else (str(file), str(file))

    def note(**options: Any) -> str:
        return resolve_settings(ScenarioConfig(**options), start, {}, {})[1]

    assert note(intra_domain="wt2", update_every=100) == ""
    assert note(intra_domain="wt2") == f"those of {whose}, found with update_every = 100"
    other: dict[str, Any] = {
        "update_every": 100,
        "k": 50,
        "memory_content": "test",
        "normalization": "lower",
    }
    assert note(intra_domain="wt2", **other) == (
        f"those of {whose}, found with k = 200, memory_content = both, normalization = raw"
    )


def test_the_defaults_can_be_asked_for_and_are_relative() -> None:
    settings = resolved(INTRA, "default")
    assert settings == Hyperparameters()
    scales = [name for name in default_values() if name.endswith(".scale")]
    assert set(scales) == {f"{name}.scale" for name in ("cache", "knn", "mixture", "mbpa", "hebb")}
    assert {settings.of(name) for name in scales} == {"relative"}
    shipped = resolved(INTRA, "tuned")
    assert {shipped.of(name) for name in scales} == {"relative"}
    assert shipped.of("cache.theta") != settings.of("cache.theta"), "found on this text alone"


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(UserError, match="'best' is neither default, tuned, paper nor a file"):
        resolved(INTRA, "best")
