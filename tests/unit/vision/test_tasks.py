from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.mlp import MLP
from hebblm.vision.permuted import TaskStream, draw
from hebblm.vision.state import generator

from .samples import TINY, patterns

CPU = torch.device("cpu")


def test_permutations_are_permutations_and_differ() -> None:
    drawn = draw(patterns(), TINY, 1)
    assert drawn.permutations.shape == (3, 16)
    assert torch.equal(drawn.permutations.sort(1).values, torch.arange(16).expand(3, 16))
    assert not torch.equal(drawn.permutations[0], drawn.permutations[1])


def test_held_out_samples_are_in_no_task() -> None:
    settings = replace(TINY, train_samples=180)  # with 20 held out, all there are
    drawn = draw(patterns(), settings, 1)
    for task in drawn.train:
        assert torch.equal(torch.cat([task, drawn.held_out]).sort().values, torch.arange(200))


def test_a_seed_decides() -> None:
    first, again, other = (vars(draw(patterns(), TINY, seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_more_tasks_leave_the_first_as_they_are() -> None:
    few, many = draw(patterns(), TINY, 1), draw(patterns(), replace(TINY, tasks=5), 1)
    assert torch.equal(few.permutations, many.permutations[:3])
    assert torch.equal(few.train, many.train[:3])
    assert torch.equal(few.test, many.test)


def test_a_task_shows_its_own_order_of_pixels() -> None:
    dataset = patterns()
    stream = TaskStream(dataset, TINY, 1, CPU)
    drawn = stream.drawn
    pixels, labels = stream.train(2)
    sample = drawn.train[2, 5]
    plain = dataset.train.pixels[sample].flatten() / 255
    assert torch.equal(pixels[5], plain[drawn.permutations[2]])
    assert labels[5] == dataset.train.labels[sample]
    entries = stream.under(MLP.initial(16, 4, 3, generator(1, "network")), 3, 7).memory.entries()
    assert torch.equal(entries.keys[14:], pixels[:7])
    assert torch.equal(entries.values[14:], labels[:7])
    test, _ = stream.test(0, 20)
    assert test.shape == (20, 16)


def test_counts_add_up_over_tasks() -> None:
    stream = TaskStream(patterns(), TINY, 1, CPU)
    expected = sum(torch.bincount(stream.train(task)[1], minlength=3) for task in range(2))
    assert torch.equal(stream.counts(2), torch.as_tensor(expected))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"train_samples": 181}, "train_samples = 181 and held_out = 20 are more than the 200 samples"),
        ({"test_samples": 41}, "test_samples = 41 is more than the 40"),
    ],
)
def test_refuses_more_than_there_is(change: dict[str, int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        draw(patterns(), replace(TINY, **change), 1)
