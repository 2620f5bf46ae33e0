from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hebblm.errors import UserError
from hebblm.vision import pretraining
from hebblm.vision import state as set_up
from hebblm.vision.data import load_cifar100
from hebblm.vision.learning import Training, features_of
from hebblm.vision.pretraining import Pretrained, Pretraining, pretrained
from hebblm.vision.scales import CLASS_SCALES as SCALES
from hebblm.vision.state import program

from .samples import CPU, TINY_CLASSES, after, classes

DATA = classes()
learn = Training.epoch


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "SAVE_SECONDS", 0.0)


def wanted(**changes: object) -> Pretraining:
    return Pretraining.of(DATA, replace(TINY_CLASSES, **changes), 3, 1)  # type: ignore[arg-type]


def train(cache: Path, what: Pretraining | None = None) -> Pretrained:
    return pretrained(what or wanted(), cache, CPU)


def same(one: Pretrained, other: Pretrained) -> bool:
    weights = other.classifier.state_dict()
    return all(
        torch.equal(value, weights[name]) for name, value in one.classifier.state_dict().items()
    )


def test_learns_the_old_classes(tmp_path: Path) -> None:
    found = train(tmp_path)
    assert found.record["held_out_top1"] > 0.8
    assert found.record["old_classes"] == wanted().parts.old_classes
    assert found.record["pictures"] == 60
    assert found.classifier.output.out_features == 6


@pytest.mark.parametrize("finished", [2])
def test_goes_on_bit_for_bit(
    finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Training, "epoch", after(finished, learn))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parted")
    calls: list[int] = []

    def counted(*args: object, **options: object) -> None:
        calls.append(1)
        learn(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Training, "epoch", counted)
    parted = train(tmp_path / "parted")
    assert len(calls) == 3 - finished
    assert same(whole, parted)
    assert not list(tmp_path.rglob("*.state.safetensors"))


def test_trains_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)

    def never(*args: object, **options: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Training, "epoch", never)
    again = train(tmp_path)
    assert same(first, again)
    assert again.record == first.record
    with pytest.raises(AssertionError, match="trained again"):
        train(tmp_path, wanted(held_out=5))


def test_weights_are_kept_in_half_the_bytes_and_norms_as_they_are(tmp_path: Path) -> None:
    found = train(tmp_path)
    kept = load_file(next(tmp_path.rglob("model.safetensors")))
    for name in ("output.weight", "output.bias", "backbone.layers.0.weight"):
        assert kept[name].dtype == torch.float16
    for name in ("weight", "bias", "running_mean", "running_var"):
        assert kept[f"backbone.layers.1.{name}"].dtype == torch.float32
    for name, value in found.classifier.state_dict().items():
        assert torch.equal(value, kept[name].to(value.dtype)), name
        assert value.dtype in (torch.float32, torch.int64)
    # What the record says holds for the network that is kept.
    old = found.parts.held_out[~found.parts.new[DATA.train.labels[found.parts.held_out]]]
    made = found.classifier.head().logits(
        features_of(found.classifier, found.pictures("train"), old)
    )
    right = (made.argmax(1) == DATA.train.labels[old]).double().mean()
    assert found.record["held_out_top1"] == pytest.approx(float(right))


def test_takes_the_network_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)
    monkeypatch.setattr(pretraining, "models_path", lambda: tmp_path)
    monkeypatch.setattr(pretraining, "program", lambda *_: "a later one")
    next(tmp_path.glob("vision/*-3-*")).rename(wanted().on(CPU).shipped)
    assert same(first, train(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()
    longer = wanted(pretraining=replace(TINY_CLASSES.pretraining, epochs=(2, 2)))
    assert not longer.on(CPU).shipped.exists()
    (wanted().on(CPU).shipped / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"model.safetensors is missing or was altered; install hebblm again"
    ):
        train(tmp_path)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif("HEBBLM_DATA" not in os.environ, reason="HEBBLM_DATA is not set")
def test_the_network_of_the_small_scale_ships(tmp_path: Path) -> None:
    dataset = load_cifar100([Path(os.environ["HEBBLM_DATA"])])
    found = pretrained(Pretraining.of(dataset, SCALES["small"], 50, 1), tmp_path, CPU)
    assert not list(tmp_path.iterdir())
    labels = found.pretraining.dataset.test.labels
    old = (~found.pretraining.parts.new[labels]).nonzero()[:200, 0]
    predicted = (
        found.classifier.head()
        .logits(features_of(found.classifier, found.pictures("test"), old))
        .argmax(1)
    )
    assert (predicted == labels[old]).double().mean() > 0.5


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + b"\1", lambda data: b""])
def test_refuses_an_altered_network(damage: object, tmp_path: Path) -> None:
    train(tmp_path)
    path = next(tmp_path.rglob("model.safetensors"))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(
        UserError, match=r"model.safetensors is missing or was altered; delete .* to pre-train anew"
    ):
        train(tmp_path)


def test_refuses_a_truncated_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        if list(tmp_path.rglob("*.state.safetensors")):
            raise KeyboardInterrupt
        learn(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Training, "epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    path = next(tmp_path.rglob("*.state.safetensors"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        UserError, match=r"state.safetensors is truncated or unreadable; delete .*safetensors"
    ):
        train(tmp_path)


@pytest.mark.parametrize("precision", ["auto", "bfloat16"])
def test_precision_is_that_of_the_settings(precision: str, tmp_path: Path) -> None:
    found = train(tmp_path, wanted(precision=precision))
    reduced = precision == "bfloat16"
    assert found.classifier.reduced == found.copy().reduced == reduced
    assert found.record["precision"] == ("bfloat16" if reduced else "float32")
    assert found.record["held_out_top1"] > 0.8


def test_whatever_decides_about_the_numbers_makes_another_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    longer = replace(TINY_CLASSES.pretraining, epochs=(2, 2))
    changes = (
        {"precision": "bfloat16"},
        {"backbone": "resnet50-w16"},
        {"pretraining": longer},
        {"held_out": 5},
    )
    runs = {wanted().run, *(wanted(**change).run for change in changes)}
    assert len(runs) == len(changes) + 1
    assert wanted(adaptation=replace(TINY_CLASSES.adaptation, k=3)).run == wanted().run
    cpu, gpu = (wanted(precision="auto").on(torch.device(name)) for name in ("cpu", "cuda"))
    assert cpu.run == wanted(precision="float32").run != gpu.run == wanted(precision="bfloat16").run
    plain = wanted().run
    monkeypatch.setattr(pretraining, "program", lambda *_: "other")
    assert wanted().run != plain


def test_a_program_is_the_text_of_its_parts_and_the_version_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part").mkdir()
    monkeypatch.setattr(set_up, "PACKAGE", tmp_path)
    found = set()
    for name, text in (("part/a.py", "1"), ("part/a.py", "2"), ("b.py", "3")):
        (tmp_path / name).write_text(text)
        found.add(
            program.__wrapped__("part", "b.py")
            if (tmp_path / "b.py").exists()
            else program.__wrapped__("part")
        )
    monkeypatch.setattr(torch, "__version__", "0")
    assert len({*found, program.__wrapped__("part", "b.py")}) == 4


def test_seeds_share_a_network_only_if_they_are_told_to() -> None:
    def runs(kind: str) -> set[str]:
        settings = replace(TINY_CLASSES, pretrainings=kind)  # type: ignore[arg-type]
        return {Pretraining.of(DATA, settings, 3, seed).run for seed in (1, 2, 3)}

    assert len(runs("own")) == 3
    assert len(runs("shared")) == 1
