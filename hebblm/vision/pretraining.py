"""A backbone and its head learn the old classes, once for all experiments that ask for the same."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm2d

from hebblm.errors import UserError
from hebblm.io.files import atomic_path, hash_of, read_json, sha256, write_json
from hebblm.io.installation import models_path
from hebblm.io.locks import file_lock
from hebblm.io.tensors import read_tensors, write_tensors
from hebblm.vision.backbones import Classifier, build_classifier
from hebblm.vision.data import ImageDataset
from hebblm.vision.learning import (
    Pictures,
    Training,
    batches,
    features_of,
    one_cycle,
    statistics,
)
from hebblm.vision.settings import ClassSettings, Precision, PretrainingSettings
from hebblm.vision.split import Split, split
from hebblm.vision.state import KIND, TRAINING, generator, load_state, program, save_state, stage

FOLDER = "vision"
MODEL_FILE = "model.safetensors"
RECORD_FILE = "pretraining.json"
SAVE_SECONDS = 60.0  # least time between two states on disk
SHARED_SEED = 1


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Identity of a pre-training: everything that decides about its numbers."""

    dataset: ImageDataset
    settings: ClassSettings  # backbone, precision, rates and epochs are read
    parts: Split
    seed: int  # of the weights and the order

    @classmethod
    def of(
        cls, dataset: ImageDataset, settings: ClassSettings, old_classes: int, seed: int
    ) -> Pretraining:
        number = SHARED_SEED if settings.pretrainings == "shared" else seed
        return cls(
            dataset, settings, split(dataset, old_classes, settings.held_out, number), number
        )

    @property
    def run(self) -> str:
        data = {"train": hash_of(self.parts.train.tolist()), "data": dict(self.dataset.sha256)}
        return hash_of({**self._asked, **data, "program": program(*TRAINING)})

    @property
    def shipped(self) -> Path:
        """Where it is if it comes with hebblm, whatever archive the pictures and program the
        weights are of.
        """
        train = self.dataset.train
        learned = hashlib.sha256()
        for values in (train.pixels[self.parts.train], train.labels[self.parts.train]):
            learned.update(values.contiguous().numpy().tobytes())
        return (
            models_path()
            / FOLDER
            / self._name(hash_of({**self._asked, "learned": learned.hexdigest()}))
        )

    @property
    def cached(self) -> str:
        return self._name(self.run)

    def _name(self, number: str) -> str:
        return f"{self.settings.backbone}-{len(self.parts.old_classes)}-{number}"

    @property
    def _asked(self) -> dict[str, Any]:
        return {
            "backbone": self.settings.backbone,
            "precision": self.settings.precision,
            "settings": asdict(self.settings.pretraining),
            "old": self.parts.old_classes,
            "seed": self.seed,
        }

    def on(self, device: torch.device) -> Pretraining:
        """The same with the precision that ``auto`` means on a device."""
        if self.settings.precision != "auto":
            return self
        kind: Precision = "bfloat16" if device.type == "cuda" else "float32"
        return replace(self, settings=replace(self.settings, precision=kind))

    def untrained(self, device: torch.device) -> Classifier:
        """The network before training, with one output for every class, on a device.

        Its maps are in the order that convolutions are fastest with.
        """
        classifier = build_classifier(self.settings.backbone, self.dataset.classes, self.seed)
        placed: Classifier = classifier.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        placed.reduced = self.settings.precision == "bfloat16"
        return placed


@dataclass(frozen=True, slots=True, eq=False)
class Pretrained:
    """A trained network and where it comes from."""

    pretraining: Pretraining
    classifier: Classifier  # not to be changed; see :meth:`copy`
    mean: Tensor  # (3,) see :class:`Pictures`
    deviation: Tensor  # (3,)
    record: Mapping[str, Any]  # what a result says about it: epochs, held-out accuracy, seconds
    device: torch.device

    @property
    def parts(self) -> Split:
        return self.pretraining.parts

    def copy(self) -> Classifier:
        other = self.pretraining.untrained(self.device)
        other.load_state_dict(self.classifier.state_dict())
        return other

    @property
    def about(self) -> dict[str, Any]:
        return {"old_classes": self.parts.old_classes, "pretraining": dict(self.record)}

    def pictures(self, part: str) -> Pictures:
        """The training or the test part as this network reads it."""
        if part == "train":
            images = self.pretraining.dataset.train
        else:
            images = self.pretraining.dataset.test
        return Pictures.of(images, self.mean, self.deviation, self.device)


def pretrained(wanted: Pretraining, cache: Path, device: torch.device) -> Pretrained:
    """A pre-trained network that ships, or from the cache, trained first if it is not there, or to
    its end.

    A network of the same precision that was trained on another device is taken as it is.
    """
    wanted = wanted.on(device)
    if wanted.shipped.exists():
        return _load(wanted, wanted.shipped, device, "install hebblm again")
    folder = cache / FOLDER / wanted.cached
    state = cache / FOLDER / f"{wanted.cached}.state.safetensors"
    if not folder.exists():
        with file_lock(folder, f"the pre-training of {wanted.settings.backbone}"):
            if not folder.exists():  # another process may have ended it meanwhile
                tensors, record = _train(wanted, state, device)
                with atomic_path(folder, directory=True) as temporary:
                    write_tensors(temporary / MODEL_FILE, tensors, KIND, {"run": wanted.run})
                    record["file_sha256"] = sha256(temporary / MODEL_FILE)
                    write_json(temporary / RECORD_FILE, record, seal=True)
    state.unlink(missing_ok=True)
    return _load(wanted, folder, device, f"delete {folder} to pre-train anew")


