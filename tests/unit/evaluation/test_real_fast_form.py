"""The fast form beside the exact one on a trained model and real text."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt import Mbpa, MbpaConfig
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import evaluate
from hebblm.evaluation.scenario import ScenarioConfig, open_scenario

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_data,
    pytest.mark.skipif(
        "HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA names no folder with the corpora"
    ),
]


@pytest.mark.parametrize(("lr", "steps"), [(8.0, 5), (4.0, 1)])
@pytest.mark.parametrize("moving", [False, True])
def test_both_forms_give_the_same_perplexity(lr: float, steps: int, moving: bool) -> None:
    asked = ScenarioConfig(
        intra_domain="ptb", split="valid", memory_content="test", k=100, max_tokens=150, update_every=50
    )
    scenario = open_scenario(asked, torch.device("cpu"), {})
    settings = Hyperparameters()
    if moving:
        settings = settings.changed({"base.lr": 1e-4})
    base = scenario.base(settings)
    context = scenario.context(base, scenario.memory(settings), 0)
    config = MbpaConfig(lr=lr, steps=steps)
    rules = {"fast": Mbpa(config), "exact": Mbpa(replace(config, method="exact"))}
    scores = evaluate(base, context, rules, scenario.stream, scenario.vocabulary, update_every=50)
    fast, exact = (scores.nll[name].astype(np.float64) for name in ("fast", "exact"))
    # Behind a moving base no normaliser is known, and the tail of a key is that of the query.
    assert abs(np.exp(fast.mean() - exact.mean()) - 1) < (1e-3 if not moving else 1e-2)
    assert np.abs(fast - exact).mean() < (5e-3 if not moving else 8e-2)
    assert not scores.errors["exact"]
