"""The incremental experiment: fine-tune on a small set of all classes, test after every epoch (Table "cifar-incre")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hebblm.ranks import current
from hebblm.vision.backbones import Classifier
from hebblm.vision.new_classes.learning import (
    features_of,
    frozen_head,
    learn_epoch,
    restore,
    rmsprop,
    training_tensors,
)
from hebblm.vision.new_classes.methods import METHODS, Method, given_values, methods_of
from hebblm.vision.new_classes.pretraining import Pretrained, Pretraining
from hebblm.vision.new_classes.reading import Block, Reading, Remembered, read
from hebblm.vision.new_classes.setup import ClassSetup, Outcome, Run
from hebblm.vision.new_classes.split import Increment, increment, predicted_order
from hebblm.vision.new_classes.tuning import Point, left_to_choose, tune_methods, tuned_once
from hebblm.vision.progress import stage
from hebblm.vision.seeds import divided, generator
from hebblm.vision.state import load_state, save_state
from hebblm.vision.tuning import best

QUERIES = 100  # adapted at a time
PREDICTIONS = "predictions."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the methods read after an epoch.

    Args:
        blocks: the pictures to predict.
        remembered: the increment's pairs, keys rebuilt.
    """

    blocks: tuple[Block, ...]
    remembered: Remembered

    @property
    def labels(self) -> Tensor:
        """Labels (n,) int64 of all blocks."""
        return torch.cat([block.labels for block in self.blocks])


def run_incremental(setup: ClassSetup) -> Outcome:
    """Run all methods with each seed and each ratio of imbalance.

    Raises:
        UserError: more asked for than the data set has, a run's state is damaged, or training diverged.
    """
    settings = setup.settings
    setup.check(settings.old_classes)
    predicted_order(setup.dataset, settings.increment.tested, setup.seeds[0])
    wanted = Pretraining.of(setup.dataset, settings, settings.old_classes, setup.seeds[0])
    increment(setup.dataset, wanted.parts, samples=settings.increment.samples, ratio=1, seed=setup.seeds[0])
    with current().in_turn():
        values, tried = _values(setup)
    runs = divided(
        [
            partial(_run_seed, setup, seed, ratio, values)
            for ratio in settings.increment.ratios
            for seed in setup.seeds
        ]
    )
    return Outcome(tuple(runs), {"1:1": tried}, None)


def _values(setup: ClassSetup) -> tuple[dict[str, Point], dict[str, Any] | None]:
    """Return the hyper-parameters and what was tried for them, None where nothing was left to choose."""
    settings, seed = setup.settings, setup.seeds[0]
    if not left_to_choose(settings.increment.lr, settings.adaptation):
        return given_values(settings.increment.lr[0], settings.adaptation), None
    start = setup.start(seed, settings.old_classes)
    run = setup.run_of(start, seed, scenario="incremental")
    return tuned_once(setup.cache, "incremental", run, lambda: _tune(setup, start, seed))


def _tune(setup: ClassSetup, start: Pretrained, seed: int) -> tuple[dict[str, Point], dict[str, Any]]:
    """Fine-tune with every rate and adapt with the best one, scored on held-out pictures after the reported epochs."""
    settings, held_out = setup.settings, start.pretraining.parts.held_out
    drawn = _draw(setup, start, seed, ratio=1)
    kept: dict[float, list[Snapshot]] = {}
    tried = []
    for lr in settings.increment.lr:
        classifier = start.copy(setup.device)
        kept[lr] = []
        epochs = _fine_tuned(
            setup, start, classifier, rmsprop(classifier, lr), drawn, seed, title=f"tune, lr {lr:g}"
        )
        for epoch in epochs:
            if epoch in settings.increment.reported:
                kept[lr].append(_snapshot(setup, start, classifier, drawn, "train", held_out))
        plain = methods_of(("parametric",), {}, settings.adaptation)
        tried.append({"lr": lr, **_scores(setup, kept[lr], plain)["parametric"]})
    chosen = best(tried)
    snapshots = kept[chosen.values["lr"]]
    return tune_methods(lambda methods: _scores(setup, snapshots, methods), chosen, settings.adaptation)


def _scores(
    setup: ClassSetup, snapshots: list[Snapshot], methods: Mapping[str, Method]
) -> dict[str, dict[str, float]]:
    """Return accuracy and loss in nats of methods over several epochs alike."""
    labels = snapshots[0].labels
    readings = [_read(setup, snapshot, methods, f"tune, {len(methods)} points") for snapshot in snapshots]
    scores = {name: [made[name].score(labels) for made in readings] for name in methods}
    return {
        name: {key: sum(score[key] for score in each) / len(each) for key in each[0]}
        for name, each in scores.items()
    }


