"""The incremental experiment: fine-tune on a small set of all classes, test after every epoch (Table "cifar-incre")."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from hebblm.ranks import current
from hebblm.vision.new_classes.learning import (
    features_of,
    frozen_head,
    learn_epoch,
    restore,
    rmsprop,
    training_tensors,
)
from hebblm.vision.new_classes.methods import METHODS, methods_of
from hebblm.vision.new_classes.pretraining import Pretrained, Pretraining
from hebblm.vision.new_classes.reading import PictureBlock, Remembered, Snapshot
from hebblm.vision.new_classes.setup import ClassSetup, Outcome, SeedRun
from hebblm.vision.new_classes.split import increment, predicted_order
from hebblm.vision.new_classes.tuning import Learnt, Point, tuned
from hebblm.vision.seeds import divided, generator
from hebblm.vision.setup import stage
from hebblm.vision.state import load_state, save_state

QUERIES = 100  # adapted at a time
PREDICTIONS = "predictions."


class FineTuning:
    """A network that learns an increment.

    Args:
        setup: data and settings.
        start: the network before.
        seed: draws the increment and the order of its pictures.
        ratio: of imbalance.
        lr: learning rate.
    """

    def __init__(self, setup: ClassSetup, start: Pretrained, seed: int, *, ratio: int, lr: float) -> None:
        samples = setup.settings.increment.samples
        self.drawn = increment(setup.dataset, start.pretraining.parts, samples=samples, ratio=ratio, seed=seed)
        self.classifier = start.copy()
        self.optimizer = rmsprop(self.classifier, lr)
        self._settings, self._start, self._seed = setup.settings, start, seed
        self._pictures = start.pictures("train")

    def epochs(self, title: str, *, done: int = 0) -> Iterator[int]:
        """Train epoch by epoch, and yield the number of epochs after each."""
        settings = self._settings
        for epoch in range(done, settings.increment.epochs):
            with stage(f"{title}, epoch {epoch + 1}: learn", len(self.drawn.samples)) as progress:
                learn_epoch(
                    self.classifier,
                    self.optimizer,
                    self._pictures,
                    self.drawn.samples,
                    batch_size=settings.increment.batch_size,
                    padding=settings.pretraining.padding,
                    flip=settings.pretraining.flip,
                    generator=generator(self._seed, f"epoch {epoch} of the increment"),
                    progress=progress,
                )
            yield epoch + 1

    def snapshot(self, part: str, order: Tensor) -> Snapshot:
        """Return what the network makes of the pictures to predict, and of those it remembers."""
        train, tested, device = self._pictures, self._start.pictures(part), self._start.device
        parts, samples = self._start.pretraining.parts, self.drawn.samples
        head = frozen_head(self.classifier)
        blocks = tuple(
            PictureBlock(head, hidden, tested.labels[index.to(device)])
            for hidden, index in zip(
                torch.split(features_of(self.classifier, tested, order), QUERIES),
                torch.split(order, QUERIES),
                strict=True,
            )
        )
        # Each picture counts once: the increment's pictures of old classes are among those of pre-training.
        seen = torch.unique(torch.cat([parts.train, samples]))
        counts = torch.bincount(train.labels[seen.to(device)], minlength=len(parts.new))
        keys, labels = features_of(self.classifier, train, samples), train.labels[samples.to(device)]
        return Snapshot(blocks, Remembered(keys, labels, counts, parts.new.to(device)))


def run_incremental(setup: ClassSetup) -> Outcome:
    """Run all methods with each seed and each ratio of imbalance.

    Raises:
        UserError: more asked for than the data set has, a run's state is damaged, or training diverged.
    """
    settings, seed, classes = setup.settings.increment, setup.seeds[0], setup.settings.old_classes
    setup.check(classes)
    predicted_order(setup.dataset, settings.tested, seed)
    wanted = Pretraining.of(setup.dataset, setup.settings, classes, seed)
    increment(setup.dataset, wanted.parts, samples=settings.samples, ratio=1, seed=seed)
    with current().in_turn():
        learn = partial(_learn_held_out, setup)
        values, tried = tuned(setup, "incremental", settings.lr, classes, learn, observes=False)
    runs = divided(
        [partial(_run_seed, setup, seed, ratio, values) for ratio in settings.ratios for seed in setup.seeds]
    )
    return Outcome(tuple(runs), {"1:1": tried}, None)


def _learn_held_out(setup: ClassSetup, start: Pretrained) -> Learnt:
    """Fine-tune with every rate; the held-out pictures are read after the reported epochs."""
    settings = setup.settings.increment
    held_out = start.pretraining.parts.held_out[: settings.tested]  # in random order
    for lr in settings.lr:
        tuning = FineTuning(setup, start, setup.seeds[0], ratio=1, lr=lr)
        epochs = tuning.epochs(f"tune, lr {lr:g}")
        yield lr, [tuning.snapshot("train", held_out) for epoch in epochs if epoch in settings.reported]


def _run_seed(setup: ClassSetup, seed: int, ratio: int, values: dict[str, Point]) -> SeedRun:
    """Return what one seed gives at one ratio, going on after the last epoch that the state has."""
    start = setup.start(seed, setup.settings.old_classes)
    order = predicted_order(setup.dataset, setup.settings.increment.tested, seed)
    run = setup.run_of(start, seed, ratio=ratio, values=values)
    path = setup.state / f"incremental-{ratio}-seed-{seed}.safetensors"
    title = f"seed {seed}, {ratio}:1"
    tuning = FineTuning(setup, start, seed, ratio=ratio, lr=values["parametric"]["lr"])
    predictions: dict[str, Tensor] = {}
    stabilized, done = dict.fromkeys(METHODS, 0), 0
    found = load_state(path, run)
    if found is not None:
        tensors, record = found
        predictions = {name: tensors.pop(f"{PREDICTIONS}{name}") for name in METHODS}
        restore(tuning.classifier, tuning.optimizer, tensors)
        stabilized, done = record["stabilized"], record["epochs"]
    methods = methods_of(METHODS, values, setup.settings.adaptation)
    for epoch in tuning.epochs(title, done=done):
        predicted = setup.read(tuning.snapshot("test", order), methods, f"{title}, epoch {epoch}", observes=False)
        for name, each in predicted.items():
            before = predictions.get(name, each.classes.new_empty(0, len(order)))
            predictions[name] = torch.cat([before, each.classes.unsqueeze(0)])
            stabilized[name] += each.stabilized
        tensors = training_tensors(tuning.classifier, tuning.optimizer)
        tensors |= {f"{PREDICTIONS}{name}": made for name, made in predictions.items()}
        save_state(path, tensors, {"run": run, "epochs": epoch, "stabilized": stabilized})
    parts, drawn = start.pretraining.parts, tuning.drawn
    return SeedRun(
        f"{ratio}:1",
        seed,
        values,
        start.record,
        parts.new,
        setup.dataset.test.labels[order],
        predictions,
        stabilized,
        {"test": order, "increment": drawn.samples, "fewer": drawn.fewer, **vars(parts)},
    )
