"""One pass over a stream of all classes (the paper's Tables "cifar-online", "pretrain" and "ablation", Fig. hyper)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor

from hebblm.ranks import current
from hebblm.vision.new_classes.methods import METHODS, VARIANTS, Method, given_values, methods_of, ring_names
from hebblm.vision.new_classes.pretraining import Pretrained
from hebblm.vision.new_classes.reading import Reading, Remembered, read
from hebblm.vision.new_classes.settings import SensitivitySettings
from hebblm.vision.new_classes.setup import ClassSetup, Outcome, Run, old_memory
from hebblm.vision.new_classes.split import predicted_order
from hebblm.vision.new_classes.stream import Trajectory, stream
from hebblm.vision.new_classes.tuning import Point, left_to_choose, tune_methods, tuned_once
from hebblm.vision.progress import stage
from hebblm.vision.seeds import divided
from hebblm.vision.state import load_state, save_state
from hebblm.vision.tuning import best


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
        with current().in_turn():
            values, tuning[str(count)] = online_values(setup, count)
        runs += divided(
            [partial(_run_seed, setup, seed, count, {**values, **points}, names) for seed in setup.seeds]
        )
    return Outcome(tuple(runs), tuning, setup.settings.online.interval)


def run_ablation(setup: ClassSetup) -> Outcome:
    """Run MbPA, the variants v1 to v3, Hebb with memories of fixed size, and Hebb over the stream.

    v1, v2 and v3 have hyper-parameters of their own, tuned like Hebb's; Hebb-N takes over Hebb's.

    Raises:
        UserError: as :func:`run_online`.
    """
    return run_online(setup, ("mbpa", *VARIANTS, *ring_names(setup.settings.adaptation), "hebb"))


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


def online_values(setup: ClassSetup, old_classes: int) -> tuple[dict[str, Point], dict[str, Any] | None]:
    """Return the hyper-parameters of the stream and what was tried for them, None where nothing was left to choose."""
    online, adaptation, seed = setup.settings.online, setup.settings.adaptation, setup.seeds[0]
    if not left_to_choose(online.lr, adaptation):
        return given_values(online.lr[0], adaptation), None
    start = setup.start(seed, old_classes)
    return tuned_once(
        setup.cache,
        f"online-{old_classes}",
        setup.run_of(start, seed, scenario="online"),
        lambda: _tune(setup, start),
    )


def _tune(setup: ClassSetup, start: Pretrained) -> tuple[dict[str, Point], dict[str, Any]]:
    """Learn from a stream of held-out pictures with every rate, and adapt along the best one."""
    adaptation, order = setup.settings.adaptation, start.pretraining.parts.held_out
    remembered = old_memory(start, setup.device)
    trajectories, tried = {}, []
    for lr in setup.settings.online.lr:
        trajectories[lr] = _follow(setup, start, "train", order, lr, f"tune, lr {lr:g}")
        reading = _read(
            setup, trajectories[lr], remembered, methods_of(("parametric",), {}, adaptation), "tune"
        )
        tried.append({"lr": lr, **reading["parametric"].score(trajectories[lr].labels)})
    chosen = best(tried)
    trajectory = trajectories[chosen.values["lr"]]

    def evaluate(methods: Mapping[str, Method]) -> dict[str, dict[str, float]]:
        made = _read(setup, trajectory, remembered, methods, f"tune, {len(methods)} points")
        return {name: reading.score(trajectory.labels) for name, reading in made.items()}

    return tune_methods(evaluate, chosen, adaptation)


def _run_seed(
    setup: ClassSetup,
    seed: int,
    old_classes: int,
    values: dict[str, Point],
    names: Sequence[str],
) -> Run:
    """Return what one seed gives, from the state of an interrupted run where that has it."""
    start = setup.start(seed, old_classes)
    parts, lr = start.pretraining.parts, values["parametric"]["lr"]
    order = predicted_order(setup.dataset, setup.settings.online.streamed, seed)
    run = setup.run_of(start, seed, names=list(names), values=values)
    title = f"seed {seed}, {old_classes} old classes"
    path = setup.state / f"online-{old_classes}-seed-{seed}.safetensors"
    found = load_state(path, run)
    if found is None:
        trajectory_path = path.with_suffix(".trajectory.safetensors")
        trajectory = Trajectory.load(trajectory_path, run, setup.device)
        if trajectory is None:
            trajectory = _follow(setup, start, "test", order, lr, title)
            trajectory.save(trajectory_path, run)
        remembered = old_memory(start, setup.device)
        methods = methods_of(names, values, setup.settings.adaptation)
        readings = _read(setup, trajectory, remembered, methods, title)
        tensors = {name: reading.classes for name, reading in readings.items()}
        stabilized = {name: reading.stabilized for name, reading in readings.items()}
        save_state(path, tensors, {"run": run, "stabilized": stabilized})
        trajectory_path.unlink()
        found = tensors, {"stabilized": stabilized}
    predictions, record = found
    return Run(
        str(old_classes),
        seed,
        values,
        start.record,
        parts.new,
        setup.dataset.test.labels[order],
        {name: predictions[name].unsqueeze(0) for name in names},
        record["stabilized"],
        {"test": order, **parts.tensors()},
    )


def _follow(
    setup: ClassSetup, start: Pretrained, part: str, order: Tensor, lr: float, title: str
) -> Trajectory:
    """Let a copy of the network learn from a stream."""
    blocks = stream(
        start.copy(setup.device),
        start.pictures(part, setup.device),
        order,
        interval=setup.settings.online.interval,
        lr=lr,
    )
    with stage(f"{title}: learn", len(order)) as progress:
        return Trajectory.of(blocks, progress)


def _read(
    setup: ClassSetup,
    trajectory: Trajectory,
    remembered: Remembered,
    methods: Mapping[str, Method],
    title: str,
) -> dict[str, Reading]:
    """Let methods predict along a trajectory."""
    with stage(f"{title}: adapt", len(trajectory.labels)) as progress:
        return read(
            trajectory.blocks(),
            remembered,
            methods,
            k=setup.settings.adaptation.k,
            observes=True,
            progress=progress,
        )
