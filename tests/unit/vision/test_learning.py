from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.backbones import Classifier, build_classifier
from hebblm.vision.data import Images
from hebblm.vision.learning import (
    Pictures,
    Training,
    batches,
    features,
    features_of,
    learn,
    statistics,
)
from hebblm.vision.pretraining import rate_at
from hebblm.vision.scales import CLASS_SCALES as SCALES
from hebblm.vision.settings import PretrainingSettings
from hebblm.vision.split import increment, predicted_order, split

from .samples import CPU, classes

TRAIN = classes().train
PICTURES = Pictures.of(TRAIN, *statistics(TRAIN, torch.arange(len(TRAIN))), CPU)
Make = Callable[[Classifier], torch.optim.Optimizer]


def sgd(classifier: Classifier) -> torch.optim.Optimizer:
    return torch.optim.SGD(classifier.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def network() -> Classifier:
    return build_classifier("cnn2-w16", 6, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def training(classifier: Classifier, optimizer: torch.optim.Optimizer) -> Training:
    return Training(classifier, optimizer, PICTURES, PretrainingSettings(padding=1, flip=True))


def epoch(own: Training, seed: int) -> None:
    own.epoch(torch.arange(33), batch_size=16, generator=torch.Generator().manual_seed(seed))


def test_no_batch_is_a_single_picture() -> None:
    assert [len(part) for part in batches(torch.arange(33), 16)] == [16, 17]
    assert [len(part) for part in batches(torch.arange(34), 16)] == [16, 16, 2]
    assert torch.equal(torch.cat(list(batches(torch.arange(33), 16))), torch.arange(33))


@pytest.mark.parametrize(
    "make", [sgd, lambda classifier: torch.optim.RMSprop(classifier.parameters(), 1e-3)]
)
def test_training_goes_on_bit_for_bit(make: Make) -> None:
    networks = network(), network()
    whole, parted = (training(each, make(each)) for each in networks)
    epoch(whole, 1)
    kept = {name: value.clone() for name, value in whole.state_dict().items()}
    epoch(whole, 2)
    parted.load_state_dict(kept)
    epoch(parted, 2)
    again = parted.state_dict()
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again[name]), name
    assert any(name.startswith(("momentum_buffer.", "square_avg.")) for name in again)


def test_reading_features_changes_nothing() -> None:
    classifier = network()
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    together = features_of(classifier, PICTURES, torch.arange(20))
    alone = torch.cat(
        [features(classifier, PICTURES.batch(torch.tensor([at]))) for at in range(20)]
    )
    torch.testing.assert_close(together, alone)  # the norms use what they gathered, not the batch
    assert not together.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in classifier.state_dict().items())


def test_learns_where_gradients_are_switched_off() -> None:
    classifier = network()
    frozen, before = classifier.frozen_head(), classifier.head().weight.clone()
    with torch.no_grad():
        learn(
            classifier,
            torch.optim.RMSprop(classifier.parameters(), 1e-2),
            PICTURES.batch(torch.arange(8)),
            TRAIN.labels[:8],
        )
    assert not torch.equal(classifier.head().weight, before)
    assert torch.equal(frozen.weight, before)


def test_says_that_training_diverged() -> None:
    classifier = network()
    with torch.no_grad():
        classifier.output.weight.fill_(torch.inf)
    with pytest.raises(UserError, match=r"training diverged with lr = 0\.05"):
        epoch(training(classifier, sgd(classifier)), 1)


def pictures(images: Images) -> Pictures:
    mean, deviation = statistics(images, torch.arange(len(images)))
    return Pictures.of(images, mean, deviation, CPU)


