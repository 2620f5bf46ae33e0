from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hebblm.adapt import functional
from hebblm.adapt.functional import hebb_logits, mbpa_logits, mixture_log_probs
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead
from hebblm.vision.reading import (
    MIXED,
    VARIANTS,
    PictureBlock,
    Predicted,
    Remembered,
    methods_of,
    read,
    values_of,
)
from hebblm.vision.settings import AdaptationSettings

SETTINGS = AdaptationSettings(k=5, rings=(4,))
VALUES = {
    "parametric": {"lr": 1e-3},
    "mixture": {"theta": 0.3, "gamma": 0.4},
    "mbpa": {"rate": 1e-2, "steps": 2, "l2_to_base": 1e-2},
    "hebb": {"beta": 0.6, "eta": 0.7},
    "hebb-v1": {"eta": 0.5},
    "hebb-v2": {"beta": 0.3, "eta": 0.9},
    "hebb-v3": {"constant": 0.4, "eta": 0.6},
}
NAMES = (*MIXED, *VARIANTS, "hebb-4")  # best has a test of its own
CLASSES, WIDTH = 4, 3


def blocks(count: int = 4, size: int = 3, seed: int = 1) -> list[PictureBlock]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return [
        PictureBlock(
            OutputHead(draw(CLASSES, WIDTH), draw(CLASSES)),
            draw(size, WIDTH),
            torch.randint(CLASSES, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def remembered() -> Remembered:
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(2, (8,), generator=generator)
    counts = torch.bincount(labels, minlength=CLASSES)
    return Remembered(
        torch.randn(8, WIDTH, generator=generator),
        labels,
        counts,
        torch.tensor([False, False, True, True]),
    )


def run(
    stream: list[PictureBlock], *, observes: bool = True, optimizer: str = "newton"
) -> dict[str, Predicted]:
    settings = replace(SETTINGS, mbpa_optimizer=optimizer)  # type: ignore[arg-type]
    return read(stream, remembered(), methods_of(NAMES, VALUES, settings), k=5, observes=observes)


def slow(
    name: str, stream: list[PictureBlock], observes: bool, optimizer: str
) -> tuple[list[int], list[float]]:
    """Predict one picture at a time from what was observed before its block."""
    start = remembered()
    keys, labels = list(start.keys), start.labels.tolist()
    seen: list[tuple[Tensor, int]] = []
    made, losses = [], []
    how = (
        {"lr": 1e-2, "steps": 2}
        if optimizer == "rmsprop"
        else {"lr": 0.0, "steps": 3, "l2_to_base": 1e-2}
    )
    mbpa = {**how, "eps": SETTINGS.eps, "optimizer": optimizer}
    for block in stream:
        everything = [(key, label) for key, label in zip(keys, labels, strict=True)] + seen
        counts = torch.bincount(torch.tensor([label for _, label in everything]), minlength=CLASSES)
        known = seen[-4:] if name == "hebb-4" else everything
        for hidden, label in zip(block.hidden, block.labels.tolist(), strict=True):
            query = hidden.unsqueeze(0)
            logits = block.head.logits(query)
            if known and name != "parametric":
                memory = FlatMemory(WIDTH)
                memory.add(
                    torch.stack([key for key, _ in known]), torch.tensor([own for _, own in known])
                )
                near = memory.search(query, 5)
                own = values_of(name, VALUES)
                if name == "mixture":
                    logits = mixture_log_probs(query, near, block.head, **own)
                elif name == "mbpa":
                    logits = mbpa_logits(query, near, block.head, **mbpa)  # type: ignore[arg-type]
                else:
                    variant = {
                        "hebb-v1": {"mbpa": False},
                        "hebb-v3": {"weighting": own.get("constant")},
                    }
                    logits = hebb_logits(
                        query,
                        near,
                        block.head,
                        **mbpa,  # type: ignore[arg-type]
                        eta=own["eta"],
                        beta=own.get("beta", 0.5),
                        counts=counts,
                        hebbian_classes=None if name == "hebb-v2" else start.new,
                        **variant.get(name, {}),  # type: ignore[arg-type]
                    )
            log_probs = logits.log_softmax(1)[0]
            made.append(int(log_probs.argmax()))
            losses.append(-float(log_probs[label]))
        if observes:
            seen += list(zip(block.hidden, block.labels.tolist(), strict=True))
    return made, losses


@pytest.mark.parametrize("optimizer", ["newton", "rmsprop"])
@pytest.mark.parametrize("observes", [True, False])
def test_every_method_is_that_of_one_picture_at_a_time(observes: bool, optimizer: str) -> None:
    stream = blocks()
    fast = run(stream, observes=observes, optimizer=optimizer)
    assert list(fast) == list(NAMES)
    for name, predicted in fast.items():
        made, losses = slow(name, stream, observes, optimizer)
        assert predicted.classes.tolist() == made, name
        assert predicted.losses.tolist() == pytest.approx(losses, abs=5e-5), name
    if observes:
        assert len({tuple(predicted.losses.tolist()) for predicted in fast.values()}) == len(NAMES)


def test_a_block_is_predicted_before_its_labels_are_seen() -> None:
    stream, other = blocks(), blocks()
    last = other[-1]
    other[-1] = PictureBlock(last.head, last.hidden, (last.labels + 1) % CLASSES)
    for name, predicted in run(stream).items():
        assert torch.equal(predicted.classes, run(other)[name].classes)
    changed = blocks()
    first = changed[0]
    changed[0] = PictureBlock(first.head, first.hidden, (first.labels + 1) % CLASSES)
    after = run(changed)
    assert torch.equal(after["parametric"].classes, run(stream)["parametric"].classes)
    assert not torch.equal(after["hebb"].losses[3:], run(stream)["hebb"].losses[3:])
    assert torch.equal(after["hebb"].classes[:3], run(stream)["hebb"].classes[:3])


def test_keys_that_were_computed_anew_take_the_place_of_all_stored_ones() -> None:
    generator, start = torch.Generator().manual_seed(5), remembered()
    first, second = blocks(2)
    methods = methods_of(NAMES, VALUES, SETTINGS)
    keys = torch.randn(len(start.keys) + len(first.labels), WIDTH, generator=generator)
    anew = read([first, second._replace(keys=keys)], start, methods, k=5, observes=True)
    # The same by hand: the first block is observed already, at other keys.
    seen = torch.bincount(first.labels, minlength=CLASSES)
    moved = Remembered(
        keys, torch.cat([start.labels, first.labels]), start.counts + seen, start.new
    )
    by_hand = read([second], moved, methods, k=5, observes=True)
    for name in NAMES:
        if name != "hebb-4":
            assert torch.equal(anew[name].losses[3:], by_hand[name].losses), name
    # A memory of the latest pairs of the stream takes the latest keys.
    alone = Remembered(keys[8:], first.labels, moved.counts, start.new)
    ring = methods_of(["hebb"], VALUES, SETTINGS)
    expected = read([second], alone, ring, k=5, observes=True)["hebb"].losses
    assert torch.equal(anew["hebb-4"].losses[3:], expected)


def test_methods_of_one_memory_share_its_search_and_one_adaptation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched, adapted = [], []
    search, solve = FlatMemory.find, functional.mbpa_delta
    monkeypatch.setattr(
        FlatMemory, "find", lambda *given, **named: searched.append(1) or search(*given, **named)
    )
    monkeypatch.setattr(
        functional,
        "mbpa_delta",
        lambda *given, **named: adapted.append(1) or solve(*given, **named),
    )
    names = [name for name in NAMES if name != "hebb-4"]  # which has a memory of its own
    read(blocks(), remembered(), methods_of(names, VALUES, SETTINGS), k=5, observes=True)
    assert (len(searched), len(adapted)) == (len(blocks()), len(blocks()))


def test_score_by_hand() -> None:
    predicted = Predicted(
        torch.tensor([1, 2, 3, 0], dtype=torch.uint8), torch.tensor([1.0, 2.0, 6.0, 3.0]), 0
    )
    labels, new = torch.tensor([1, 0, 3, 0]), torch.tensor([False, False, True, True])
    expected = {
        "old": pytest.approx(2 / 3),
        "new": 1.0,
        "overall": 0.75,
        "harmonic_mean": pytest.approx(0.8),
        "loss": 3.0,
    }
    assert predicted.score(labels, new) == expected
    assert predicted.score(labels, ~new) == expected | {"old": 1.0, "new": pytest.approx(2 / 3)}
    alone = predicted.score(torch.tensor([1, 0, 1, 0]), new)
    # no picture of a new class
    assert alone == {"old": 0.5, "new": 0.0, "overall": 0.5, "harmonic_mean": 0.0, "loss": 3.0}
