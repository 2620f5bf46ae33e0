"""The incremental experiment: fine-tune on a small set of all classes, test after every epoch (Table "cifar-incre")."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from hebblm.vision.new_classes.learning import Training, features_of, frozen_head, rmsprop
from hebblm.vision.new_classes.methods import METHODS, methods_of
from hebblm.vision.new_classes.pretraining import Pretrained, Pretraining
from hebblm.vision.new_classes.reading import PictureBlock, Remembered, Snapshot
from hebblm.vision.new_classes.setup import ClassSetup, as_step
from hebblm.vision.new_classes.split import increment, predicted_order
from hebblm.vision.new_classes.tuning import Point, tuned
from hebblm.vision.result import Outcome, SeedRun
from hebblm.vision.seeds import divided, generator
from hebblm.vision.setup import stage
from hebblm.vision.state import Step, summed, take_steps

QUERIES = 100  # adapted at a time


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
        classifier, pictures = start.copy(), start.pictures("train")
        self.training = Training(classifier, rmsprop(classifier, lr), pictures, setup.settings.pretraining)
        self._batch_size, self._start, self._seed = setup.settings.increment.batch_size, start, seed

    def learn(self, epoch: int, title: str) -> None:
        """Train for an epoch, counted from 0."""
        purpose = f"epoch {epoch} of the increment"
        with stage(f"{title}, epoch {epoch + 1}: learn", len(self.drawn.samples)) as progress:
            self.training.epoch(
                self.drawn.samples,
                batch_size=self._batch_size,
                generator=generator(self._seed, purpose),
                progress=progress,
            )

    def snapshot(self, part: str, order: Tensor) -> Snapshot:
        """Return what the network makes of the pictures to predict, and of those it remembers."""
        network, train = self.training.classifier, self.training.pictures
        tested, device = self._start.pictures(part), self._start.device
        parts, samples = self._start.pretraining.parts, self.drawn.samples
        head, hidden = frozen_head(network), features_of(network, tested, order)
        blocks = tuple(
            PictureBlock(head, some, tested.labels[index.to(device)])
            for some, index in zip(torch.split(hidden, QUERIES), torch.split(order, QUERIES), strict=True)
        )
        # Each picture counts once: the increment's pictures of old classes are among those of pre-training.
        seen = torch.unique(torch.cat([parts.train, samples]))
        counts = torch.bincount(train.labels[seen.to(device)], minlength=len(parts.new))
        keys, labels = features_of(network, train, samples), train.labels[samples.to(device)]
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
    learn = partial(_learn_held_out, setup)
    values, tried = tuned(setup, "incremental", settings.lr, classes, learn, observes=False)
    runs = divided(
        [partial(_run_seed, setup, seed, ratio, values) for ratio in settings.ratios for seed in setup.seeds]
    )
    return Outcome(tuple(runs), {"1:1": tried})


def _learn_held_out(setup: ClassSetup, start: Pretrained, lr: float) -> list[Snapshot]:
    """Fine-tune at a rate; the held-out pictures are read after the reported epochs."""
    settings = setup.settings.increment
    held_out = start.pretraining.parts.held_out[: settings.tested]  # in random order
    tuning = FineTuning(setup, start, setup.seeds[0], ratio=1, lr=lr)
    snapshots = []
    for epoch in range(settings.epochs):
        tuning.learn(epoch, f"tune, lr {lr:g}")
        if epoch + 1 in settings.reported:
            snapshots.append(tuning.snapshot("train", held_out))
    return snapshots


def _run_seed(setup: ClassSetup, seed: int, ratio: int, values: dict[str, Point]) -> SeedRun:
    """Return what one seed gives at one ratio, going on after the last epoch that the state has."""
    settings = setup.settings.increment
    start = setup.start(seed, setup.settings.old_classes)
    order = predicted_order(setup.dataset, settings.tested, seed)
    tuning = FineTuning(setup, start, seed, ratio=ratio, lr=values["parametric"]["lr"])
    methods = methods_of(METHODS, values, setup.settings.adaptation)
    title = f"seed {seed}, {ratio}:1"

    def step(epoch: int) -> Step:
        tuning.learn(epoch, title)
        snapshot = tuning.snapshot("test", order)
        return as_step(setup.read(snapshot, methods, f"{title}, epoch {epoch + 1}", observes=False))

    path = setup.state / f"incremental-{ratio}-seed-{seed}.state.safetensors"
    run = setup.run_of(start, seed, ratio=ratio, values=values)
    predictions, taken = take_steps(path, run, settings.epochs, step, learner=tuning.training)
    own = tuning.drawn
    drawn = {"test": order, "increment": own.samples, "fewer": own.fewer, **vars(start.pretraining.parts)}
    labels = setup.dataset.test.labels[order]
    return SeedRun(seed, values, labels, predictions, summed(taken), drawn, f"{ratio}:1", start.about)