def _load(wanted: Pretraining, folder: Path, device: torch.device, remedy: str) -> Pretrained:
    record = read_json(folder / RECORD_FILE)
    path = folder / MODEL_FILE
    if (
        not path.exists()
        or not isinstance(record, dict)
        or record.get("file_sha256") != sha256(path)
    ):
        raise UserError(f"{path} is missing or was altered; {remedy}")
    tensors, _ = read_tensors(path, KIND, remedy)
    mean, deviation = tensors.pop("mean"), tensors.pop("deviation")
    classifier = wanted.untrained(device)
    classifier.load_state_dict(tensors)
    return Pretrained(wanted, classifier, mean, deviation, record, device)


def _train(
    wanted: Pretraining, path: Path, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train to the end, or go on after the last epoch that ``path`` has; return what is kept and
    its record.
    """
    settings = wanted.settings.pretraining
    samples = wanted.parts.train
    mean, deviation = statistics(wanted.dataset.train, samples)
    classifier = wanted.untrained(device)
    pictures = Pictures.of(wanted.dataset.train, mean, deviation, device)
    optimizer = torch.optim.SGD(
        classifier.parameters(),
        lr=settings.lr[0],
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    training = Training(classifier, optimizer, pictures, settings)
    done = 0
    seconds = 0.0
    state = load_state(path, wanted.run, remedy="delete {path} to start anew")
    if state is not None:
        tensors, record = state
        training.load_state_dict(tensors)
        done = record["epochs"]
        seconds = record["seconds"]
    epochs = sum(settings.epochs)
    steps = len(list(batches(samples, settings.batch_size)))
    title = f"pre-train {wanted.settings.backbone} on {len(wanted.parts.old_classes)} classes"
    with stage(title, (epochs - done) * len(samples)) as progress:
        begin = saved = time.perf_counter()
        for epoch in range(done, epochs):
            training.epoch(
                samples,
                batch_size=settings.batch_size,
                generator=generator(wanted.seed, f"epoch {epoch} of pre-training"),
                lr=partial(rate_at, settings, epoch, steps=steps),
                progress=progress,
            )
            now = time.perf_counter()
            if now - saved >= SAVE_SECONDS and epoch + 1 < epochs:
                record = {"run": wanted.run, "epochs": epoch + 1, "seconds": seconds + now - begin}
                save_state(path, training.state_dict(), record)
                saved = time.perf_counter()
        seconds += time.perf_counter() - begin
    kept = as_shipped(classifier)
    classifier.load_state_dict(kept)  # what is said of it holds for what is kept
    held_out = wanted.parts.held_out
    old = held_out[~wanted.parts.new[wanted.dataset.train.labels[held_out]]]
    predicted = classifier.head().logits(features_of(classifier, pictures, old)).argmax(1).cpu()
    return {**kept, "mean": mean, "deviation": deviation}, {
        "run": wanted.run,
        "backbone": wanted.settings.backbone,
        "precision": "bfloat16" if classifier.reduced else "float32",
        "parameters": sum(parameter.numel() for parameter in classifier.parameters()),
        "seed": wanted.seed,
        "old_classes": wanted.parts.old_classes,
        "pictures": len(samples),
        "settings": json.loads(json.dumps(asdict(settings))),
        # among all outputs
        "held_out_top1": float((predicted == wanted.dataset.train.labels[old]).double().mean()),
        "device": device.type,
        "seconds": seconds,
    }


def rate_at(settings: PretrainingSettings, epoch: int, step: int, steps: int) -> float:
    """The learning rate of a step of an epoch, both counted from 0, epochs over all phases."""
    if settings.schedule == "steps":
        for epochs, lr in zip(settings.epochs, settings.lr, strict=True):
            if epoch < epochs:
                return lr
            epoch -= epochs
        raise ValueError(f"epoch {epoch} is beyond the last phase")
    done = (epoch * steps + step) / (settings.epochs[0] * steps)
    return one_cycle(settings.lr[0], done)


def as_shipped(classifier: Classifier) -> dict[str, Tensor]:
    """The weights as they are kept, the fewest bytes that lose nothing which a run can tell.

    Convolutions and head are float16. Norms stay float32: their statistics may be beyond float16.
    """
    norms = tuple(
        f"{name}." for name, layer in classifier.named_modules() if isinstance(layer, BatchNorm2d)
    )
    state = classifier.state_dict()
    for name, value in state.items():
        if not name.startswith(norms):
            state[name] = value.to(torch.float16)
    return dict(state)
