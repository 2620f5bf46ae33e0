"""A backbone and its head learn the old classes, once for all experiments that ask for the same."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import atomic_path, hash_of, read_json, sha256, write_json
from hebblm.installation import models_path
from hebblm.locks import held
from hebblm.tensors import read_tensors, write_tensors
from hebblm.vision.backbones.catalogue import build_classifier
from hebblm.vision.backbones.classifier import Classifier
from hebblm.vision.data.images import ImageDataset
from hebblm.vision.new_classes.learning import Training, batches, features_of
from hebblm.vision.new_classes.pictures import Pictures, statistics
from hebblm.vision.new_classes.settings import ClassSettings, Precision, PretrainingSettings
from hebblm.vision.new_classes.split import Split, split
from hebblm.vision.seeds import generator
from hebblm.vision.setup import program, stage
from hebblm.vision.state import KIND, load_state, save_state

FOLDER = "vision"
MODEL_FILE, RECORD_FILE = "model.safetensors", "pretraining.json"
SAVE_SECONDS = 60.0
SHARED_SEED = 1
PROGRAM = (
    "vision/backbones", "vision/data", "vision/seeds.py",
    *(f"vision/new_classes/{name}.py" for name in ("learning", "pictures", "pretraining", "split")),
)  # fmt: skip
"""Parts of the program that a pre-training depends on."""
WARM_UP = 0.25  # share of onecycle's steps in which the rate rises
START = 0.04  # of the peak, where onecycle begins


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Identity of a pre-training: everything that decides about its numbers.

    Args:
        dataset: the pictures.
        settings: backbone, precision, rates and epochs are read.
        parts: classes and pictures.
        seed: of the weights and the order.
    """

    dataset: ImageDataset
    settings: ClassSettings
    parts: Split
    seed: int

    @classmethod
    def of(cls, dataset: ImageDataset, settings: ClassSettings, old_classes: int, seed: int) -> Pretraining:
        """Return what a seed of an experiment starts from.

        Raises:
            UserError: more classes or pictures asked for than there are.
        """
        own = SHARED_SEED if settings.pretrainings == "shared" else seed
        parts = split(dataset, old_classes, settings.held_out, own)
        return cls(dataset, settings, parts, own)

    @property
    def run(self) -> str:
        """Return a hash of it."""
        data = {"train": hash_of(self.parts.train.tolist()), "data": dict(self.dataset.sha256)}
        return hash_of({**self._asked, **data, "program": program(*PROGRAM)})

    @property
    def shipped(self) -> Path:
        """Return where it is if it comes with hebblm, whatever archive the pictures and program the weights are of."""
        train, learned = self.dataset.train, hashlib.sha256()
        for values in (train.pixels[self.parts.train], train.labels[self.parts.train]):
            learned.update(values.contiguous().numpy().tobytes())
        own = hash_of({**self._asked, "learned": learned.hexdigest()})
        return models_path() / FOLDER / f"{self.settings.backbone}-{len(self.parts.old_classes)}-{own}"

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
        """Return the same with the precision that ``auto`` means on a device."""
        kind: Precision = "bfloat16" if device.type == "cuda" else "float32"
        auto = self.settings.precision == "auto"
        return replace(self, settings=replace(self.settings, precision=kind)) if auto else self


@dataclass(frozen=True, slots=True, eq=False)
class Pretrained:
    """A trained network and where it comes from.

    Args:
        pretraining: what it was asked for.
        classifier: not to be changed; see :meth:`copy`.
        mean: (3,) see :class:`Pictures`.
        deviation: (3,) see :class:`Pictures`.
        record: what a result says about it: epochs, held-out accuracy, seconds.
        device: where it computes.
    """

    pretraining: Pretraining
    classifier: Classifier
    mean: Tensor
    deviation: Tensor
    record: Mapping[str, Any]
    device: torch.device

    def copy(self) -> Classifier:
        """Return a network of the same weights that may be trained on."""
        other = _untrained(self.pretraining, self.device)
        other.load_state_dict(self.classifier.state_dict())
        return other

    @property
    def about(self) -> dict[str, Any]:
        """What a result says about a seed that starts from it."""
        return {"old_classes": self.pretraining.parts.old_classes, "pretraining": dict(self.record)}

    def pictures(self, part: str) -> Pictures:
        """Return the training or the test part as this network reads it."""
        images = self.pretraining.dataset.train if part == "train" else self.pretraining.dataset.test
        return Pictures.of(images, self.mean, self.deviation, self.device)


def pretrained(
    wanted: Pretraining, cache: Path, device: torch.device, *, save_seconds: float = SAVE_SECONDS
) -> Pretrained:
    """Return a pre-trained network that ships, or from the cache, trained first if it is not there, or to its end.

    Args:
        wanted: which.
        cache: folder of all caches.
        device: where to train; a network of the same precision that was trained elsewhere is taken as it is.
        save_seconds: least time between two states on disk.

    Raises:
        UserError: training diverged, or what the cache has is damaged.
    """
    wanted = wanted.on(device)
    if wanted.shipped.exists():
        return _load(wanted, wanted.shipped, device, "install hebblm again")
    name = f"{wanted.settings.backbone}-{len(wanted.parts.old_classes)}-{wanted.run}"
    folder, state = cache / FOLDER / name, cache / FOLDER / f"{name}.state.safetensors"
    if not folder.exists():
        with held(folder, f"the pre-training of {wanted.settings.backbone}"):
            if not folder.exists():  # another process may have ended it meanwhile
                tensors, record = _train(wanted, state, device, save_seconds)
                with atomic_path(folder, directory=True) as temporary:
                    write_tensors(temporary / MODEL_FILE, tensors, KIND, {"run": wanted.run})
                    record["file_sha256"] = sha256(temporary / MODEL_FILE)
                    write_json(temporary / RECORD_FILE, record, seal=True)
    state.unlink(missing_ok=True)
    return _load(wanted, folder, device, f"delete {folder} to pre-train anew")


