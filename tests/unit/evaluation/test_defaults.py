from __future__ import annotations

import pytest

from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.scenario import ScenarioConfig

WITHIN, ACROSS = ScenarioConfig(intra_domain="ptb"), ScenarioConfig(cross_domain="wt2-to-ptb")


@pytest.mark.parametrize("config", [WITHIN, ACROSS])
def test_the_base_stays_and_the_rate_is_relative_unless_one_asks(config: ScenarioConfig) -> None:
    plain = resolve_settings(config, "default", {}, [])
    assert plain.base.lr == 0
    assert plain.methods.mbpa.rate == "relative"
    assert resolve_settings(config, "default", {}, ["base.lr=1e-4"]).base.lr == 1e-4
    paper = resolve_settings(config, "paper", {}, [])
    assert (paper.base.lr > 0) == (config is ACROSS)
    assert (paper.methods.mbpa.rate, paper.methods.mbpa.scale) == ("guarded", "absolute")
    changed = resolve_settings(config, "paper", {"mbpa.rate": "absolute", "mbpa.lr": 3}, ["mbpa.lr=2"])
    assert (changed.methods.mbpa.rate, changed.methods.mbpa.lr) == ("absolute", 2)
