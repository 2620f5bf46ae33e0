"""What an earlier version saved is read, and gives the numbers that it gave then.

``tests/data/older/make.py`` wrote the files, at the last commit before settings, packages and
readers got their present names.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.report.render.result import Result
from hebblm.report.result.tokens import TokenLosses

OLDER = Path(__file__).parents[1] / "data" / "older"
SECOND = "then the Frobnitz set holds the array\nand the Quux returns a list of values\n"
ROUNDING = 1e-4  # nats: another version of torch sums in another order
READERS = ("reader", "reader-best", "reader-dynamic")


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, Any]]:
    """Return what the earlier version computed, by folder."""
    document: dict[str, dict[str, Any]] = json.loads((OLDER / "expected.json").read_text())
    return document


@pytest.fixture(scope="module")
def lm() -> hebblm.LanguageModel:
    return hebblm.load(OLDER / "model", device="cpu")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_goes_on_to_the_same_numbers(
    lm: hebblm.LanguageModel, expected: dict[str, dict[str, Any]], name: str, tmp_path: Path
) -> None:
    shutil.copytree(OLDER / name, tmp_path / name)
    reader = lm.reader(memory=tmp_path / name)
    suggested = reader.suggest("the ", 3)
    assert [word for word, *_ in suggested] == [word for word, *_ in expected[name]["suggested"]]
    for suggestion, (_, probability, unadapted) in zip(
        suggested, expected[name]["suggested"], strict=True
    ):
        assert suggestion[1:] == pytest.approx((probability, unadapted), abs=ROUNDING)
    assert reader.read(SECOND).nll.tolist() == pytest.approx(expected[name]["nll"], abs=ROUNDING)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_forgets_what_it_read_then(
    lm: hebblm.LanguageModel, name: str, tmp_path: Path
) -> None:
    shutil.copytree(OLDER / name, tmp_path / name)
    reader = lm.reader(memory=tmp_path / name)
    assert [document.name for document in reader.documents()] == ["first"]
    reader.forget("first", replay=name == "reader-dynamic")
    assert reader.documents() == []
    assert len(reader) == 0


@pytest.mark.parametrize("name", READERS)
def test_a_reader_that_is_saved_anew_is_the_same(
    lm: hebblm.LanguageModel, name: str, tmp_path: Path
) -> None:
    shutil.copytree(OLDER / name, tmp_path / name)
    reader = lm.reader(memory=tmp_path / name)
    reader.save(tmp_path / "again")
    again = lm.reader(memory=tmp_path / "again")
    assert torch.equal(again.read(SECOND).nll, reader.read(SECOND).nll)


def test_settings_of_a_reader_have_their_present_names(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    written = json.loads((OLDER / "reader" / "reader.json").read_text())["settings"]
    assert written["mbpa.pull"] == 0.05
    shutil.copytree(OLDER / "reader", tmp_path / "reader")
    lm.reader(memory=tmp_path / "reader").save(tmp_path / "again")
    saved = json.loads((tmp_path / "again" / "reader.json").read_text())["settings"]
    assert saved["mbpa.l2_to_base"] == 0.05
    assert saved["mbpa.kernel_weight"] == saved["hebb.kernel_weight"] == "sum"
    assert not {"mbpa.pull", "mbpa.closeness", "hebb.closeness"} & saved.keys()


def test_a_memory_gives_the_same_numbers(
    lm: hebblm.LanguageModel, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(OLDER / "memory", tmp_path / "memory")
    reader = lm.reader("mixture", memory=tmp_path / "memory", k=5)
    assert len(reader) == 204
    assert reader.read(SECOND).nll.tolist() == pytest.approx(
        expected["memory"]["nll"], abs=ROUNDING
    )


def test_a_result_has_its_tables_and_its_tokens(tmp_path: Path) -> None:
    written = json.loads((OLDER / "run" / "result.json").read_text())
    result = Result.load(OLDER / "run")
    assert list(result.methods) == ["lstm", "cache", "mbpa", "hebb", "mixture+hebb"]
    for name, method in result.methods.items():
        assert method.nll == written["methods"][name]["nll"]
    assert result.methods["mbpa"].hyperparameters["l2_to_base"] == 0.05
    assert "MbPA" in result.table()
    losses = TokenLosses.load(OLDER / "run" / "tokens.parquet", result)
    assert float(losses.nll["hebb"].mean()) == pytest.approx(result.methods["hebb"].nll)
    result.save(tmp_path)
    assert Result.load(tmp_path) == result


def test_tuned_values_are_those_of_a_run() -> None:
    path = OLDER / "tuned" / "tuned.json"
    values = json.loads(path.read_text())["values"]
    config = ScenarioConfig(checkpoint=OLDER / "model", target=f"text:{OLDER / 'first.txt'}")
    settings, _ = resolve_settings(config, str(path), {}, {})
    assert settings.methods[MbpaConfig].l2_to_base == values["mbpa.pull"]
    assert settings.methods[MbpaConfig].weight == values["mbpa.weight"]
    assert values["mbpa.pull"] != MbpaConfig().l2_to_base