def _load(wanted: Pretraining, folder: Path, device: torch.device, remedy: str) -> Pretrained:
    """Read a network and check that it is the one that was written."""
    record = read_json(folder / RECORD_FILE)
    path = folder / MODEL_FILE
    if not path.exists() or not isinstance(record, dict) or record.get("file_sha256") != sha256(path):
        raise UserError(f"{path} is missing or was altered; {remedy}")
    tensors, _ = read_tensors(path, KIND, remedy)
    mean, deviation = tensors.pop("mean"), tensors.pop("deviation")
    classifier = _untrained(wanted, device)
    classifier.load_state_dict(tensors)
    return Pretrained(wanted, classifier, mean, deviation, record, device)


def _train(
    wanted: Pretraining, path: Path, device: torch.device, save_seconds: float
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train to the end, or go on after the last epoch that ``path`` has; return what is kept and its record."""
    settings, samples = wanted.settings.pretraining, wanted.parts.train
    mean, deviation = statistics(wanted.dataset.train, samples)
    classifier, pictures = _untrained(wanted, device), Pictures.of(wanted.dataset.train, mean, deviation, device)
    optimizer = torch.optim.SGD(
        classifier.parameters(),
        lr=settings.lr[0],
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    training = Training(classifier, optimizer, pictures, settings)
    done, seconds = 0, 0.0
    found = load_state(path, wanted.run, remedy="delete {path} to start anew")
    if found is not None:
        tensors, record = found
        training.restore(tensors)
        done, seconds = record["epochs"], record["seconds"]
    epochs, steps = sum(settings.epochs), len(list(batches(samples, settings.batch_size)))
    title = f"pre-train {wanted.settings.backbone} on {len(wanted.parts.old_classes)} classes"
    with stage(title, (epochs - done) * len(samples)) as progress:
        begin = saved = time.perf_counter()
        for epoch in range(done, epochs):
            training.epoch(
                samples,
                batch_size=settings.batch_size,
                generator=generator(wanted.seed, f"epoch {epoch} of pre-training"),
                lr=lambda step, epoch=epoch: rate_at(settings, epoch, step, steps),  # type: ignore[misc]
                progress=progress,
            )
            now = time.perf_counter()
            if now - saved >= save_seconds and epoch + 1 < epochs:
                spent = seconds + now - begin
                record = {"run": wanted.run, "epochs": epoch + 1, "seconds": spent}
                save_state(path, training.tensors(), record)
                saved = time.perf_counter()
        seconds += time.perf_counter() - begin
    return {**classifier.state_dict(), "mean": mean, "deviation": deviation}, {
        "run": wanted.run,
        "backbone": wanted.settings.backbone,
        "precision": "bfloat16" if classifier.reduced else "float32",
        "parameters": sum(parameter.numel() for parameter in classifier.parameters()),
        "seed": wanted.seed,
        "old_classes": wanted.parts.old_classes,
        "pictures": len(samples),
        "settings": json.loads(json.dumps(asdict(settings))),
        "held_out_top1": _held_out(wanted, classifier, pictures),
        "device": device.type,
        "seconds": seconds,
    }


def rate_at(settings: PretrainingSettings, epoch: int, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    Args:
        settings: phases and schedule.
        epoch: counted from 0 over all phases.
        step: within the epoch, counted from 0.
        steps: of an epoch.
    """
    if settings.schedule == "steps":
        for epochs, lr in zip(settings.epochs, settings.lr, strict=True):
            if epoch < epochs:
                return lr
            epoch -= epochs
        raise ValueError(f"epoch {epoch} is beyond the last phase")
    done = (epoch * steps + step) / (settings.epochs[0] * steps)
    peak = settings.lr[0]
    if done < WARM_UP:
        return peak * (START + (1 - START) * done / WARM_UP)
    return peak / 2 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _held_out(wanted: Pretraining, classifier: Classifier, pictures: Pictures) -> float:
    """Return the share of the old classes' held-out pictures that is classified rightly, among all outputs."""
    held_out = wanted.parts.held_out
    old = held_out[~wanted.parts.new[wanted.dataset.train.labels[held_out]]]
    made = classifier.head().logits(features_of(classifier, pictures, old)).argmax(1).cpu()
    return float((made == wanted.dataset.train.labels[old]).double().mean())


def _untrained(wanted: Pretraining, device: torch.device) -> Classifier:
    """Return the network before training, with one output for every class, on a device.

    Its maps are in the order that convolutions are fastest with.
    """
    classifier = build_classifier(wanted.settings.backbone, wanted.dataset.classes, wanted.seed)
    placed: Classifier = classifier.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    placed.reduced = wanted.settings.precision == "bfloat16"
    return placed
