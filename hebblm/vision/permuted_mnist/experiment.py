"""Permuted MNIST from data to result: tuning, then every seed's chains with and without EWC (Fig. mnist)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import hash_of, read_json, write_json
from hebblm.ranks import current
from hebblm.vision.permuted_mnist.chain import TRAINING, run_chain
from hebblm.vision.permuted_mnist.measure import (
    Tried,
    Values,
    held_out_scores,
    network_alone,
    network_and_memory,
    tune_adaptation,
)
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.permuted_mnist.work import Work, work
from hebblm.vision.result import best
from hebblm.vision.seeds import check_seeds, divided
from hebblm.vision.setup import Setup


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """Predictions of one seed.

    Args:
        stream: its tasks.
        predictions: by method, (T, T, n) uint8.
        training: seconds, by ``mlp`` and ``ewc``.
        totals: by method, seconds and queries whose neighbours' loss rose.
    """

    stream: TaskStream
    predictions: Mapping[str, Tensor]
    training: Mapping[str, float]
    totals: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class PermutedOutcome:
    """Predictions of a run.

    Args:
        values: the hyper-parameters by method.
        tried: how they were chosen; None where nothing was left to choose.
        seeds: one by one.
    """

    values: Values
    tried: Tried | None
    seeds: tuple[SeedOutcome, ...]


class PermutedMnist:
    """A run that can be interrupted and goes on after the last finished task.

    Args:
        setup: data, settings and seeds.

    Raises:
        UserError: a seed twice, none at all, or more samples asked for than there are.
    """

    def __init__(self, setup: Setup[PermutedSettings]) -> None:
        settings, dataset, seeds = setup.settings, setup.dataset, setup.seeds
        self._settings = settings
        self._seeds = check_seeds(seeds)
        self._state = setup.state
        self._streams = {seed: TaskStream(dataset, settings, seed, setup.device) for seed in seeds}
        self._run = {
            "settings": asdict(settings),
            "data": dict(dataset.sha256),
            "device": setup.device.type,
            "tuned_with": seeds[0] if settings.tuned else None,
        }
        points = len(settings.mbpa_lambda) * len(settings.stored)
        self._tuning = {
            "tasks": (len(settings.ewc_lambda) + 1) * settings.tune_tasks,
            "queries": points * settings.tune_tasks * settings.tune_samples,
        }

    def run(self) -> PermutedOutcome:
        """Run to the end, or finish what was interrupted.

        Raises:
            UserError: the folder holds the state of another run, or training diverged.
        """
        settings, dataset, count = self._settings, self._streams[self._seeds[0]].dataset, len(self._seeds)
        adapted = count * len(settings.stored) * self._tested(settings.tasks)
        with work(settings, dataset.train.width, dataset.classes) as progress:
            progress.plan(tasks=2 * count * settings.tasks, queries=adapted)
            if settings.tuned:
                progress.plan(**self._tuning)
            with current().in_turn():
                tried = self._tune(progress) if settings.tuned else None
            values = settings.first() if tried is None else {name: best(tried[name]) for name in tried}
            seeds = divided([partial(self._run_seed, seed, values, progress) for seed in self._seeds])
        return PermutedOutcome(values, tried, tuple(seeds))

    def _tested(self, tasks: int) -> int:
        """Return how many test samples one memory size adapts to after the first ``tasks`` tasks."""
        return sum((task + 1) * self._settings.tested(task) for task in range(tasks))

    def _tune(self, progress: Work) -> Tried:
        """Return what was tried on held-out samples of the first seed's first tasks."""
        settings, path = self._settings, self._state / "tuning.json"
        stream, run = self._streams[self._seeds[0]], hash_of(self._run)
        if path.exists():
            document = read_json(path)
            if not isinstance(document, dict) or document.get("run") != run:
                raise UserError(
                    f"{path} belongs to a run with other settings, data or seeds; delete {self._state} to start "
                    "anew, or choose another --output-path"
                )
            progress.skip(**self._tuning)
            found: Tried = document["tried"]
            return found

        def learnt(name: str, strength: float | None) -> MLP:
            return run_chain(
                stream,
                lambda model, task: {},
                tasks=settings.tune_tasks,
                strength=strength,
                path=self._state / f"tuning-{name}.safetensors",
                run=run,
                progress=progress.epochs,
                skip=lambda done: progress.skip(tasks=done, queries=0),
            ).model

        tried: Tried = {"ewc": []}
        for strength in settings.ewc_lambda:
            progress.describe(f"tune EWC, lambda {strength:g}")
            scores = held_out_scores(stream, learnt(f"ewc-{strength:g}", strength))
            tried["ewc"].append({"lambda": strength, **scores})
        progress.describe("tune MbPA and Hebb")
        model = learnt("mlp", None)
        for size in settings.stored:
            tried |= tune_adaptation(stream, model, size, progress.queries)
        write_json(path, {"run": run, "tried": tried}, seal=True)
        return tried

    def _run_seed(self, seed: int, values: Values, progress: Work) -> SeedOutcome:
        """Learn all tasks twice, with and without EWC, and evaluate after each."""
        settings, stream = self._settings, self._streams[seed]
        run = hash_of({**self._run, "seed": seed, "values": values})
        memory = partial(network_and_memory, stream, values, progress.queries)
        alone = partial(network_alone, stream, "ewc")
        chains = {}
        for name, strength, measure, sizes in (
            ("mlp", None, memory, len(settings.stored)),
            ("ewc", values["ewc"]["lambda"], alone, 0),
        ):
            progress.describe(f"seed {seed}, {name}")
            chains[name] = run_chain(
                stream,
                measure,
                tasks=settings.tasks,
                strength=strength,
                path=self._state / f"seed-{seed}-{name}.safetensors",
                run=run,
                progress=progress.epochs,
                skip=lambda done, sizes=sizes: progress.skip(tasks=done, queries=sizes * self._tested(done)),  # type: ignore[misc]
            )
        return SeedOutcome(
            stream,
            {name: made for chain in chains.values() for name, made in chain.predictions.items()},
            {name: chain.totals[TRAINING]["seconds"] for name, chain in chains.items()},
            {name: total for chain in chains.values() for name, total in chain.totals.items()},
        )
