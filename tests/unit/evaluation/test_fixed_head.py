from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.scenario import Scenario, ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.models.awd import AwdModel
from hebblm.text import Dictionary

from ...support import toy


def scenario_of(policy: str) -> Scenario:
    config = ScenarioConfig(intra_domain="toy", memory_content="test", k=9, new_rows="uniform")
    return Scenario(
        kind="cross-domain",
        source="toy",
        target="toy",
        model=AwdModel(toy.tiny_model(), Path("none"), "checkpoint", "0"),
        dictionary=Dictionary(),
        train=None,
        stream=toy.stream_of(toy.by_first_appearance(toy.tokens(3, 60))),
        vocabulary=UnionVocabulary(),
        config=replace(config, vocabulary=policy),  # type: ignore[arg-type]
        normalization="raw",
        device=torch.device("cpu"),
        data_sha256={},
        whole=True,
    )


@pytest.mark.parametrize(
    ("policy", "lr"), [("union", 0.0), ("union", 0.1), ("open", 0.0), ("open", 0.1)]
)
def test_normalizers_are_kept_where_neither_weights_nor_rows_of_the_head_change(
    policy: str, lr: float
) -> None:
    scenario, settings = scenario_of(policy), Hyperparameters().changed({"base.lr": lr})
    kept = policy == "union" and lr == 0
    assert scenario.fixed_head(settings) == kept
    base = scenario.base(settings)
    context = scenario.context(base, scenario.memory(settings), 0)
    hidden = base.read(torch.tensor([1, 2, 3]))
    toy.observe(context, hidden, torch.tensor([2, 3, 4]))
    near = EvalBatch(hidden, context).near_states
    assert (near.log_normalizers is not None) == kept
    if near.log_normalizers is not None:
        expected = base.head.logits(near.keys).logsumexp(2)  # the new words' rows among them
        torch.testing.assert_close(near.log_normalizers[near.mask], expected[near.mask])
