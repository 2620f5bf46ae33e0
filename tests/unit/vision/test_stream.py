from __future__ import annotations

import torch

from hebblm.vision.backbones import Classifier, build_classifier
from hebblm.vision.classes import stream
from hebblm.vision.learning import Pictures, features, learn, rmsprop, statistics

from .class_samples import CPU, classes

IMAGES = classes().test
PICTURES = Pictures.of(IMAGES, *statistics(IMAGES, torch.arange(len(IMAGES))), CPU)
ORDER = torch.randperm(len(IMAGES), generator=torch.Generator().manual_seed(3))[:20]


def network() -> Classifier:
    return build_classifier("cnn2-w16", 6, 1)


def test_each_block_is_seen_by_a_network_that_learnt_from_all_before_it() -> None:
    plain = network()
    optimizer = rmsprop(plain, 1e-3)
    made = list(stream(network(), PICTURES, ORDER, interval=8, lr=1e-3))
    assert [len(block.labels) for block in made] == [8, 8, 4]
    for block, index in zip(made, ORDER.split(8), strict=True):
        pictures = PICTURES.batch(index)
        assert torch.equal(block.hidden, features(plain, pictures))
        assert torch.equal(block.head.weight, plain.head().weight)
        assert torch.equal(block.labels, IMAGES.labels[index])
        learn(plain, optimizer, pictures, block.labels)
