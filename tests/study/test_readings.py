from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.passes import shared_pass
from hebblm.evaluation.scenario import Scenario, ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import MemoryConfig
from hebblm.models.awd import AwdModel
from hebblm.text import Dictionary
from recipes.study.readings import compare as module
from recipes.study.readings.compare import CHOICES, compare_readings
from recipes.study.readings.record import DEFAULT, Readings, readings_table, tuned

from ..support import toy

CHOSEN = ["mixture", "mbpa", "hebb", "mixture+hebb"]
SETTINGS = Hyperparameters(methods=toy.exact(toy.SETTINGS), memory=MemoryConfig("exact"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    monkeypatch.setattr(Scenario, "training_ids", lambda *_: toy.tokens(7, 100))


def scenario(tokens: int = 60) -> Scenario:
    return Scenario(
        kind="intra-domain", source="toy", target="toy", normalization="raw",
        model=AwdModel(toy.tiny_model(), Path("none"), "checkpoint", "0"),
        dictionary=Dictionary(), train=None, stream=toy.stream_of(toy.tokens(3, tokens)),
        vocabulary=UnionVocabulary(),
        config=ScenarioConfig(intra_domain="toy", memory_content="test", k=9, update_every=20,
        new_rows="uniform"),
        device=torch.device("cpu"), data_sha256={}, whole=True,
    )  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least to choose among, read in three parts."""
    monkeypatch.setattr(module, "OWN", {name: tried[::12] for name, tried in module.OWN.items()})
    monkeypatch.setattr(module, "AT_ONCE", 9)


@pytest.mark.usefixtures("few")
def test_every_effect_is_that_of_an_evaluation_under_that_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "get_args", lambda _: ("test",))
    found = compare_readings(scenario(), CHOSEN, SETTINGS, {"command": "x"})
    names = {DEFAULT, *CHOICES} - {"c_k raw"}
    assert {effect.reading for effect in found.effects} == names | {
        tuned(name) for name in names
    }, "raw is the default"
    by = {(each.reading, each.method): each for each in found.effects if not each.values}
    for (reading, method), effect in by.items():
        settings = SETTINGS.changed(CHOICES.get(reading, {}))
        rules = {method: METHODS[method].predictor(settings.methods)}
        nll = shared_pass(scenario(), rules, settings).scores.nll[method].astype(np.float64).mean()
        assert effect.nll == pytest.approx(nll, abs=1e-6), (reading, method)
        assert effect.change == pytest.approx(nll - by[DEFAULT, method].nll, abs=1e-6)
    changed = {reading for reading, method in by if method == "mixture"}
    assert changed == {DEFAULT, "Mixture as printed"}, (
        "what a reading does not touch is not scored again"
    )
    assert found.settings["larger eps"] == found.settings["larger eps, tuned"] == {"mbpa.eps": 0.1}
    assert Readings.from_json(found.to_json()) == found


@pytest.mark.usefixtures("few")
def test_a_tuned_reading_is_the_best_of_what_its_method_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "get_args", lambda _: ("test",))
    found = compare_readings(scenario(), ["mixture", "mbpa", "hebb"], SETTINGS, {})
    best = {(each.reading, each.method): each for each in found.effects if each.values}
    assert ("default, tuned", "mixture") not in best, "it learns its own values online"
    for reading in ("default", "c_k of sum 1", "larger eps", "Mixture as printed"):
        for method, tried in module.OWN.items():
            effect = best.get((tuned(reading), method))
            if effect is None:
                continue
            settings = [SETTINGS.changed({**CHOICES.get(reading, {}), **point}) for point in tried]
            losses = [
                shared_pass(scenario(), {method: METHODS[method].predictor(each.methods)}, each)
                .scores.nll[method]
                .mean()
                for each in settings
            ]
            assert effect.nll == pytest.approx(min(losses), abs=1e-6), (reading, method)
            assert effect.values == tried[int(np.argmin(losses))]
            beside = best.get((tuned(DEFAULT), method))
            if reading != DEFAULT and beside is not None:
                assert effect.change == pytest.approx(effect.nll - beside.nll, abs=1e-6)
    assert {method for reading, method in best if reading == "c_k of sum 1, tuned"} == {
        "mbpa",
        "hebb",
    }
    assert {method for reading, method in best if reading == "Mixture as printed, tuned"} == {
        "mixture"
    }


@pytest.mark.usefixtures("few")
def test_the_content_of_the_memory_is_a_reading_of_every_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []
    opened = Scenario.memory

    def memory(self: Scenario, settings: Hyperparameters):  # type: ignore[no-untyped-def]
        asked.append(self.config.memory_content)
        return opened(replace(self, config=replace(self.config, memory_content="test")), settings)

    monkeypatch.setattr(Scenario, "memory", memory)
    found = compare_readings(scenario(), CHOSEN, SETTINGS, {})
    assert asked == ["test", "both", "train"]
    for content in ("both", "train"):
        reading = f"memory of {content}"
        assert {e.method for e in found.effects if e.reading == reading} == set(CHOSEN)
        assert {e.method for e in found.effects if e.reading == tuned(reading)} == {"mbpa", "hebb"}
        assert found.settings[reading] == {"memory_content": content}


def test_a_nan_is_never_the_best_of_what_a_reading_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [{"mbpa.l2_to_base": l2_to_base} for l2_to_base in (0.1, 0.2, 0.3)]
    monkeypatch.setattr(module, "OWN", {"mbpa": tried})
    replay = SimpleNamespace(
        scenario=scenario(),
        score=lambda rules, title: {
            name: np.full(2, loss) for name, loss in zip(rules, (np.nan, 2, 1), strict=True)
        },
    )
    best = module._tuned(replay, SETTINGS, {(DEFAULT, "mbpa"): {}})  # type: ignore[arg-type]
    assert best[DEFAULT, "mbpa"][0] == {"mbpa.l2_to_base": 0.3}


def test_intervals_are_those_of_the_difference() -> None:
    losses = {
        (DEFAULT, "hebb"): np.full(4000, 2.0),
        ("other", "hebb"): np.full(4000, 2.0) + np.resize([0.1, 0.3], 4000),
        ("infinite", "hebb"): np.append(np.full(3999, 2.0), np.inf),
    }
    effect = module._effect("other", "hebb", losses, 1)
    assert effect.change == pytest.approx(0.2)
    assert effect.low == pytest.approx(0.2)
    assert effect.certain
    worst = module._effect("infinite", "hebb", losses, 1)
    assert (worst.nll, worst.change, worst.low) == (np.inf, None, None)
    table = readings_table(
        {"a": Readings({"source": "s", "target": "s", "split": "valid"}, {}, (effect, worst), {})}
    )
    assert [row[2] for row in table.cells()] == ["+0.200*", "inf"]


def test_what_has_no_readings_is_refused() -> None:
    with pytest.raises(UserError, match="no method that retrieves"):
        compare_readings(scenario(), [], SETTINGS, {})
    open_ = scenario()
    with pytest.raises(UserError, match="vocabulary 'open'"):
        compare_readings(
            replace(open_, config=replace(open_.config, vocabulary="open")), CHOSEN, SETTINGS, {}
        )
