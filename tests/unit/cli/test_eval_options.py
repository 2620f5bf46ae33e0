from __future__ import annotations

import re
from dataclasses import fields

import pytest

from hebblm.adapt.methods import EVALUATED
from hebblm.cli.eval import EvalConfig, main
from hebblm.cli.tune import TuneConfig
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import ScenarioConfig


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (
            ["--method", "fast", "--set", "hebb.beta=0.5"],
            {"hebb.beta": "0.5", "mbpa.solver": "fast"},
        ),
        (["--set", "mbpa.solver=exact"], {"mbpa.solver": "exact"}),
    ],
)
def test_the_options_of_the_adaptation_are_short_for_settings(
    options: list[str], settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}

    def evaluate(**given: object) -> None:
        asked.update(given)
        raise UserError("asked")

    monkeypatch.setattr("hebblm.api.runs.evaluate", evaluate)
    assert main(["--intra-domain", "ptb", *options]) == 2
    assert asked["settings"] == settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--method", "exact", "--set", "mbpa.solver=fast"],
            "--method exact and --set mbpa.solver",
        ),
        (["--method", "exact", "--set", "mbpa.solver=exact"], "use one"),
        (["--method", "quick"], "method"),
        (["--forgetting"], "--forgetting compares two domains, and ptb is the only one"),
        (["--forgetting-tokens", "0"], "--forgetting-tokens 0 must be at least 1"),
        (["--readings"], "a checkout of hebblm compares them: python -m recipes.study readings"),
    ],
)
def test_contradictions_and_bad_values_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--intra-domain", "ptb", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_the_help_names_every_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    with pytest.raises(SystemExit):
        main(["--help"])
    [line] = re.findall(
        r"--methods METHODS\s+comma-separated: (.*); or all", capsys.readouterr().out
    )
    assert set(re.split("[,;:] ", line)) - {"beyond the paper"} == set(EVALUATED)


def test_every_option_stands_under_one_heading_of_the_help() -> None:
    headed = [name for _, _, names in ScenarioConfig.GROUPS for name in names.split()]
    assert sorted(headed) == sorted(
        {field.name for config in (EvalConfig, TuneConfig) for field in fields(config)}
    )
