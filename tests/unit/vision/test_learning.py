from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.backbones import Classifier, build_classifier
from hebblm.vision.learning import (
    Pictures,
    Training,
    batches,
    features,
    features_of,
    frozen_head,
    learn,
    rmsprop,
    statistics,
)
from hebblm.vision.settings import PretrainingSettings

from .class_samples import CPU, classes

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


def test_learning_lowers_the_loss() -> None:
    classifier = network()
    optimizer = rmsprop(classifier, 1e-3)
    index = torch.arange(48)
    losses = [float(learn(classifier, optimizer, PICTURES.batch(index), TRAIN.labels[index])) for _ in range(8)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("make", [sgd, lambda classifier: rmsprop(classifier, 1e-3)])
def test_training_goes_on_bit_for_bit(make: Make) -> None:
    networks = network(), network()
    whole, parted = (training(each, make(each)) for each in networks)
    epoch(whole, 1)
    kept = {name: value.clone() for name, value in whole.tensors().items()}
    epoch(whole, 2)
    parted.restore(kept)
    epoch(parted, 2)
    again = parted.tensors()
    for name, value in whole.tensors().items():
        assert torch.equal(value, again[name]), name
    assert any(name.startswith(("momentum_buffer.", "square_avg.")) for name in again)


def test_reading_features_changes_nothing() -> None:
    classifier = network()
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    together = features_of(classifier, PICTURES, torch.arange(20))
    alone = torch.cat([features(classifier, PICTURES.batch(torch.tensor([at]))) for at in range(20)])
    torch.testing.assert_close(together, alone)  # the norms use what they gathered, not the batch
    assert not together.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in classifier.state_dict().items())


def test_a_frozen_head_stays() -> None:
    classifier = network()
    head = frozen_head(classifier)
    before = head.weight.clone()
    learn(classifier, rmsprop(classifier, 1e-2), PICTURES.batch(torch.arange(8)), TRAIN.labels[:8])
    assert torch.equal(head.weight, before)
    assert not torch.equal(classifier.head().weight, before)


def test_learns_where_gradients_are_switched_off() -> None:
    classifier = network()
    before = classifier.head().weight.clone()
    with torch.no_grad():
        learn(classifier, rmsprop(classifier, 1e-2), PICTURES.batch(torch.arange(8)), TRAIN.labels[:8])
    assert not torch.equal(classifier.head().weight, before)


def test_says_that_training_diverged() -> None:
    classifier = network()
    with torch.no_grad():
        classifier.output.weight.fill_(torch.inf)
    with pytest.raises(UserError, match=r"training diverged with lr = 0\.05"):
        epoch(training(classifier, sgd(classifier)), 1)
