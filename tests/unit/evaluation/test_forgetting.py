from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as nn

from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.run import run_scenario
from hebblm.evaluation.scenario import Scenario, ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import MemoryConfig
from hebblm.models.awd import AwdModel
from hebblm.models.base import BaseUpdate
from hebblm.models.dynamic import DynamicConfig
from hebblm.report.tables.texts import forgetting_table
from hebblm.text import encode_target

from ...support import toy

CHOSEN = ["lstm", "cache", "mixture", "hebb", "dynamic", "dynamic+best"]
TOKENS = 130


def scenario_of(folder: Path, *, kind: str = "cross-domain") -> Scenario:
    """Return a model of one made-up corpus that reads another one with further words."""
    source = toy.corpus(folder / "source", words=20)
    target = toy.corpus(folder / "target", seed=9, words=28, name="other")
    dictionary = source.dictionary
    config = ScenarioConfig(
        cross_domain="toy-to-other", memory_content="test", k=9, update_every=20
    )
    return Scenario(
        kind=kind, source="toy", target="other",
        model=AwdModel(toy.tiny_model(vocabulary=len(dictionary)), Path("none"), "checkpoint", "0"),
        dictionary=dictionary, train=source, stream=encode_target(dictionary, target, "test"),
        vocabulary=UnionVocabulary(), config=config, normalization="raw",
        device=torch.device("cpu"),
        data_sha256={}, whole=True,
    )  # fmt: skip


def settings_of(lr: float) -> Hyperparameters:
    return Hyperparameters(
        methods=toy.exact(toy.SETTINGS),
        base=BaseUpdate(lr=lr),
        dynamic=DynamicConfig("sgd", lr=0.5, decay=0.0, segment=20),
        memory=MemoryConfig("exact", keys="state"),
    )


def probing(tokens: int | None) -> EvalOptions:
    """Return options that score so many tokens before and after; None for no probe."""
    return EvalOptions.of({"frequency_edges": (50,), "forgetting": tokens})


def plain_loss(model: torch.nn.Module, scenario: Scenario) -> float:
    """Read the source's text in one go."""
    stream = Probe.of(scenario, TOKENS).stream
    with torch.no_grad():
        out = model(torch.from_numpy(stream.inputs)[None], model.initial_state(1))  # type: ignore[operator]
        logits = model.logits(out.hidden[0])  # type: ignore[operator]
    return float(nn.cross_entropy(logits, torch.from_numpy(stream.targets)))


def test_a_fixed_base_forgets_nothing_and_dynamic_evaluation_does(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    result = run_scenario(scenario, CHOSEN, settings_of(0.0), {}, probing(TOKENS)).result
    found = {name: item.forgetting for name, item in result.methods.items()}
    expected = plain_loss(scenario.base(settings_of(0.0)).model, scenario)
    for name, item in found.items():
        assert item is not None
        assert item.before == pytest.approx(expected, abs=1e-5), "an empty memory adds nothing"
        if not name.startswith("dynamic"):
            assert item.after == item.before
        else:
            assert abs(item.after - item.before) > 1e-2
        if name in ("lstm", "dynamic"):
            assert item.memory_kept is None
        else:
            assert item.memory_kept is not None
            assert abs(item.memory_kept - item.after) > 1e-3
    assert result.extra["forgetting"] == {"corpus": "toy", "split": "test", "tokens": TOKENS}


def test_a_base_that_moved_is_scored_as_it_became(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.3)
    base = scenario.base(settings)
    context = scenario.context(base, scenario.empty_memory(settings), 0)
    probe = Probe.of(scenario, TOKENS)
    moved: list[float] = []

    def read() -> None:
        with torch.no_grad():
            for parameter in base.model.parameters():
                parameter.add_(0.3)
        moved.append(plain_loss(base.model, scenario))

    before = plain_loss(base.model, scenario)
    found = probe.around(
        base, context, {"lstm": METHODS["lstm"].predictor(settings.methods)}, read
    )["lstm"]
    assert found.before == pytest.approx(before, abs=1e-5)
    assert found.after == pytest.approx(moved[0], abs=1e-5)
    assert abs(found.after - found.before) > 1e-2


@pytest.mark.parametrize("lr", [0.0, 0.3], ids=["fixed", "moving"])
def test_asking_changes_no_score_and_nothing_learns(tmp_path: Path, lr: float) -> None:
    with_probe, without = (
        run_scenario(scenario_of(tmp_path), CHOSEN, settings_of(lr), {}, probing(tokens))
        for tokens in (TOKENS, None)
    )
    for name in CHOSEN:
        np.testing.assert_array_equal(with_probe.nll[name], without.nll[name], err_msg=name)
        assert without.result.methods[name].forgetting is None
    assert "forgetting" not in without.result.extra
    short = run_scenario(scenario_of(tmp_path), CHOSEN, settings_of(lr), {}, probing(20)).result
    assert short.extra["forgetting"]["tokens"] == 20


def test_every_token_counts_whatever_the_length(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    base = scenario.base(settings)
    context = scenario.context(base, scenario.empty_memory(settings), 0)
    predictors = {"lstm": METHODS["lstm"].predictor(settings.methods)}
    whole = Probe.of(scenario, 10**9)
    for tokens in (1, 100, len(whole.stream)):
        probe = Probe.of(scenario, tokens)
        assert len(probe.stream) == tokens
        stream = probe.stream
        reader = scenario.base(settings)
        hidden = reader.read(torch.from_numpy(stream.inputs))
        expected = nn.cross_entropy(reader.head.logits(hidden), torch.from_numpy(stream.targets))
        assert probe.losses(base, context, predictors, "")["lstm"] == pytest.approx(
            float(expected), abs=1e-5
        )


def test_one_domain_or_no_text_is_refused(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    with pytest.raises(UserError, match="toy is the only one"):
        Probe.of(replace(scenario, kind="intra-domain"), 10)
    with pytest.raises(UserError, match="source=CORPUS"):
        Probe.of(replace(scenario, train=None), 10)


def test_the_table_says_what_was_forgotten(tmp_path: Path) -> None:
    result = run_scenario(scenario_of(tmp_path), CHOSEN, settings_of(0.0), {}, probing(30)).result
    table = forgetting_table(result)
    assert table is not None
    rows = {row[0]: row for row in table.cells()}
    item = result.methods["dynamic+best"].forgetting
    assert item is not None
    assert rows["Dynamic+Best (ours)"][3] == item.after - item.before
    assert rows["Base"][3:] == (0.0, None, None)
    assert "30 tokens of toy test" in table.notes[0]
    assert "other test" in table.title
    bare = {name: replace(method, forgetting=None) for name, method in result.methods.items()}
    assert forgetting_table(replace(result, methods=bare)) is None
    assert type(result).from_json(result.to_json()) == result
