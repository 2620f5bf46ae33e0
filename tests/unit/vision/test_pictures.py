from __future__ import annotations

import pytest
import torch

from hebblm.vision.data import Images
from hebblm.vision.learning import Pictures, statistics

from .class_samples import CPU, classes


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
    grey = Images(
        torch.randint(0, 16, (5, 1, 4, 4), generator=torch.Generator().manual_seed(1)).byte(), torch.arange(5)
    )
    made = pictures(grey).batch(torch.tensor([3, 1]))
    assert made.shape == (2, 3, 4, 4)
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
    mirrored = (torch.rand(4, 1, generator=generator) < 0.5).flatten().tolist() if flip else [False] * 4
    assert not flip or len(set(mirrored)) == 2
    for row, (picture, top, left, mirror) in enumerate(zip(index.tolist(), tops, lefts, mirrored, strict=True)):
        framed = torch.zeros(3, 9, 9)
        framed[:, 2:7, 2:7] = images.pixels[picture]
        cut = framed[:, top : top + 5, left : left + 5]
        assert torch.equal(made[row], cut.flip(2) if mirror else cut)


def test_without_a_frame_nothing_moves() -> None:
    own = pictures(classes().train)
    index = torch.tensor([2, 9])
    made = own.varied(index, torch.Generator().manual_seed(1), padding=0, flip=False)
    assert torch.equal(made, own.batch(index))
