"""A new kind of model has three members, and its base seven; everything else follows from these."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hebblm.models import base as bases
from hebblm.models.base import BaseUpdate, GradientBase, NewRows, State, TrainedModel
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.types import OutputHead

WORDS, WIDTH = 11, 5


class Network(nn.Module):
    """A recurrent network with one layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layer = nn.RNN(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, WORDS)


class NewBase(GradientBase):
    def __init__(self, network: Network, update: BaseUpdate | None, streams: int) -> None:
        super().__init__(update, streams)
        self.network = network
        self.hidden = torch.zeros(1, streams, WIDTH)

    @property
    def head(self) -> OutputHead:
        return OutputHead(self.network.output.weight.detach(), self.network.output.bias.detach())

    def parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.network.named_parameters())

    def _states(self, ids: Tensor) -> Tensor:
        states, hidden = self.network.layer(self.network.embedding(ids), self.hidden)
        self.hidden = hidden.detach()
        return states  # type: ignore[no-any-return]

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.network.output(hidden), targets)

    def stream_state(self) -> State:
        return {"hidden": self.hidden.clone()}

    def load_stream_state(self, state: State) -> None:
        self.hidden = state["hidden"].clone()

    def frozen(self) -> NewBase:
        return NewBase(self.network, None, 1)


class NewModel(TrainedModel):
    def __init__(self) -> None:
        self.network = Network()

    @property
    def sha256(self) -> str:
        return "0"

    @property
    def head(self) -> OutputHead:
        return self.base().head

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> NewBase:
        return NewBase(self.network, update, streams)


@pytest.fixture
def ids() -> np.ndarray:
    return np.random.default_rng(0).integers(0, WORDS, 30)


def test_its_segments_hold_each_label_once_and_go_on_anywhere(
    ids: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "SEGMENT", 7)
    model = NewModel()
    found = list(model.segments(ids))
    total = len(ids) - 1
    assert len(found) == model.segment_count(total) == 5
    whole = model.base().read(torch.from_numpy(ids[:-1]))
    torch.testing.assert_close(torch.cat([part.keys for part in found]), whole)
    labels = torch.cat([part.labels for part in found]).numpy()
    np.testing.assert_array_equal(labels, ids[model.label_places(total)])
    rest = list(model.segments(ids, done=2, state=found[1].state))
    torch.testing.assert_close(
        torch.cat([part.keys for part in rest]), torch.cat([part.keys for part in found[2:]])
    )
    # Of two processes the first one reads; joined by rank they hold the same.
    for first, second in zip(
        model.segments(ids, rank=0, ranks=2), model.segments(ids, rank=1, ranks=2), strict=True
    ):
        assert len(first.labels) > 0
        assert second.keys.shape == (0, WIDTH)


def test_its_gradients_are_those_of_a_plain_loop(ids: np.ndarray) -> None:
    model = NewModel()
    squares = model.mean_squares(ids, 10)
    network = Network()
    expected = [torch.zeros_like(weight) for weight in network.parameters()]
    hidden = torch.zeros(1, 1, WIDTH)
    starts = range(0, len(ids) - 1, 10)
    for start in starts:
        stop = min(start + 10, len(ids) - 1)
        states, hidden = network.layer(
            network.embedding(torch.from_numpy(ids[None, start:stop])), hidden.detach()
        )
        loss = nn.functional.cross_entropy(
            network.output(states[0]), torch.from_numpy(ids[start + 1 : stop + 1])
        )
        network.zero_grad()
        loss.backward()
        for total, weight in zip(expected, network.parameters(), strict=True):
            assert weight.grad is not None
            total += weight.grad.square() / len(starts)
    for square, plain in zip(squares, expected, strict=True):
        torch.testing.assert_close(square, plain)


def test_the_rest_has_defaults(ids: np.ndarray) -> None:
    model = NewModel()
    assert (model.keyed, model.key_width, model.reading()) == (False, WIDTH, {})
    assert model.describe() == {"arch": "NewModel", "weights_sha256": "0"}
    base = model.base()
    assert base.max_rewind == 0
    base.rewind(0)
    base.grow(0)
    with pytest.raises(ValueError, match="a closed vocabulary"):
        base.grow(2)


def test_dynamic_evaluation_learns_with_it_and_goes_on_from_its_state(ids: np.ndarray) -> None:
    tokens = torch.from_numpy(ids)
    config = DynamicConfig("sgd", lr=0.5, decay=0.0, segment=5)
    whole, half = (DynamicBase(NewModel().base(), config, None) for _ in range(2))
    states = []
    for begin, end in itertools.pairwise((0, 8, 16, 24)):
        states.append(whole.read(tokens[begin:end]))
        whole.learn(tokens[begin + 1 : end + 1])
        if end <= 16:
            half.read(tokens[begin:end])
            half.learn(tokens[begin + 1 : end + 1])
    assert not torch.equal(whole.head.weight, NewModel().head.weight)
    other = DynamicBase(NewModel().base(), config, None)
    other.load_state_dict(half.state_dict())
    torch.testing.assert_close(other.read(tokens[16:24]), states[-1], rtol=0, atol=0)
