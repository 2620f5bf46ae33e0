"""Online experiments: one pass over a stream of all classes.

They are the paper's Tables "cifar-online", "pretrain" and "ablation", and Fig. hyper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from torch import Tensor

from hebblm.vision.backbones.classifier import Classifier
from hebblm.vision.new_classes.learning import batches, features, frozen_head, learn, rmsprop
from hebblm.vision.new_classes.methods import METHODS, VARIANTS, methods_of
from hebblm.vision.new_classes.pictures import Pictures
from hebblm.vision.new_classes.pretraining import Pretrained
from hebblm.vision.new_classes.reading import PictureBlock, Snapshot
from hebblm.vision.new_classes.settings import SensitivitySettings
from hebblm.vision.new_classes.setup import ClassSetup, as_step, old_memory
from hebblm.vision.new_classes.split import predicted_order
from hebblm.vision.new_classes.tuning import Point, Tuned, tuned
from hebblm.vision.result import Outcome, SeedRun
from hebblm.vision.seeds import divided
from hebblm.vision.setup import stage
from hebblm.vision.state import Step, take_steps


def run_online(
    setup: ClassSetup,
    names: Sequence[str] = METHODS,
    *,
    old_classes: Sequence[int] = (),
    points: Mapping[str, Point] = MappingProxyType({}),
) -> Outcome:
    """Run methods over the stream, with each seed.

    Args:
        setup: data, settings and seeds.
        names: of the methods.
        old_classes: one condition each; by default the one of the settings.
        points: values of further methods by name, beside those that are tuned.

    Raises:
        UserError: more asked for than the data set has, a run's state is damaged, or training diverged.
    """
    counts = tuple(old_classes) or (setup.settings.old_classes,)
    setup.check(*counts)
    predicted_order(setup.dataset, setup.settings.online.streamed, setup.seeds[0])
    runs, tuning = [], {}
    for count in counts:
        values, tuning[str(count)] = online_values(setup, count)
        runs += divided([partial(_run_seed, setup, seed, count, {**values, **points}, names) for seed in setup.seeds])
    return Outcome(tuple(runs), tuning)


def run_ablation(setup: ClassSetup) -> Outcome:
    """Run MbPA, the variants v1 to v3, Hebb with memories of fixed size, and Hebb over the stream.

    v1, v2 and v3 have hyper-parameters of their own, tuned like Hebb's; Hebb-N takes over Hebb's.

    Raises:
        UserError: as :func:`run_online`.
    """
    rings = (f"hebb-{capacity}" for capacity in setup.settings.adaptation.rings)
    return run_online(setup, ("mbpa", *VARIANTS, *rings, "hebb"))


def run_sensitivity(setup: ClassSetup) -> Outcome:
    """Run Hebb with every point of the grid, and the other methods beside it, from one adaptation pass a seed.

    Raises:
        UserError: as :func:`run_online`.
    """
    grid = points(setup.settings.sensitivity)
    return run_online(setup, ("parametric", "mixture", "mbpa", *grid), points=grid)


def points(grid: SensitivitySettings) -> dict[str, Point]:
    """Return the points of the grid by name."""
    return {
        f"hebb beta={beta:g} eta={eta:g}": {"beta": beta, "eta": eta}
        for beta, eta in itertools.product(grid.beta, grid.eta)
    }


def online_values(setup: ClassSetup, old_classes: int) -> Tuned:
    """Return the hyper-parameters of the stream and what was tried for them, None where nothing was left to choose."""
    learn = partial(_learn_held_out, setup)
    return tuned(setup, f"online-{old_classes}", setup.settings.online.lr, old_classes, learn, observes=True)


def _learn_held_out(setup: ClassSetup, start: Pretrained, lr: float) -> list[Snapshot]:
    """Learn from a stream of held-out pictures at a rate."""
    blocks = _follow(setup, start, "train", start.pretraining.parts.held_out, lr, f"tune, lr {lr:g}")
    return [Snapshot(blocks, old_memory(start))]


def _run_seed(
    setup: ClassSetup, seed: int, old_classes: int, values: dict[str, Point], names: Sequence[str]
) -> SeedRun:
    """Return what one seed gives, from the state of an interrupted run where that has it."""
    start = setup.start(seed, old_classes)
    order = predicted_order(setup.dataset, setup.settings.online.streamed, seed)
    run = setup.run_of(start, seed, names=list(names), values=values)
    title = f"seed {seed}, {old_classes} old classes"

    def step(_: int) -> Step:
        blocks = _follow(setup, start, "test", order, values["parametric"]["lr"], title)
        methods = methods_of(names, values, setup.settings.adaptation)
        return as_step(setup.read(Snapshot(blocks, old_memory(start)), methods, title, observes=True))

    path = setup.state / f"online-{old_classes}-seed-{seed}.state.safetensors"
    predictions, (counted,) = take_steps(path, run, 1, step)
    drawn = {"test": order, **vars(start.pretraining.parts)}
    labels = setup.dataset.test.labels[order]
    return SeedRun(seed, values, labels, predictions, counted, drawn, str(old_classes), start.about)


def _follow(
    setup: ClassSetup, start: Pretrained, part: str, order: Tensor, lr: float, title: str
) -> list[PictureBlock]:
    """Let a copy of the network learn from a stream."""
    interval = setup.settings.online.interval
    blocks = []
    with stage(f"{title}: learn", len(order)) as progress:
        for block in stream(start.copy(), start.pictures(part), order, interval=interval, lr=lr):
            blocks.append(block)
            progress(len(block.labels))
    return blocks


def stream(
    classifier: Classifier, pictures: Pictures, order: Tensor, *, interval: int, lr: float
) -> Iterator[PictureBlock]:
    """Yield the pictures block by block as the network sees them; it learns from a block when the next is asked for.

    Args:
        classifier: a copy that is trained on the way.
        pictures: where they are.
        order: (n,) int64.
        interval: pictures of a block.
        lr: of RMSprop.
    """
    optimizer = rmsprop(classifier, lr)
    for index in batches(order, interval):
        some = pictures.batch(index)
        labels = pictures.labels[index.to(pictures.labels.device)]
        hidden = features(classifier, some)
        yield PictureBlock(frozen_head(classifier), hidden, labels)
        learn(classifier, optimizer, some, labels)
