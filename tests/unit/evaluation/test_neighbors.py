from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.neighbors import KEPT, NeighborLog
from hebblm.evaluation.training_text import training_states
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, VocabularyPolicy
from hebblm.memory import AnyMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.models.awd import AwdModel

from ...support import toy

DTYPE = torch.float64
TRAINING = 70


def memories() -> dict[str, AnyMemory]:
    return {
        "flat": FlatMemory(toy.DIM, dtype=DTYPE),
        "ring": RingMemory(toy.DIM, 40, dtype=DTYPE),
        "hybrid": HybridMemory(
            FlatMemory(toy.DIM, dtype=DTYPE), FlatMemory(toy.DIM, dtype=DTYPE), flush_at=25
        ),
    }


@pytest.mark.parametrize("kind", ["flat", "ring", "hybrid"])
@pytest.mark.parametrize(
    ("every", "lr", "write"), [(20, 0.0, True), (1, 0.0, True), (20, 0.3, True), (20, 0.0, False)]
)
def test_offsets_say_which_pair_it_is(kind: str, every: int, lr: float, write: bool) -> None:
    # 150 pairs seen and 70 from training: enough for a ring to drop the training pairs and some of
    # its own.
    stream = toy.stream_of(toy.tokens(3, 150))
    base = toy.base_of(toy.tiny_model().double(), lr=lr)
    memory = memories()[kind]
    trained = toy.randn(5, TRAINING, toy.DIM, dtype=DTYPE)
    labels = torch.arange(TRAINING) % toy.WORDS
    memory.add(trained, labels)
    context = toy.context_of(base, memory, stream)
    log = NeighborLog(130, MbpaConfig(eps=1e-3, scale="absolute"), write=write)
    states: list[Tensor] = []

    class Spy(NeighborLog):
        def watch(self, batch: object, targets: Tensor) -> None:
            states.append(batch.hidden)  # type: ignore[attr-defined]

    evaluate(
        base,
        [context],
        {"knn": METHODS["knn"].predictor(toy.SETTINGS)},
        stream,
        UnionVocabulary(),
        Schedule(every, write=write, read_ahead=lr == 0),
        Hooks([log, Spy(0, MbpaConfig(), write=write)]),
    )
    hidden = torch.cat(states)
    columns = log.columns()
    assert set(columns["position"].tolist()) == set(range(130))
    assert int(columns["rank"].max()) == min(context.k, KEPT) - 1
    offsets, positions = columns["offset"], columns["position"]
    assert bool((offsets < positions // every * every).all()), "a neighbour of the future"
    assert write == bool((offsets >= 0).any())
    everything = torch.cat([trained, hidden])
    answers = torch.cat([labels, torch.from_numpy(stream.targets)])
    expected = (everything[offsets + TRAINING] - hidden[positions]).square().sum(1)
    np.testing.assert_allclose(columns["distance"], expected.numpy(), rtol=1e-9)
    assert columns["label"].tolist() == answers[offsets + TRAINING].tolist()
    np.testing.assert_allclose(columns["closeness"], 1 / (1e-3 + expected.numpy()), rtol=1e-9)


def test_the_open_vocabulary_is_logged_as_well() -> None:
    stream = toy.stream_of(toy.by_first_appearance(toy.tokens(4, 60)))
    base = toy.base_of(toy.tiny_model().double(), rows=0)
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=DTYPE), stream)
    vocabulary: VocabularyPolicy = OpenVocabulary(toy.UNK, toy.WORDS, 0.5)
    log = NeighborLog(30, MbpaConfig(), write=True)
    evaluate(base, [context], {}, stream, vocabulary, Schedule(20), Hooks([log]))
    columns = log.columns()
    assert set(columns["position"].tolist()) == set(range(20, 30))
    near = columns["position"] == 25
    distances = columns["distance"][near]
    assert len(distances) == context.k  # the default closeness is relative to their mean
    np.testing.assert_allclose(
        columns["closeness"][near], 1 / (3e-3 + distances / distances.mean()), rtol=1e-9
    )


@pytest.mark.parametrize("total", [1, 300, 2048])
def test_the_places_of_labels_are_those_of_the_training_memory(total: int) -> None:
    ids = np.arange(total + 1)  # every token says where it stands
    model = toy.tiny_model(vocabulary=4)

    def read(tokens: Tensor, state: object) -> SimpleNamespace:
        return SimpleNamespace(
            hidden=torch.zeros(*tokens.shape, 1), state=model.initial_state(tokens.shape[0])
        )

    parts = {
        "__call__": staticmethod(read),
        "initial_state": model.initial_state,
        "bias": model.bias,
    }
    stand_in = type("StandIn", (), parts)()
    trained = AwdModel(stand_in, Path("none"), "checkpoint", "0")
    labels = torch.cat([labels for _, labels in training_states(trained, ids)])
    assert trained.label_places(total).tolist() == labels.tolist()