def _run_seed(setup: ClassSetup, seed: int, ratio: int, values: dict[str, Point]) -> Run:
    """Return what one seed gives at one ratio, going on after the last epoch that the state has."""
    settings = setup.settings
    start = setup.start(seed, settings.old_classes)
    drawn = _draw(setup, start, seed, ratio)
    order = predicted_order(setup.dataset, settings.increment.tested, seed)
    run = setup.run_of(start, seed, ratio=ratio, values=values)
    path = setup.state / f"incremental-{ratio}-seed-{seed}.safetensors"
    title = f"seed {seed}, {ratio}:1"
    classifier = start.copy(setup.device)
    optimizer = rmsprop(classifier, values["parametric"]["lr"])
    predictions: dict[str, Tensor] = {}
    stabilized, done = dict.fromkeys(METHODS, 0), 0
    found = load_state(path, run)
    if found is not None:
        tensors, record = found
        predictions = {name: tensors.pop(f"{PREDICTIONS}{name}") for name in METHODS}
        restore(classifier, optimizer, tensors)
        stabilized, done = record["stabilized"], record["epochs"]
    methods = methods_of(METHODS, values, settings.adaptation)
    for epoch in _fine_tuned(setup, start, classifier, optimizer, drawn, seed, title=title, done=done):
        snapshot = _snapshot(setup, start, classifier, drawn, "test", order)
        for name, reading in _read(setup, snapshot, methods, f"{title}, epoch {epoch}").items():
            before = predictions.get(name, reading.classes.new_empty(0, len(order)))
            predictions[name] = torch.cat([before, reading.classes.unsqueeze(0)])
            stabilized[name] += reading.stabilized
        tensors = training_tensors(classifier, optimizer)
        tensors |= {f"{PREDICTIONS}{name}": made for name, made in predictions.items()}
        save_state(path, tensors, {"run": run, "epochs": epoch, "stabilized": stabilized})
    parts = start.pretraining.parts
    return Run(
        f"{ratio}:1",
        seed,
        values,
        start.record,
        parts.new,
        setup.dataset.test.labels[order],
        predictions,
        stabilized,
        {"test": order, "increment": drawn.samples, "fewer": drawn.fewer, **parts.tensors()},
    )


def _draw(setup: ClassSetup, start: Pretrained, seed: int, ratio: int) -> Increment:
    """Return the increment of a seed."""
    return increment(
        setup.dataset,
        start.pretraining.parts,
        samples=setup.settings.increment.samples,
        ratio=ratio,
        seed=seed,
    )


def _fine_tuned(
    setup: ClassSetup,
    start: Pretrained,
    classifier: Classifier,
    optimizer: torch.optim.Optimizer,
    drawn: Increment,
    seed: int,
    *,
    title: str,
    done: int = 0,
) -> Iterator[int]:
    """Train the network epoch by epoch, and yield the number of epochs after each."""
    settings = setup.settings
    pictures = start.pictures("train", setup.device)
    for epoch in range(done, settings.increment.epochs):
        with stage(f"{title}, epoch {epoch + 1}: learn", len(drawn.samples)) as progress:
            learn_epoch(
                classifier,
                optimizer,
                pictures,
                drawn.samples,
                batch_size=settings.increment.batch_size,
                padding=settings.pretraining.padding,
                flip=settings.pretraining.flip,
                generator=generator(seed, f"epoch {epoch} of the increment"),
                progress=progress,
            )
        yield epoch + 1


def _snapshot(
    setup: ClassSetup, start: Pretrained, classifier: Classifier, drawn: Increment, part: str, order: Tensor
) -> Snapshot:
    """Return what the network makes of the pictures to predict, and of those it remembers."""
    train, tested = start.pictures("train", setup.device), start.pictures(part, setup.device)
    head = frozen_head(classifier)
    hidden = features_of(classifier, tested, order)
    labels = tested.labels[order.to(setup.device)]
    own = train.labels[drawn.samples.to(setup.device)]
    parts = start.pretraining.parts
    # Each picture counts once: the increment's pictures of old classes are among those of pre-training.
    seen = torch.unique(torch.cat([parts.train, drawn.samples]))
    counts = torch.bincount(setup.dataset.train.labels[seen], minlength=len(parts.new)).to(setup.device)
    return Snapshot(
        tuple(
            Block(head, some, right)
            for some, right in zip(torch.split(hidden, QUERIES), torch.split(labels, QUERIES), strict=True)
        ),
        Remembered(features_of(classifier, train, drawn.samples), own, counts, parts.new.to(setup.device)),
    )


def _read(
    setup: ClassSetup, snapshot: Snapshot, methods: Mapping[str, Method], title: str
) -> dict[str, Reading]:
    """Let methods predict the pictures of a snapshot; nothing is observed."""
    with stage(f"{title}: adapt", len(snapshot.labels)) as progress:
        return read(
            snapshot.blocks,
            snapshot.remembered,
            methods,
            k=setup.settings.adaptation.k,
            observes=False,
            progress=progress,
        )
