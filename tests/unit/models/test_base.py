from __future__ import annotations

import pytest
import torch

from hebblm.adapt.settings import changed
from hebblm.errors import UserError
from hebblm.models.awd import AwdBase
from hebblm.models.base import BaseUpdate

from ...support import toy


def test_reading_in_parts_goes_on_where_the_last_part_ended() -> None:
    base, inputs = toy.base_of(toy.tiny_model()), torch.from_numpy(toy.tokens(0, 30))
    whole = base.read(inputs)
    base.reset()
    parts = torch.cat([base.read(inputs[:7]), base.read(inputs[7:8]), base.read(inputs[8:])])
    assert torch.allclose(whole, parts, atol=1e-5)
    assert not whole.requires_grad


@pytest.mark.parametrize(("optimizer", "under_no_grad"), [("sgd", True), ("rmsprop", False)])
def test_every_parameter_of_a_moving_base_learns_and_none_of_the_model(
    optimizer: str, under_no_grad: bool
) -> None:
    """Also where the evaluation loop reads under no_grad."""
    model = toy.tiny_model()
    base = AwdBase(model, update=BaseUpdate(0.1, optimizer))  # type: ignore[arg-type]
    before = {name: p.detach().clone() for name, p in base.model.named_parameters()}
    with torch.set_grad_enabled(not under_no_grad):
        base.read(torch.tensor([1, 2, 3]))
        with torch.enable_grad():
            base.learn(torch.tensor([2, 3, 4]))
    assert all(not torch.equal(before[name], p) for name, p in base.model.named_parameters())
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_a_fixed_base_ignores_what_it_should_learn() -> None:
    base = toy.base_of(toy.tiny_model())
    before = base.head.weight.clone()
    base.read(torch.tensor([1, 2, 3]))
    base.learn(torch.tensor([2, 3, 4]))
    assert not base.trains_online
    assert torch.equal(base.head.weight, before)


def test_fixed_bases_share_the_model_until_something_changes() -> None:
    model = toy.tiny_model()
    trained = {name: p.detach().clone() for name, p in model.named_parameters()}
    fixed, grown, changed = AwdBase(model), AwdBase(model), AwdBase(model)
    assert fixed.head.weight.data_ptr() == model.embedding.data_ptr()
    grown.grow(2)
    with torch.no_grad():
        for parameter in changed.parameters().values():
            parameter.add_(1.0)
    assert len(grown.head.weight) == len(trained["embedding"]) + 2
    assert torch.equal(changed.head.weight, trained["embedding"] + 1.0)
    for one in (model, fixed.model):
        assert all(torch.equal(trained[name], p) for name, p in one.named_parameters())


def test_reset_forgets_learning_growth_and_state_bit_for_bit() -> None:
    base, inputs = toy.base_of(toy.tiny_model(), lr=0.2), torch.from_numpy(toy.tokens(0, 20))
    first, weight = base.read(inputs), base.head.weight.clone()
    base.learn(torch.roll(inputs, -1))
    base.grow(3)
    assert base.head.weight.shape[0] == toy.WORDS + 3
    base.reset()
    assert torch.equal(base.head.weight, weight)
    assert torch.equal(base.read(inputs), first)


@pytest.mark.parametrize(("init", "same"), [("zero", True), ("mean", True), ("uniform", False)])
def test_new_rows_start_as_asked_for(init: str, same: bool) -> None:
    rows = [
        AwdBase(toy.tiny_model(), rows=2, init=init, seed=seed).head.weight[-2:]
        for seed in (1, 1, 2)
    ]  # type: ignore[arg-type]
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2]) == same
    assert bool((rows[0] == 0).all()) == (init == "zero")


@pytest.mark.parametrize(("lr", "clip", "name"), [(-1.0, 0.25, "base.lr"), (0.1, 0.0, "base.clip")])
def test_values_out_of_range_are_refused(lr: float, clip: float, name: str) -> None:
    with pytest.raises(UserError, match=name):
        changed("base", BaseUpdate(), {"lr": lr, "clip": clip})
