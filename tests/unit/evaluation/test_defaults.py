from __future__ import annotations

import math

import pytest

from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.scenario import ScenarioConfig

WITHIN, ACROSS = ScenarioConfig(intra_domain="ptb"), ScenarioConfig(cross_domain="wt2-to-ptb")


@pytest.mark.parametrize("start", ["tuned", "paper"])
def test_a_moving_base_has_no_tolerance_unless_one_is_named(start: str) -> None:
    assert resolve_settings(WITHIN, start, {}, []).methods.mbpa.tolerance == 1e-3
    assert resolve_settings(ACROSS, start, {}, []).base.lr > 0
    assert resolve_settings(ACROSS, start, {}, []).methods.mbpa.tolerance == math.inf
    for values, changes in (({"mbpa.tolerance": 0.01}, []), ({}, ["mbpa.tolerance=0.01"])):
        assert resolve_settings(ACROSS, start, values, changes).methods.mbpa.tolerance == 0.01


def test_a_base_that_is_told_to_stay_keeps_the_tolerance() -> None:
    assert resolve_settings(ACROSS, "tuned", {}, ["base.lr=0"]).methods.mbpa.tolerance == 1e-3
