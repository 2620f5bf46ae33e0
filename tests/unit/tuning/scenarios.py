"""A toy scenario to tune on."""

from __future__ import annotations

from pathlib import Path

import torch

from hebblm.evaluation.scenario import Scenario, ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.models.awd import AwdModel
from hebblm.text import Dictionary

from ...support import toy


def scenario_of(kind: str, tokens: int) -> Scenario:
    return Scenario(
        kind=kind, source="toy", target="toy", model=AwdModel(toy.tiny_model(), Path("none"),
        "checkpoint", "0"),
        dictionary=Dictionary(), train=None, stream=toy.stream_of(toy.tokens(3, tokens)),
        vocabulary=UnionVocabulary(),
        config=ScenarioConfig(intra_domain="toy", memory_content="test", k=9, update_every=20,
        new_rows="uniform"),
        normalization="raw", device=torch.device("cpu"), data_sha256={}, whole=True,
    )  # fmt: skip