def test_planes_have_mean_nothing_and_deviation_one() -> None:
    made = pictures(classes().train).batch(torch.arange(144))
    assert made.is_contiguous(memory_format=torch.channels_last)
    planes = made.transpose(0, 1).flatten(1)
    torch.testing.assert_close(planes.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(planes.std(1), torch.ones(3), atol=1e-5, rtol=0)


def test_a_single_plane_stands_for_three() -> None:
    train = classes().train
    made = pictures(Images(train.pixels[:5, :1], train.labels[:5])).batch(torch.tensor([3, 1]))
    assert made.shape == (2, 3, 8, 8)
    assert torch.equal(made[:, 0], made[:, 1])
    assert torch.equal(made[:, 0], made[:, 2])
    assert not torch.equal(made[0], made[1])


@pytest.mark.parametrize("flip", [False, True])
def test_crops_and_flips_are_those_of_a_loop(flip: bool) -> None:
    images = classes(side=5).train
    mean, deviation = torch.zeros(3), torch.ones(3)
    index = torch.tensor([7, 0, 30, 7])
    made = Pictures.of(images, mean, deviation, CPU).varied(
        index, torch.Generator().manual_seed(4), padding=2, flip=flip
    )
    generator = torch.Generator().manual_seed(4)
    tops = torch.randint(5, (4, 1), generator=generator).flatten().tolist()
    lefts = torch.randint(5, (4, 1), generator=generator).flatten().tolist()
    mirrored = (
        (torch.rand(4, 1, generator=generator) < 0.5).flatten().tolist() if flip else [False] * 4
    )
    assert not flip or len(set(mirrored)) == 2
    for row, (picture, top, left, mirror) in enumerate(
        zip(index.tolist(), tops, lefts, mirrored, strict=True)
    ):
        framed = torch.zeros(3, 9, 9)
        framed[:, 2:7, 2:7] = images.pixels[picture]
        cut = framed[:, top : top + 5, left : left + 5]
        assert torch.equal(made[row], cut.flip(2) if mirror else cut)


def test_the_papers_phases() -> None:
    settings = SCALES["paper"].pretraining
    rates = [rate_at(settings, epoch, 7, 10) for epoch in (0, 149, 150, 249, 250, 349)]
    assert rates == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    with pytest.raises(ValueError, match="beyond the last phase"):
        rate_at(settings, 350, 0, 10)


def test_one_cycle_rises_for_a_quarter_and_falls_to_nothing() -> None:
    settings = PretrainingSettings(epochs=(4,), lr=(0.2,), schedule="onecycle")
    rates = [rate_at(settings, epoch, step, 10) for epoch in range(4) for step in range(10)]
    assert rates[0] == pytest.approx(0.008)
    assert max(rates) == rates[10] == pytest.approx(0.2)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[25] == pytest.approx(0.1)
    assert 0 < rates[-1] < 1e-3


DATA = classes()


def test_every_training_picture_is_in_one_part() -> None:
    parts = split(DATA, 2, 4, seed=1)
    old, spare, out = (set(part.tolist()) for part in (parts.train, parts.spare, parts.held_out))
    assert not old & spare
    assert not old & out
    assert not spare & out
    assert len(old | spare | out) == len(DATA.train)
    labels = DATA.train.labels
    assert labels[parts.held_out].bincount().tolist() == [4] * 6
    assert not parts.new[labels[parts.train]].any()
    assert parts.new[labels[parts.spare]].all()
    assert len(parts.old_classes) == 2


def test_held_out_pictures_do_not_depend_on_how_many_classes_are_old() -> None:
    few, many = split(DATA, 2, 4, seed=1), split(DATA, 4, 4, seed=1)
    assert torch.equal(few.held_out, many.held_out)
    assert not torch.equal(few.held_out, split(DATA, 2, 4, seed=2).held_out)
    assert set(few.old_classes) < set(many.old_classes)


def test_an_increment_has_fewer_pictures_of_half_of_the_new_classes() -> None:
    parts = split(DATA, 2, 4, seed=1)
    (balanced, none), (uneven, half) = (
        increment(DATA, parts, samples=6, ratio=ratio, seed=3) for ratio in (1, 3)
    )
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
    with pytest.raises(
        UserError, match=r"6 pre-training classes leave no new class of the 6 of classes"
    ):
        split(DATA, 6, 4, seed=1)
    with pytest.raises(
        UserError, match=r"held_out = 24 leaves none of the 24 training pictures of class 0"
    ):
        split(DATA, 3, 24, seed=1)
    with pytest.raises(
        UserError, match=r"increment.samples = 21 is more than the 20 pictures of class 0"
    ):
        increment(DATA, split(DATA, 3, 4, seed=1), samples=21, ratio=1, seed=1)
    with pytest.raises(UserError, match=r"49 test pictures were asked for, but classes has 48"):
        predicted_order(DATA, 49, seed=1)
