from __future__ import annotations

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.split import Split, increment, predicted_order, split

from .class_samples import classes

DATA = classes()


def sets(parts: Split) -> list[set[int]]:
    return [set(part.tolist()) for part in (parts.train, parts.spare, parts.held_out)]


def test_every_training_picture_is_in_one_part() -> None:
    parts = split(DATA, 2, 4, seed=1)
    old, spare, out = sets(parts)
    assert not old & spare
    assert not old & out
    assert not spare & out
    assert len(old | spare | out) == len(DATA.train)
    labels = DATA.train.labels
    assert labels[parts.held_out].bincount().tolist() == [4] * 6
    assert not parts.new[labels[parts.train]].any()
    assert parts.new[labels[parts.spare]].all()
    assert len(parts.old_classes) == 2


def test_a_seed_decides() -> None:
    one, again, other = (vars(split(DATA, 3, 4, seed=seed)) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["held_out"], other["held_out"])


def test_held_out_pictures_do_not_depend_on_how_many_classes_are_old() -> None:
    few, many = split(DATA, 2, 4, seed=1), split(DATA, 4, 4, seed=1)
    assert torch.equal(few.held_out, many.held_out)
    assert set(few.old_classes) < set(many.old_classes)


def test_an_increment_has_fewer_pictures_of_half_of_the_new_classes() -> None:
    parts = split(DATA, 2, 4, seed=1)
    (balanced, none), (uneven, half) = (increment(DATA, parts, samples=6, ratio=ratio, seed=3) for ratio in (1, 3))
    labels = DATA.train.labels
    assert labels[balanced].bincount().tolist() == [6] * 6
    assert not none.any()
    assert int(half.sum()) == 2
    assert parts.new[half].all()
    assert labels[uneven].bincount().tolist() == [2 if few else 6 for few in half]
    assert set(uneven.tolist()) < set(balanced.tolist())
    assert not set(balanced.tolist()) & set(parts.held_out.tolist())
    is_old = ~parts.new[labels[balanced]]
    assert set(balanced[is_old].tolist()) < set(parts.train.tolist())


def test_refuses_what_the_data_does_not_have() -> None:
    with pytest.raises(UserError, match=r"6 pre-training classes leave no new one of the 6 of classes"):
        split(DATA, 6, 4, seed=1)
    with pytest.raises(UserError, match=r"held_out = 24 leaves none of the 24 training pictures of class 0"):
        split(DATA, 3, 24, seed=1)
    with pytest.raises(UserError, match=r"increment.samples = 21 is more than the 20 pictures of class 0"):
        increment(DATA, split(DATA, 3, 4, seed=1), samples=21, ratio=1, seed=1)
    with pytest.raises(UserError, match=r"49 test pictures were asked for, but classes has 48"):
        predicted_order(DATA, 49, seed=1)
