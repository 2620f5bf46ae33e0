from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hebblm.vision.backbones import Classifier
from hebblm.vision.classes import old_memory
from hebblm.vision.fine_tuning import FineTuning, Stream, increment_rate
from hebblm.vision.learning import (
    Pictures,
    begin_new_rows,
    features,
    features_of,
    learn,
    one_cycle,
    optimizer_of,
    set_rate,
    warmed,
)
from hebblm.vision.pretraining import Pretrained
from hebblm.vision.settings import IncrementSettings
from hebblm.vision.state import generator
from hebblm.vision.tuning import ClassSetup, start_of

from .samples import TINY_CLASSES, setup

POINT = {"lr": 0.02, "head": 3.0, "steps": 3}
SGD = TINY_CLASSES.changed(
    {
        "online.optimizer": "sgd", "online.new_rows": "mean", "online.steps": "3",
        "increment.optimizer": "sgd", "increment.new_rows": "mean",
        "increment.schedule": "onecycle",
    }
)  # fmt: skip


class PlainSgd:
    """SGD with momentum as the textbook has it, the head at a rate of its own."""

    def __init__(self, network: Classifier, head: float) -> None:
        self.network, self.head = network, head
        self.velocity = {name: torch.zeros_like(p) for name, p in network.named_parameters()}

    def step(self, pictures: Tensor, labels: Tensor, lr: float) -> None:
        self.network.train()
        loss = torch.nn.functional.cross_entropy(self.network(pictures), labels)
        named = dict(self.network.named_parameters())
        gradients = torch.autograd.grad(loss, list(named.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(named.items(), gradients, strict=True):
                self.velocity[name].mul_(0.9).add_(gradient)
                rate = lr * self.head if name.startswith("output") else lr
                weight.sub_(rate * self.velocity[name])


def begun(start: Pretrained) -> Classifier:
    """A copy of the network whose rows of new classes are the mean of the others."""
    network, new = start.copy(), start.parts.new
    with torch.no_grad():
        network.output.weight[new] = network.output.weight[~new].mean(0)
        network.output.bias[new] = network.output.bias[~new].mean()
    return network


def started(tmp_path: Path, **changes: str) -> tuple[ClassSetup, Pretrained]:
    own = setup(tmp_path, SGD.changed({name.replace("__", "."): v for name, v in changes.items()}))
    return own, start_of(own, 1, 3)


def test_a_stream_is_the_plain_loop(tmp_path: Path) -> None:
    own, start = started(tmp_path)
    order = start.parts.held_out
    fast = list(Stream(own, start, "train", order, 7, POINT))
    network, pictures = begun(start), start.pictures("train")
    sgd, draws = PlainSgd(network, 3.0), generator(7, "replay of the stream")
    for number, block in enumerate(fast):
        index = order[8 * number : 8 * number + 8]
        hidden = features_of(network, pictures, index)
        torch.testing.assert_close(block.hidden, hidden, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(block.head.weight, network.output.weight, atol=1e-4, rtol=1e-3)
        assert torch.equal(block.labels, pictures.labels[index])
        sgd.step(pictures.batch(index), pictures.labels[index], 0.02)
        scored = order[: 8 * number + 8]
        for _ in range(2):
            drawn = scored[torch.randperm(len(scored), generator=draws)[:6]]
            varied = pictures.varied(drawn, draws, padding=1, flip=False)
            sgd.step(varied, pictures.labels[drawn], 0.02)
    assert len(fast) == 3


def test_at_the_papers_values_a_stream_takes_one_step_of_rmsprop_an_interval(
    tmp_path: Path,
) -> None:
    own = setup(tmp_path, TINY_CLASSES.changed({"online.steps": "1"}))
    start = start_of(own, 1, 3)
    order, pictures, plain = start.parts.held_out[:20], start.pictures("train"), start.copy()
    optimizer = torch.optim.RMSprop(plain.parameters(), 1e-3)
    point = {"lr": 1e-3, "head": 1.0, "steps": 1}
    made = list(Stream(own, start, "train", order, 1, point))
    assert [len(block.labels) for block in made] == [8, 8, 4]
    for block, index in zip(made, order.split(8), strict=True):
        batch = pictures.batch(index)
        torch.testing.assert_close(block.hidden, features(plain, batch))
        torch.testing.assert_close(block.head.weight, plain.head().weight)
        learn(plain, optimizer, batch, block.labels)


def test_fine_tuning_is_the_plain_loop(tmp_path: Path) -> None:
    own, start = started(tmp_path)
    tuning = FineTuning(own, start, 5, ratio=1, point=POINT)
    network, pictures = begun(start), start.pictures("train")
    sgd, taken, steps = PlainSgd(network, 3.0), 0, 3  # 36 pictures, 16 a step
    for epoch in range(2):
        tuning.learn(epoch, "t")
        draws = generator(5, f"epoch {epoch} of the increment")
        order = tuning.samples[torch.randperm(36, generator=draws)]
        for index in torch.split(order, 16):
            varied = pictures.varied(index, draws, padding=1, flip=False)
            sgd.step(varied, pictures.labels[index], one_cycle(0.02, taken / (2 * steps)))
            taken += 1
    for name, value in tuning.training.classifier.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], atol=1e-4, rtol=1e-3)


def test_what_is_replayed_was_scored_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, start = started(tmp_path, online__steps="4")
    order, replayed, varied = start.parts.held_out, [], Pictures.varied

    def watched(self: Pictures, index: Tensor, *args: object, **options: object) -> Tensor:
        replayed.append(set(index.tolist()))
        return varied(self, index, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Pictures, "varied", watched)
    scored: set[int] = set()
    for number, block in enumerate(Stream(own, start, "train", order, 1, {**POINT, "steps": 4})):
        assert len(replayed) == 3 * number, "nothing is learned before a block is scored"
        assert all(drawn <= scored for drawn in replayed)
        scored |= set(order[8 * number : 8 * number + len(block.labels)].tolist())
    assert set.union(*replayed) > set(order[:8].tolist()), "not the latest alone"
    first, last = set(order[:8].tolist()), replayed[-1]
    assert last & first or last & set(order[8:16].tolist()), "nor only the first"


def test_a_label_changes_no_prediction_of_its_block_or_before(tmp_path: Path) -> None:
    own, start = started(tmp_path)
    order = start.parts.held_out
    images = own.dataset.train
    labels = images.labels.clone()
    labels[order[8:16]] = (labels[order[8:16]] + 1) % 6
    changed = replace(
        start.pretraining, dataset=replace(own.dataset, train=replace(images, labels=labels))
    )
    one = list(Stream(own, start, "train", order, 1, POINT))
    other = list(Stream(own, replace(start, pretraining=changed), "train", order, 1, POINT))
    for before, after in list(zip(one, other, strict=True))[:2]:
        assert torch.equal(before.hidden, after.hidden)
        assert torch.equal(before.head.weight, after.head.weight)
    assert not torch.equal(one[2].head.weight, other[2].head.weight)


def test_new_rows_begin_at_the_mean_or_as_pre_training_left_them(tmp_path: Path) -> None:
    _, start = started(tmp_path)
    new = start.parts.new
    left, mean = start.copy(), start.copy()
    begin_new_rows(left, new, "pretrained")
    assert torch.equal(left.output.weight, start.classifier.output.weight)
    begin_new_rows(mean, new, "mean")
    old = start.classifier.output
    torch.testing.assert_close(mean.output.weight[new], old.weight[~new].mean(0).expand(3, -1))
    torch.testing.assert_close(mean.output.bias[new], old.bias[~new].mean().expand(3))
    assert torch.equal(mean.output.weight[~new], old.weight[~new])


@pytest.mark.parametrize("norms", ["batch", "frozen"])
def test_frozen_norms_keep_the_statistics_of_pre_training(tmp_path: Path, norms: str) -> None:
    own, start = started(tmp_path, online__norms=norms, increment__norms=norms)
    tuning = FineTuning(own, start, 1, ratio=1, point=POINT)
    tuning.learn(0, "t")
    stream = Stream(own, start, "train", start.parts.held_out, 1, POINT)
    list(stream)
    for network in (tuning.training.classifier, stream._network):
        before, after = start.classifier.state_dict(), network.state_dict()
        same = all(torch.equal(before[n], after[n]) for n in before if "running" in n)
        assert same == (norms == "frozen")
        assert not torch.equal(
            before["backbone.layers.1.weight"], after["backbone.layers.1.weight"]
        )


def test_a_first_step_of_rmsprop_is_ten_times_its_rate_and_warm_up_takes_that_back(
    tmp_path: Path,
) -> None:
    _, start = started(tmp_path)
    pictures = start.pictures("train")
    index = start.parts.train[:16]
    moved = []
    for warm_up in (0, 100):
        network = start.copy()
        settings = IncrementSettings(warm_up=warm_up)
        optimizer = optimizer_of(network, settings, head=2.0)
        set_rate(optimizer, increment_rate(settings, 1e-4, 0, 0, steps=9))
        learn(network, optimizer, pictures.batch(index), pictures.labels[index])
        moved.append(
            [
                float((ours - theirs).detach().abs().max())
                for ours, theirs in (
                    (network.backbone.layers[0].weight, start.classifier.backbone.layers[0].weight),  # type: ignore[index]
                    (network.output.weight, start.classifier.output.weight),
                )
            ]
        )
    assert moved[0] == pytest.approx([1e-3, 2e-3], rel=2e-2)
    assert moved[1] == pytest.approx([1e-5, 2e-5], rel=5e-2)


def test_rates_by_hand() -> None:
    assert [warmed(0.4, step, 4) for step in (0, 1, 3, 4, 9)] == [0.1, 0.2, 0.4, 0.4, 0.4]
    assert warmed(0.4, 0, 0) == 0.4
    cycle = IncrementSettings(schedule="onecycle", epochs=2, reported=(2,))
    rates = [increment_rate(cycle, 1.0, epoch, step, 4) for epoch in (0, 1) for step in range(4)]
    assert rates[0] == pytest.approx(0.04)
    assert rates[2] == pytest.approx(1.0)
    assert rates[5] == pytest.approx(0.5)
    assert rates[-1] < rates[-2] < rates[-3]
    constant = IncrementSettings(warm_up=5)
    assert [increment_rate(constant, 1.0, epoch, 1, 4) for epoch in (0, 1)] == [0.4, 1.0]


def test_keys_go_stale_and_are_rebuilt_when_asked(tmp_path: Path) -> None:
    own, start = started(tmp_path)
    order, remembered = start.parts.held_out, old_memory(start)
    still = Stream(own, start, "train", order, 1, {**POINT, "lr": 0.0, "steps": 1})
    blocks = list(still)
    assert all(block.keys is None for block in blocks)
    moving = Stream(own, start, "train", order, 1, POINT)
    far = moving.drift(remembered, list(moving))
    assert min(far.values()) > 0.01
    frozen, _ = started(tmp_path, online__norms="frozen")
    stays = Stream(frozen, start, "train", order, 1, {**POINT, "lr": 0.0})
    near = stays.drift(remembered, list(stays))
    assert max(near.values()) < 1e-5, "a network that does not move has no stale keys"

    again, _ = started(tmp_path, online__rebuilt="2")
    rebuilding = Stream(again, start, "train", order, 1, POINT)
    for number, block in enumerate(rebuilding):
        if number != 2:
            assert block.keys is None
            continue
        assert block.keys is not None
        network = rebuilding._network
        expected = torch.cat(
            [
                features_of(network, start.pictures("train"), start.parts.train),
                features_of(network, start.pictures("train"), order[:16]),
            ]
        )
        torch.testing.assert_close(block.keys, expected)
